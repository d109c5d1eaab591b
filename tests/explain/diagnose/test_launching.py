"""What a device idles for its own host, and at what pace that launches, of timelines that are worked out by hand."""

from __future__ import annotations

import pytest

from perfkit.explain.diagnose import host, launching
from perfkit.explain.diagnose.case import Case
from perfkit.record.format import Sink
from perfkit.record.overlap import Intervals, union
from tests.explain.diagnose.made import US, run_of


def recorded(*executions: tuple[float, float, float], leads: tuple[tuple[float, float], ...] = ()) -> Case:
    """One step from 1000 us on: when each execution was launched, when it began, and how long it took, in us from there.

    `leads` are calls of a data loader, from when to when.
    """
    launches, starts, lengths = (
        [round((base + us) * US) for us in column]
        for base, column in zip((1000, 1000, 0), zip(*executions, strict=True), strict=True)
    )
    last = max(start + length for start, length in zip(starts, lengths, strict=True))
    sink = Sink()
    sink.add("steps", rank=0, step=1, start_ns=500 * US, duration_ns=last - 500 * US)
    common = {
        "rank": 0,
        "step": 1,
        "name": "MatMul",
        "kind": "computing",
        "start_ns": starts,
        "duration_ns": lengths,
        "stream": "0",
    }
    sink.add("kernels", **common, type="MatMul")
    sink.add("launches", **common, thread="1", launch_ns=[at - 5 * US for at in launches], launch_duration_ns=5 * US)
    for begin, end in leads:
        sink.add(
            "host",
            rank=0,
            thread="1",
            name="DataLoader",
            kind="call",
            start_ns=round((1000 + begin) * US),
            duration_ns=round((end - begin) * US),
        )
    return Case(run_of(sink))


def test_a_device_idles_for_its_host_from_when_it_could_begin_until_the_launch():
    """Two kernels stood in the queue and began 4 and 6 us after the one before: 5 us are the device's own.

    So it is through with three kernels of 100 us at 309 us and could begin the fourth at 314, which is launched at 400.
    """
    assert launching.own_idle_ns(recorded((-20, 0, 100), (50, 104, 100), (60, 210, 100), (400, 412, 100)), 0) == 86 * US


@pytest.mark.parametrize(("launched", "idle_us"), [(400, 300), (-9_600, 0)], ids=["waited for", "stood in a full queue"])
def test_what_began_long_after_its_launch_was_not_waited_for(launched: float, idle_us: float):
    assert launching.own_idle_ns(recorded((-20, 0, 100), (launched, 412, 100)), 0) == idle_us * US


def test_the_pace_of_a_host_is_the_usual_time_between_launches_and_not_that_of_a_pause():
    starts = (0, 200, 400, 600, 800)
    case = recorded(*((at, start, 50) for at, start in zip((0, 10, 21, 33, 800), starts, strict=True)))
    assert launching.pace_ns(case, 0) == 11.5 * US


@pytest.mark.parametrize(("loaded", "kept"), [(-900, None), (-400, 400), (-100, 100), (100, None)])
def test_of_the_time_before_a_step_what_lies_behind_the_data_loader_is_for_launching(loaded: float, kept: float | None):
    """The first kernel begins at 0, 500 us after its step does; the loader has ended before the step, in it, or not until then."""
    case = recorded((-20, 0, 100), (50, 104, 100), leads=((loaded - 50, loaded),))
    assert launching.leads_after_loading(case, (0,))["duration_ns"].tolist() == ([] if kept is None else [kept * US])


def test_the_share_of_each_idle_time_that_the_data_loader_fills():
    """From 100 to 200 us the device idles, in which it loads for 60, and from 300 to 400, in which it does for 10."""
    case = recorded((-20, 0, 100), (50, 200, 100), (60, 400, 100), leads=((120, 180), (290, 310)))
    inside = case.gaps[~case.gaps["lead"].astype(bool)]
    assert inside["duration_ns"].tolist() == [100 * US, 100 * US]
    assert host.shares_in(case, 0, inside, host.LOADERS).tolist() == [0.6, 0.1]
    assert host.share_in(case, 0, inside, host.LOADERS) == 0.35


def test_what_a_device_idles_for_data_is_not_for_launches():
    """It idles from 100 to 412 us; in 275 of that the host loads data, and only then launches."""
    fed = recorded((-20, 0, 100), (400, 412, 100), leads=((120, 395),))
    assert launching.waits(fed).empty
    (idle_ns,) = launching.waits(recorded((-20, 0, 100), (400, 412, 100)))["duration_ns"]
    assert idle_ns == 312 * US


@pytest.mark.parametrize(("launched", "moved_until", "late_us"), [(250, 600, 150), (250, 240, 0), (90, 600, 0)])
def test_data_that_move_until_a_late_launch_wait_for_the_host_and_else_the_kernel_waits_for_them(
    launched: int, moved_until: int, late_us: int
):
    """Kernels from 0 to 100 us and from 300 us; data move from 50 us. A kernel launched while they move had no need of them."""
    common = {
        "rank": 0, "step": 1, "name": "MatMul", "kind": ["computing", "computing", "communication"],
        "start_ns": [0, 300 * US, 50 * US], "duration_ns": [100 * US, 100 * US, (moved_until - 50) * US], "stream": ["0", "0", "1"],
    }  # fmt: skip
    sink = Sink()
    sink.add("steps", rank=0, step=1, start_ns=0, duration_ns=700 * US)
    sink.add("kernels", **common, type="MatMul")
    called = [-20 * US, (launched - 10) * US, 0]
    sink.add("launches", **common, thread="1", launch_ns=called, launch_duration_ns=10 * US)
    starts, ends = ([time * US for time in times] for times in ((0, 300), (100, 400)))
    moving, computing = union([50 * US], [moved_until * US]), union(starts, ends)
    for shift in (0, 7 * US):  # of the clock of the rank, in which launches are, to that of the intervals
        there = [Intervals(one.starts + shift, one.ends + shift) for one in (moving, computing)]
        found = launching.late_beside(Case(run_of(sink)), 0, *there, shift)
        assert list(zip(found.starts, found.ends, strict=True)) == [(100 * US + shift, (100 + late_us) * US + shift)] * bool(
            late_us
        )
