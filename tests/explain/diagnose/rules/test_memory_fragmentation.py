"""Memory that is held and not handed out."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
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


def reserving(*rows, device=None):
    """A run whose rank 0 holds memory: component, allocated and reserved GiB at moments one after another."""
    curve = [
        {"rank": 0, "component": name, "time_ns": at, "allocated_bytes": round(used * GIB), "reserved_bytes": round(held * GIB)}
        for at, (name, used, held) in enumerate(rows)
    ]
    facts = {} if device is None else {"device_name": Fact(value=device, source=Source("measured", "made"))}
    return replace(added(Training(ranks=1).run(), memory_curve=curve), facts=facts)


def test_the_peak_of_what_is_reserved_is_held_against_the_peak_of_what_is_allocated():
    (found,) = judged(reserving(("PTA", 4, 8), ("PTA", 20, 30), ("PTA", 12, 30))).findings
    assert found.evidence["largest_reserved_over_allocated"] == 30 / 20


def test_the_component_that_reserves_most_speaks_for_a_rank():
    result = judged(reserving(("PTA", 28, 30), ("HCCL", 1, 3), ("IDLE", 0, 40)))
    assert result.findings == ()
    assert result.healthy[0].evidence["largest_reserved_over_allocated"] == pytest.approx(30 / 28)


@pytest.mark.parametrize(
    ("device", "held", "named"),
    [("NVIDIA A100-SXM4-80GB", 7.9, False), ("NVIDIA A100-SXM4-80GB", 8.1, True), ("NVIDIA A100", 6.1, True), (None, 5.3, True)],
    ids=["less than 4 of 80", "more than 4 of 80", "more than 2 of 40 of the smaller A100", "device not known"],
)
def test_gaps_of_less_than_a_twentieth_of_the_device_decide_nothing(device, held, named):
    """4 GiB are allocated of a device of 80 GiB, and `held` are reserved."""
    result = judged(reserving(("PTA", 4, held), device=device))
    found = (result.findings or result.healthy)[0]
    assert bool(result.findings) is named
    assert found.evidence["largest_reserved_over_allocated"] == pytest.approx(held / 4 if named else 1)
