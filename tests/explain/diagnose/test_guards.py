"""Central figures of a diagnosis against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.core import catalog, clock
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.explain.diagnose import all_rules, diagnose, excess, work
from perfkit.explain.diagnose._prices import bound, bounded, joint
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding
from perfkit.explain.diagnose.rules.slow_rank import RULE as SLOW_RANK
from perfkit.explain.diagnose.work import severity_of
from perfkit.predict.estimate import estimate
from perfkit.record.events.graph import causal_graph
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, US, Training, added, run_of, summaries

EVEN = [100, 100, 100, 100, 100, 100, 100, 100]


def with_first_step(run, factor: int, first: int = 1):
    """The run with everything of its first step `factor` times as long."""
    steps = run.tables["steps"].copy()
    for column in ("duration_ns", "computing_ns", "communication_ns", "exposed_communication_ns", "free_ns"):
        steps.loc[steps["step"] == first, column] *= factor
    return replace(run, tables={**run.tables, "steps": steps})


def test_a_step_of_warm_up_changes_no_figure_of_a_diagnosis():
    loads = dict(enumerate([*EVEN, 110]))
    plain = summaries(loads, steps=9)
    longer = with_first_step(summaries(loads, steps=10), 20)
    shown, wanted = diagnose(longer), diagnose(plain)
    assert longer.steps()["step"].nunique() == 10
    assert Case(longer).step_numbers == tuple(range(2, 11))
    assert (shown.step_ns, wanted.step_ns) == (200 * MS, 200 * MS)
    told = [
        [(item.rule, item.cost_ns, item.share_of_step, dict(item.evidence)) for item in one.findings] for one in (shown, wanted)
    ]
    assert told[0] == told[1]
    assert told[0][0][0] == "slow-rank"
    assert "step 1 is warm-up and was left out" in shown.notes


def test_a_fault_that_only_warm_up_has_is_none():
    loads = {rank: np.full(10, 100.0) for rank in range(8)}
    loads[3][0] = 150.0
    run = with_first_step(summaries(loads, steps=10), 20)
    assert diagnose(run, only=[SLOW_RANK]).findings == ()


def test_the_step_is_the_mean_of_the_longest_rank_and_parts_are_those_of_the_worst_rank():
    sink = Sink()
    for rank, durations, computing in ((0, (100, 120), (60, 70)), (1, (110, 90), (80, 10))):
        for step, (duration, busy) in enumerate(zip(durations, computing, strict=True)):
            sink.add(
                "steps", rank=rank, step=step, duration_ns=duration, computing_ns=busy, communication_ns=20, overlapped_ns=5,
                exposed_communication_ns=15, bubble_ns=4, free_ns=duration - busy - 15,
            )  # fmt: skip
    case = Case(run_of(sink))
    assert case.step_ns == (110 + 120) / 2
    assert case.part_ns == {"computing": 65, "communication": 19, "free": (110 - 80 - 15 + 90 - 10 - 15) // 2}


@pytest.mark.parametrize(("slow_steps", "factor"), [(slice(4, 8), 1.25), (slice(0, 3), 1.5), (slice(7, 10), 1.4)])
def test_a_rank_that_is_slow_for_some_steps_costs_what_these_are_longer_over_all_steps(slow_steps, factor):
    loads = {rank: np.full(10, 100.0) for rank in range(8)}
    loads[2][slow_steps] *= factor
    (found,) = diagnose(summaries(loads), only=[SLOW_RANK]).findings
    longer_ms = (factor - 1) * 100
    assert found.evidence["excess_ns"] == pytest.approx(longer_ms * MS, rel=1e-6)
    assert found.cost_ns == pytest.approx(longer_ms * MS * (slow_steps.stop - slow_steps.start) / 10, rel=1e-6)
    assert found.share_of_step == pytest.approx(found.cost_ns / (200 * MS), abs=1e-6)


def test_a_rank_that_is_always_slow_costs_what_it_is_longer_than_the_next():
    (found,) = diagnose(summaries(dict(enumerate([*EVEN, 130]))), only=[SLOW_RANK]).findings
    assert found.cost_ns == 30 * MS
    assert found.evidence["excess_ns"] == pytest.approx(30 * MS)
    assert found.evidence["slow_steps_share"] == 1.0
    assert found.evidence["classic_ratio_to_mean"] == pytest.approx(130 / (930 / 9))
    assert found.evidence["classic_rule_names_it"] == 1
    assert found.severity == "high"


def test_two_slow_ranks_are_two_findings_whose_costs_sum_to_no_more_than_both_win():
    found = diagnose(summaries(dict(enumerate(EVEN)) | {3: 130, 5: 120}), only=[SLOW_RANK]).findings
    assert [(one.subject["ranks"], one.cost_ns) for one in found] == [((3,), 10 * MS), ((5,), 0)]


def test_a_node_whose_ranks_are_all_slow_is_one_finding_that_wins_all_of_it():
    (found,) = diagnose(summaries(dict(enumerate([*EVEN, 130, 120]))), only=[SLOW_RANK]).findings
    assert (found.subject["ranks"], found.cost_ns) == ((8, 9), 30 * MS)


@pytest.mark.parametrize(("excess_ms", "persistent"), [(1.0, False), (2.1, True)], ids=["1 % is natural", "2 % with no noise"])
def test_the_smallest_excess_that_counts_is_two_percent(excess_ms, persistent):
    found = excess.of_ranks(Case(summaries(dict(enumerate([*EVEN, 100 + excess_ms])))))
    assert found.ranks.loc[8, "excess"] == pytest.approx(np.log1p(excess_ms / 100))
    assert found.scale == 0.005  # no noise and no spread: what healthy cards differ by
    assert found.ranks.loc[8, "z"] == pytest.approx(np.log1p(excess_ms / 100) / 0.005)
    assert found.z_needed == pytest.approx(3.6923, abs=1e-4)  # the normal quantile of 1 - 0.001 / 9
    assert found.band == max(0.02, found.z_needed * 0.005)
    assert bool(found.culprits) is persistent


def test_the_spread_of_ranks_widens_the_scale():
    loads = [90, 110, 92, 108, 95, 105, 97, 103, 100]
    found = excess.of_ranks(Case(summaries(dict(enumerate(loads)), steps=4)))
    logs = np.log(np.array(loads) / 100)
    between = 1.4826 * np.median(np.abs(logs - np.median(logs))) * 9 / 8.2
    assert found.scale == pytest.approx(between)
    assert found.culprits == ()


def test_noise_from_step_to_step_widens_the_scale_by_the_error_of_a_median():
    wave = np.array([0.9, 1.1] * 5)
    loads = {rank: 100 * (wave if rank % 2 else wave[::-1]) for rank in range(6)} | {6: np.full(10, 100.0)}
    found = excess.of_ranks(Case(summaries(loads)))
    rows = np.log(np.stack(list(loads.values())))
    ratios = rows - np.median(rows, axis=0)
    noise = 1.4826 * np.median(np.abs(ratios - np.median(ratios, axis=1, keepdims=True)))
    middle = np.median(ratios, axis=1)
    between = 1.4826 * np.median(np.abs(middle - np.median(middle))) * 7 / 6.2
    assert found.scale == pytest.approx(max(0.005, between, 1.2533 * noise / np.sqrt(10)))


@pytest.mark.parametrize(("share", "severity"), [(0.0499, "medium"), (0.05, "high"), (0.01, "medium"), (0.0099, "low")])
def test_severity_follows_from_the_share_of_the_step(share, severity):
    case = Case(summaries(dict(enumerate(EVEN))))
    assert severity_of(case, round(share * 200 * MS)) == severity
    assert severity_of(case, None) == "low"


def test_what_a_step_wins_is_what_the_busiest_rank_is_less_busy_down_to_the_next():
    case = Case(summaries({0: 100, 1: 90, 2: 80}))
    assert work.less_busy_ns(case, {0: 4.0 * MS}) == 4 * MS
    assert work.less_busy_ns(case, {0: 30.0 * MS}) == 10 * MS
    assert work.less_busy_ns(case, {1: 30.0 * MS}) == 0
    assert work.less_busy_ns(case, {0: 30.0 * MS, 1: 30.0 * MS}) == 20 * MS
    assert work.less_busy_ns(case, dict.fromkeys(range(3), 500.0 * MS)) == 100 * MS


def test_wrong_clocks_change_neither_who_waits_nor_what_a_fault_costs():
    """A sign that is wrong moves 700 us the wrong way, more than any wait of this training."""
    right = Training(factors={2: 1.2}, noise=0.0).run()
    skewed = Training(factors={2: 1.2}, noise=0.0, skew_us={1: 700.0, 3: -400.0}).run()
    skewed = replace(skewed, clock=clock.offsets(clock.estimate(skewed)))
    common = skewed.clock[0]
    assert {rank: shift - common for rank, shift in skewed.clock.items()} == {0: 0, 1: -700_000, 2: 0, 3: 400_000}
    keys = ["step", "rank", "name"]
    one, other = (causal_graph(run).members().set_index(keys)["wait_ns"].sort_index() for run in (right, skewed))
    assert (one - other).abs().max() <= 1
    assert other.groupby("rank").sum()[2] == 0
    named = [{found.rule: found for found in diagnose(run, only=all_rules()).findings} for run in (right, skewed)]
    assert named[0].keys() == named[1].keys() - {"clock-skew"}
    assert named[1]["clock-skew"].subject["ranks"] == (1, 3)
    for rule, found in named[0].items():
        assert named[1][rule].cost_ns == pytest.approx(found.cost_ns, rel=1e-3), rule
    # Four layers of 1.47 ms and an optimizer of 0.2 ms, a sixth of which the others do not take.
    assert named[1]["slow-rank"].cost_ns == pytest.approx(0.2 * (4 * 1.47 + 0.2) * MS, rel=0.02)


def test_mfu_counts_the_model_and_hfu_what_is_computed_again_too():
    """Llama2-7B by hand: four projections, three of the SwiGLU, attention over all of the sequence, and the head."""
    layers, width, inner, vocabulary, length = 32, 4096, 11_008, 32_000, 4096
    of_layers = layers * (2 * (4 * width * width + 3 * width * inner) + 4 * length * width)
    once = 3 * (of_layers + 2 * width * vocabulary)
    plan = Plan(
        model=catalog.model("llama2-7b"),
        workload=Workload(seq_length=length, micro_batch_size=1, global_batch_size=16),
        parallel=ParallelPlan(data_parallel_size=8),
        hardware=catalog.hardware_named("A100 80GB SXM"),
    )
    for recompute, again in ((RecomputePlan(), 0), (RecomputePlan(all_layers=True), of_layers)):
        found = estimate(replace(plan, recompute=recompute))
        rate = found.tokens_per_s_per_device / 312e12
        assert found.tokens_per_s_per_device == pytest.approx(16 * length / 8 / found.step_time_s)
        assert found.mfu == pytest.approx(rate * once, rel=1e-6)
        assert found.hfu == pytest.approx(rate * (once + again), rel=1e-6)


def two_stages_of_three_micro_batches() -> Case:
    """Two ranks that are busy for 100 ms in the first stage and two for 80 ms in the other."""
    stages = {0: 0, 1: 0, 2: 1, 3: 1}
    run = summaries({0: 100, 1: 100, 2: 80, 3: 80}, stages=stages)
    receives = [
        {"rank": rank, "step": step, "operation": "receive", "group": "pp", "group_size": 2, "name": f"r{at}", "duration_ns": 10}
        for rank in stages
        for step in range(1, 11)
        for at in range(3)
    ]
    return Case(added(run, collectives=receives))


def test_a_pipeline_wins_what_its_longest_stage_and_one_micro_batch_of_every_stage_take_less():
    """Three micro batches: two of the longest stage and one of each, of three. 100 and 80 ms are 120; 70 and 80 are 310 / 3."""
    case = two_stages_of_three_micro_batches()
    assert case.num_micro_batches == 3
    assert work.less_busy_ns(case, {0: 30.0 * MS, 1: 30.0 * MS}) == round((380 / 3 - 310 / 3) * MS)
    assert work.less_busy_ns(case, {0: 30.0 * MS}) == 0
    assert work.less_busy_ns(case, {2: 30.0 * MS, 3: 30.0 * MS}) == 10 * MS


@pytest.mark.parametrize(("later_ms", "won_ms"), [(0, 30), (15, 35), (30, 40)])
def test_a_pipeline_loses_once_what_all_of_its_stages_lose_at_the_same_moments(later_ms: int, won_ms: int):
    """30 ms of every rank in one of the steps: one after the other, of the longest stage two thirds and of each one third."""
    case = two_stages_of_three_micro_batches()
    stops = pd.DataFrame({"rank": range(4), "start_ns": [0, 0, later_ms * MS, later_ms * MS], "duration_ns": 30 * MS})
    assert work.price(case, [work.loss(stops, stops=True)]) == won_ms * MS / case.num_kernel_steps


def test_ranks_that_were_not_looked_at_win_the_least_that_those_win_that_were():
    run = Training(noise=0.0, factors={3: 1.1}).run()
    kernels = run.tables["kernels"]
    case = Case(replace(run, tables={**run.tables, "kernels": kernels[kernels["rank"] != 3]}))
    assert work.less_busy_ns(case, {0: 200.0 * US, 1: 300.0 * US, 2: 100.0 * US}) == 100 * US
    assert work.less_busy_ns(case, {0: 200.0 * US, 1: 300.0 * US}) == 0


def test_collectives_that_nothing_hides_win_what_they_are_faster_by_and_once():
    """Four messages a step behind the backward pass."""
    case = Case(Training(noise=0.0, late=True).run())
    faster, less = (dict.fromkeys(case.members["instance"].unique().tolist(), us * US) for us in (100.0, 60.0))
    assert work.won_ns(case, work.EMPTY, faster_ns=faster) == 400 * US
    assert work.price(case, [work.loss(work.EMPTY, faster_ns=one) for one in (less, faster, less)]) == 400 * US


def stops(case: Case, rank: int):
    """The idle times inside the steps of a rank."""
    return case.gaps[(case.gaps["rank"] == rank) & ~case.gaps["lead"].astype(bool) & (case.gaps["duration_ns"] > 100 * US)]


@pytest.mark.parametrize("skew_us", [-20_000.0, 0.0, 20_000.0])
def test_a_stop_is_taken_out_where_it_was_whatever_the_clock_of_its_rank(skew_us):
    """A clock that is off by three steps the wrong way would take most of the stops out of steps that are none."""
    run = Training(noise=0.0, stop_us={2: 500.0}, skew_us={2: skew_us}).run()
    case = Case(replace(run, clock=clock.offsets(clock.estimate(run))))
    assert work.won_ns(case, stops(case, 2)) == 500 * US


def priced(case: Case, *losses):
    """Findings of these losses with what a step wins by each alone."""
    told = [
        Finding(rule="host-pause", title="made", subject={}, evidence={}, actions=(), cost_ns=work.price(case, [one]), loss=one)
        for one in losses
    ]
    return [finding.cost_ns for finding in told], [finding.cost_ns for finding in joint(told, case)]


def test_what_two_causes_win_together_is_shared_by_what_each_wins_alone_and_what_it_adds():
    """Rank 1 stops for 300 us, rank 2 for 200. Alone they win 100 and nothing; to the other the one adds 300, the other 200."""
    case = Case(Training(noise=0.0, stop_us={1: 300.0, 2: 200.0}).run())
    alone, shares = priced(case, *(work.loss(stops(case, rank)) for rank in (1, 2)))
    assert alone == [100 * US, 0]
    assert shares == [200 * US, 100 * US]


@pytest.mark.parametrize(("both", "kept"), [(0.01, True), (0.03, False)])
def test_causes_that_touch_each_other_in_less_than_a_fiftieth_keep_their_own_prices(both, kept):
    """Two halves of a stop of 500 us, of which each names a little of the other."""
    case = Case(Training(noise=0.0, stop_us={2: 500.0}).run())
    rows = stops(case, 2)
    half = (rows["duration_ns"] * (0.5 + both / 2)).astype("int64")
    early, late = (
        rows.assign(duration_ns=half),
        rows.assign(start_ns=rows["start_ns"] + rows["duration_ns"] - half, duration_ns=half),
    )
    alone, shares = priced(case, work.loss(early), work.loss(late))
    assert alone == pytest.approx([(250 + 250 * both) * US] * 2, abs=2)
    assert shares == pytest.approx(alone if kept else [250 * US] * 2, abs=2)


def test_free_time_wins_no_more_than_kernels_leave_where_it_is_most():
    """Each step begins 50 us before its first kernel, and rank 2 stops for 500 us; the others wait for it in their messages."""
    case = Case(Training(noise=0.0, stop_us={2: 500.0}).run())
    asked = Finding(rule="host-pause", title="made", subject={}, evidence={}, actions=(), cost_ns=1, part="free")
    assert bound(asked, case) == 550 * US


def test_communication_hides_behind_no_more_computing_than_nothing_hides_behind_yet():
    """A message of 10 ms behind one layer of 500 and 970 us, before an update of 200 us."""
    case = Case(Training(noise=0.0, layers=1, late=True, transfer_us=10_000.0).run())
    asked = Finding(
        rule="exposed-communication", title="made", subject={}, evidence={}, actions=(), cost_ns=1, part="communication"
    )
    assert bound(asked, case) == (500 + 970 + 200) * US


def test_what_became_slower_wins_no_more_than_the_step_became_longer():
    """All kernels of 6080 us take a tenth longer than in the baseline."""
    before, now = (Training(noise=0.0, factors=dict.fromkeys(range(4), factor)).run() for factor in (1.0, 1.1))
    case = Case(now, before)
    asked = Finding(
        rule="slow-operators", title="made", subject={}, evidence={}, actions=(), cost_ns=case.step_ns, part="computing"
    )
    found = bounded(asked, case)
    assert found.cost_ns == found.evidence["bound_ns"] == pytest.approx(608 * US, abs=5)
