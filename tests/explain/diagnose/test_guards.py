"""Central figures of a diagnosis against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog, clock
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.explain.diagnose import all_rules, diagnose, excess, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rules.slow_rank import RULE as SLOW_RANK
from perfkit.explain.diagnose.work import severity_of
from perfkit.predict.estimate import estimate
from perfkit.record.events.graph import causal_graph
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, run_of, summaries

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
