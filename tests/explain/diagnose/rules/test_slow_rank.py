"""The slow rank is named, its peers that wait are not, and stages of different load are no slow ranks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.core.run import Position
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.slow_rank import RULE, SLOWER_CLOCK
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, run_of, summaries

ONE_STAGE = [100, 101, 99, 100, 102, 98, 100]


def judged(run):
    return diagnose(run, only=[RULE])


def test_one_slow_rank_of_a_stage_is_named_with_its_excess():
    found = judged(summaries(dict(enumerate([*ONE_STAGE, 110])))).findings
    assert [finding.subject["ranks"] for finding in found] == [(7,)]
    assert found[0].evidence["excess_ratio"] == pytest.approx(np.log(1.1), abs=1e-6)
    assert found[0].evidence["classic_rule_names_it"] == 0, "the 20 % rule is silent here"
    assert found[0].cost_ns == 8_000_000, "the next slowest rank takes 102 ms"


def test_a_stage_with_more_work_is_no_slow_rank():
    loads = {0: 100, 1: 101, 2: 99, 3: 100, 4: 160, 5: 161, 6: 159, 7: 160}
    stages = {rank: rank // 4 for rank in loads}
    assert judged(summaries(loads, stages=stages)).findings == ()
    slow = judged(summaries({**loads, 7: 176}, stages=stages)).findings
    assert [finding.subject["ranks"] for finding in slow] == [(7,)]


def test_a_rank_slow_in_two_of_ten_steps_is_jitter_and_not_slow():
    assert judged(summaries({**dict(enumerate(ONE_STAGE)), 7: [110, 110] + [100] * 8})).findings == ()


def test_a_rank_slow_in_four_steps_in_a_row_is_named_with_those_steps():
    random = np.random.default_rng(3)
    loads = {rank: 100 + random.normal(0, 0.3, 10) for rank in range(8)}
    loads[2][4:8] *= 1.25
    (found,) = judged(summaries(loads)).findings
    assert found.subject == {"ranks": (2,), "steps": (5, 6, 7, 8)}


def test_a_whole_slow_node_is_one_finding_although_it_is_half_of_the_ranks():
    random = np.random.default_rng(1)
    loads = {rank: (110 if rank < 8 else 100) + random.normal(0, 0.3, 10) for rank in range(16)}
    (found,) = judged(summaries(loads)).findings
    assert found.subject["ranks"] == tuple(range(8))


@pytest.mark.parametrize("seed", range(16))
def test_healthy_ranks_with_three_percent_of_noise_are_not_blamed(seed):
    random = np.random.default_rng(seed)
    ranks = int(random.choice([4, 8, 16, 64]))
    steps = int(random.integers(3, 12))
    noise = random.normal(1, 0.03, (ranks, steps)) * random.normal(1, 0.003, (ranks, 1))
    assert judged(summaries({rank: 100 * noise[rank] for rank in range(ranks)}, steps=steps)).findings == ()


def staged(ranks: int, per_stage: int, slow: dict[int, float]):
    """A pipeline whose stages have more layers the later they come; `slow` are factors of all kernels by rank."""
    sink = Sink()
    for rank in range(ranks):
        layers = 4 + rank // per_stage
        for step in (1, 2, 3):
            start, rows = step * 10**9, []
            for _ in range(layers):
                for op, length in (("MatMul", 500_000), ("Attention", 700_000), ("Norm", 50_000)):
                    rows.append((op, start, round(length * slow.get(rank, 1.0) * (1 + 0.001 * (rank % 3)))))
                    start += rows[-1][2]
            names, starts, lengths = zip(*rows, strict=True)
            sink.add(
                "kernels", rank=rank, step=step, name=names, type=names, kind="computing", start_ns=starts, duration_ns=lengths
            )
            sink.add("steps", rank=rank, step=step, duration_ns=20_000_000, computing_ns=sum(lengths), free_ns=0)
    return run_of(sink, {rank: Position(pipeline=rank // per_stage) for rank in range(ranks)})


def test_equal_operators_are_compared_where_a_stage_has_two_ranks():
    (found,) = judged(staged(8, 2, {5: 1.1})).findings
    assert found.subject["ranks"] == (5,)


@pytest.mark.parametrize("per_stage", [2, 4, 8])
def test_a_slow_node_that_has_whole_stages_is_one_finding(per_stage):
    (found,) = judged(staged(16, per_stage, dict.fromkeys(range(8), 1.06))).findings
    assert found.subject["ranks"] == tuple(range(8))
    assert found.evidence["excess_ratio"] == pytest.approx(np.log(1.06), abs=0.003)


def test_stages_on_nodes_of_their_own_with_more_layers_are_no_slow_nodes():
    assert judged(staged(16, 8, {})).findings == ()
    (found,) = judged(staged(16, 8, {11: 1.1})).findings
    assert found.subject["ranks"] == (11,)


def test_two_ranks_have_too_few_peers():
    (missing,) = judged(summaries({0: 100, 1: 120})).not_measured
    assert "peers" in missing.missing[0]


def test_without_steps_nothing_is_measured():
    (missing,) = judged(run_of(Sink())).not_measured
    assert missing.missing == ("steps",)


def clocked(run, mhz):
    """The run with the clock of every rank: 800 MHz while it waits, what is given while it computes."""
    rows = [
        (rank, "AI Core Freq", "MHz", at * 1_000_000, value)
        for rank, one in mhz.items()
        for at, value in ((0, one), (60, 800.0), (80, one), (99, one))
    ]
    counters = pd.DataFrame(rows, columns=["rank", "name", "unit", "time_ns", "value"])
    return replace(run, tables={**run.tables, "counters": counters})


def test_a_slow_rank_whose_cores_are_clocked_lower_is_told_so_first():
    run = summaries(dict(enumerate([*ONE_STAGE, 110])))
    (found,) = judged(clocked(run, {rank: 1650.0 if rank == 7 else 1800.0 for rank in range(8)})).findings
    assert found.evidence["clock_ratio_to_peers"] == pytest.approx(1650 / 1800)
    assert found.actions[0] == SLOWER_CLOCK


def test_a_slow_rank_that_is_clocked_as_its_peers_has_another_cause():
    run = summaries(dict(enumerate([*ONE_STAGE, 110])))
    (found,) = judged(clocked(run, dict.fromkeys(range(8), 1800.0))).findings
    assert found.evidence["clock_ratio_to_peers"] == pytest.approx(1.0)
    assert SLOWER_CLOCK not in found.actions
    assert not any("clock of its cores was not recorded" in action for action in found.actions)
    (unrecorded,) = judged(run).findings
    assert "clock_ratio_to_peers" not in unrecorded.evidence
    assert "clock of its cores was not recorded" in unrecorded.actions[-1]
    (planned,) = judged(replace(run, kind="simulated")).findings
    assert not any("not recorded" in action for action in planned.actions)


@pytest.mark.parametrize(
    ("factors", "told"), [((1.2,) * 6, 1), ((0.8, 1.5, 1.15, 0.9, 1.45, 1.14), 0)], ids=["every step", "now and then"]
)
def test_of_two_ranks_one_is_slow_only_where_its_steps_agree_on_it(factors: tuple[float, ...], told: int):
    run = Training(ranks=2, steps=len(factors), layers=2).run()
    kernels = run.tables["kernels"]
    slower = ((kernels["rank"] == 1) & (kernels["kind"] == "computing")).to_numpy(dtype=bool)
    scaled = np.array(factors)[kernels["step"].to_numpy(dtype=np.int64) - 1] * kernels["duration_ns"].to_numpy(dtype=np.int64)
    durations = np.where(slower, np.rint(scaled).astype(np.int64), kernels["duration_ns"])
    found = judged(replace(run, tables={**run.tables, "kernels": kernels.assign(duration_ns=durations)}))
    assert [finding.subject["ranks"] for finding in found.findings] == [(1,)] * told
    assert (found.findings or found.healthy)[0].evidence["excess_ratio"] > 0.1
