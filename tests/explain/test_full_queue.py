"""A full queue: at or above its capacity, and what the host lost by it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.explain.full_queue import CAPACITY
from perfkit.record.load import load
from tests.explain.raw_events import TRACES, ns, spans

SAMPLE = "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"


@pytest.fixture(scope="module")
def resnet() -> Run:
    return load(TRACES / SAMPLE, cache=False)


def full_ns(path: str, capacity: int) -> dict[str, int]:
    """By stream the time with that many launches before their begin, event by event."""
    events = spans(path)
    device = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime" and "correlation" in e["args"]}
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for correlation, run in device.items():
        if correlation in calls:
            launched, begun = ns(calls[correlation]["ts"]), ns(run["ts"])
            changes[str(run["args"]["stream"])][launched] += 1
            changes[str(run["args"]["stream"])][max(begun, launched)] -= 1
    base = min(time for of in changes.values() for time in of)
    found = {}
    for stream, of in changes.items():
        length, before, total = 0, base, 0
        for time in sorted(of):
            total += (time - before) * (length >= capacity)
            length, before = length + of[time], time
        found[stream] = total
    return found


@pytest.mark.parametrize("capacity", [1, 400, 1_000, CAPACITY])
def test_the_time_of_a_full_queue_is_that_of_its_events(resnet, capacity):
    table = resnet.full_queue(capacity=capacity)
    assert table.set_index("stream")["full_ns"].to_dict() == full_ns(SAMPLE, capacity)


def test_a_queue_is_full_only_while_the_host_is_in_a_call_that_waits_for_room(resnet):
    table = resnet.full_queue()
    assert table["most"].max() == CAPACITY
    assert (table["blocked_ns"] == table["full_ns"]).all()
    assert table["full_ns"].sum() > 200_000_000
    half = resnet.full_queue(capacity=CAPACITY // 2)
    assert half["full_ns"].sum() - half["blocked_ns"].sum() > 100_000_000


def test_a_larger_queue_is_full_less_long_and_never_longer_than_the_recording(resnet):
    times = [int(resnet.full_queue(capacity=size)["full_ns"].sum()) for size in (1, 10, 100, 1_000, 10_000)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == 0
    assert resnet.full_queue(capacity=1)["full_ratio"].between(0, 1).all()
    with pytest.raises(InputError, match="capacity = 0 must be positive"):
        resnet.full_queue(capacity=0)
