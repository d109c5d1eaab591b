"""One link is blamed, not its ends and not those who use it."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.slow_link import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, added, run_of

HEALTHY = Training().run()


def judged(run, baseline=None):
    return diagnose(run, baseline, only=[RULE])


def seconds_won(changed, healthy=HEALTHY):
    """What a step really wins without the fault, in ns."""
    return changed.steps()["duration_ns"].mean() - healthy.steps()["duration_ns"].mean()


def test_without_its_tables_nothing_is_measured():
    result = judged(run_of(Sink()))
    assert result.findings == result.healthy == ()
    assert result.not_measured[0].how_to_collect


def linked(slow=(), ranks=6, steps=4, factor=1.5):
    sink = Sink()
    for step in range(1, steps + 1):
        for rank in range(ranks):
            others = [other for other in range(ranks) if other != rank]
            times = [
                round(1e6 * (factor if {rank, other} == set(slow) else 1.0) * (1 + 0.003 * ((rank + other + step) % 3)))
                for other in others
            ]
            sink.add("links", rank=rank, step=step, operation="allreduce-total@1", source_rank=rank, target_rank=others,
                     transport="HCCS", bytes=20_000_000, transit_ns=times)  # fmt: skip
            sink.add("steps", rank=rank, step=step, duration_ns=10**8)
    return run_of(sink)


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_the_slow_link_is_named_and_no_other(factor):
    (found,) = judged(linked(slow=(1, 4), factor=factor)).findings
    assert found.subject["links"] == ((1, 4),)
    assert found.evidence["slowness_ratio"] == pytest.approx(factor, rel=0.02)


def test_where_nothing_can_be_replayed_the_late_transfers_that_are_not_hidden_are_the_cost():
    # Five operations a step take 2 ms over the slow link and 1 ms elsewhere; ranks 1 and 4 compute beside three of them.
    run = linked(slow=(1, 4), factor=2.0)
    steps = [step for step in range(1, 5) for _ in range(5)]
    starts = [(step * 100 + 10 * at) * 1_000_000 for step in range(1, 5) for at in range(5)]
    pairs = [
        {
            "rank": rank, "step": step, "name": f"op{at % 5}", "operation": "all_reduce", "group": f"pair{pair}", "group_size": 2,
            "start_ns": start, "duration_ns": length, "transit_ns": length, "wait_ns": 0, "bytes": 20_000_000,
        }
        for pair, length in (((0, 5), 1_000_000), ((1, 4), 2_000_000), ((2, 3), 1_000_000))
        for rank in pair
        for at, (step, start) in enumerate(zip(steps, starts, strict=True))
    ]  # fmt: skip
    kernels = [
        {"rank": rank, "step": step, "kind": "computing", "name": "MatMul", "start_ns": start, "duration_ns": 2_000_000}
        for rank in (1, 4)
        for at, (step, start) in enumerate(zip(steps, starts, strict=True))
        if at % 5 < 3
    ]
    open_to_all = judged(added(run, collectives=pairs)).findings
    assert [finding.cost_ns for finding in open_to_all] == [5_000_000]
    beside = judged(added(run, collectives=pairs, kernels=kernels)).findings
    assert [finding.cost_ns for finding in beside] == [4_000_000], "no more than the two transfers that nothing hides"


def test_equal_links_are_healthy():
    result = judged(linked())
    assert result.findings == ()
    assert result.healthy[0].evidence["num_links"] == 30


def test_two_links_are_too_few():
    assert judged(linked(ranks=2)).not_measured


def test_without_a_matrix_a_slow_pair_of_ranks_is_named():
    sink = Sink()
    for rank in range(12):
        sink.add("steps", rank=rank, step=1, duration_ns=10**8)
        took = 1_500_000 if rank // 2 == 3 else 1_000_000
        starts = [at * 4_000_000 for at in range(10)]
        sink.add(
            "collectives", rank=rank, step=1, name=[f"op{at}" for at in range(10)], operation="all_reduce",
            group=f"pair{rank // 2}", group_size=2, start_ns=starts, duration_ns=took, bytes=16 * 2**20,
        )  # fmt: skip
    found = judged(run_of(sink)).findings
    assert [finding.subject["links"] for finding in found] == [((6, 7),)]
    assert found[0].evidence["slowness_ratio"] == pytest.approx(1.5)
