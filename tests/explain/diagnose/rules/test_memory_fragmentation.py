"""Memory that is held and not handed out."""

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.memory_fragmentation import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import GIB, Training, added, run_of

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


def remembering(ratio):
    from dataclasses import replace

    sink = Sink()
    for rank in range(4):
        allocated = [20 * 2**30, 24 * 2**30]
        reserved = [round(size * (ratio if rank == 1 else 1.05)) for size in allocated]
        sink.add("memory_curve", rank=rank, component="PTA", time_ns=[0, 1], allocated_bytes=allocated, reserved_bytes=reserved)
    return replace(HEALTHY, tables={**HEALTHY.tables, **sink.tables()})


def test_the_fragmented_rank_is_named():
    (found,) = judged(remembering(1.6)).findings
    assert found.subject["ranks"] == (1,)
    assert found.cost_ns is None
    assert found.severity == "medium"


def test_a_little_reserve_is_healthy():
    assert judged(remembering(1.1)).findings == ()


def test_memory_of_captured_graphs_is_reserved_and_not_fragmented():
    run = added(
        Training(ranks=1).run(),
        memory_curve=[{"rank": 0, "component": "device 0", "time_ns": 5, "allocated_bytes": 8 * GIB, "reserved_bytes": 25 * GIB}],
    )
    (found,) = judged(run).findings
    assert found.evidence["largest_reserved_over_allocated"] == 25 / 8
    call = {"rank": 0, "name": "cudaGraphLaunch", "kind": "call", "thread": "1", "start_ns": 3, "duration_ns": 2}
    assert judged(added(run, host=[call])).findings == ()
