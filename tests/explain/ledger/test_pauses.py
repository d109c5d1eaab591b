"""Pauses of a host are told from its habits by how it is otherwise: stretching all that it does makes none, and loses none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfkit.explain.ledger import _host, causes
from perfkit.explain.ledger._paint import Covered
from perfkit.record.overlap import Intervals

MS = 1_000_000
NONE = np.zeros(0, dtype=np.int64)
EMPTY = Covered.of(Intervals(NONE, NONE))


def silences(*lengths_ms: float, factor: float = 1.0) -> Intervals:
    """Silences of these lengths, each a second after the one before."""
    starts = np.arange(len(lengths_ms), dtype=np.int64) * 1_000 * MS
    return Intervals(starts, starts + np.array([round(length * factor * MS) for length in lengths_ms], dtype=np.int64))


def pauses(
    silent: Intervals, num_steps: int, gaps: Intervals | None = None, step_ms: float = 200.0, *, launched: int = 0
) -> list[float]:
    """The lengths of the pauses, in ms, of steps of `step_ms` that have as many of these silences each.

    What ends an idle time is launched at its end; what ends the last `launched` ones was launched before they began.
    """
    gaps = silent if gaps is None else gaps
    called = np.where(np.arange(len(gaps.ends)) < len(gaps.ends) - launched, gaps.ends, gaps.starts)
    returned = pd.Series(called, index=gaps.ends)
    apart = len(silent.starts) // num_steps
    starts = silent.starts[::apart][:num_steps]
    host = _host.Host(returned, {}, EMPTY, Covered.of(silent), NONE, NONE, np.zeros(0, dtype=object))
    steps = Intervals(starts, starts + round(step_ms * MS))
    kept = _host.without_habits(host, gaps, gaps.ends, steps).silent
    return ((kept.ends - kept.starts) / MS).tolist()


def test_what_comes_more_often_than_twice_a_step_is_a_habit():
    assert pauses(silences(*[8.0] * 9), 3) == []
    assert pauses(silences(*[8.0] * 6), 3) == [8.0] * 6


def test_a_pause_is_far_longer_than_the_habits_beside_it():
    assert pauses(silences(40.0, *[9.0] * 6), 3) == [40.0]
    assert pauses(silences(30.0, *[9.0] * 6), 3) == []


def test_what_a_device_waits_for_after_it_was_launched_is_no_habit_of_its_host():
    assert pauses(silences(30.0, *[9.0] * 6), 3, launched=6) == [30.0]


@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0, 10.0])
def test_a_host_that_is_slow_in_everything_makes_no_pauses_and_hides_none(factor: float):
    habits = [3.0, 4.0, 5.0, 4.5, 3.5, 4.2, 3.3]
    assert pauses(silences(*habits, factor=factor), 2) == []
    assert pauses(silences(60.0, *habits, factor=factor), 2) == [60.0 * factor]


def test_a_host_that_is_slow_in_all_of_one_step_makes_no_pauses_in_it():
    habits, slow = [0.5, 2.0, 1.0, 0.9], [1.5, 6.2, 3.4, 3.0]
    assert pauses(silences(*habits, *habits, *habits, *slow, *habits), 5, step_ms=96) == []
    assert pauses(silences(*habits, *habits, *habits, 0.5, 16.0, 1.0, 0.9, *habits), 5, step_ms=96) == [16.0]


@pytest.mark.parametrize("factor", [0.1, 1.0, 100.0])
def test_what_a_pause_is_goes_by_the_step(factor: float):
    lengths = [0.5, 16.0, 1.0, 0.9, 0.5, 2.0, 1.0, 0.9]
    assert pauses(silences(*lengths, factor=factor), 2, step_ms=100 * factor) == [pytest.approx(16.0 * factor)]
    assert pauses(silences(*lengths, factor=factor), 2, step_ms=2_000 * factor) == []


def test_silence_while_the_device_is_busy_is_none():
    silent = silences(40.0, 50.0)
    assert pauses(silent, 2, Intervals(silent.starts[:1], silent.ends[:1])) == [40.0]


def test_silence_after_a_call_that_waited_for_the_device_is_a_pause_and_not_the_call():
    # The device falls idle at 0 when aten::item ends; nothing happens on the host from 1 to 190 ms; it launches at 195.
    call = Intervals(np.array([-5 * MS]), np.array([MS // 100]))
    silent = Intervals(np.array([MS]), np.array([190 * MS]))
    names = np.array(["aten::item"], dtype=object)
    host = _host.Host(
        pd.Series([195 * MS], index=[200 * MS]),
        {causes.BLOCKING: Covered.of(call)},
        EMPTY,
        Covered.of(silent),
        call.starts,
        call.ends,
        names,
    )
    gap = Intervals(np.array([0]), np.array([200 * MS]))
    idle = _host.explain(host, gap, (np.array([200 * MS]), np.array([False])))
    spent = pd.Series(idle.ends - idle.starts).groupby(idle.causes).sum()
    assert spent.to_dict() == {causes.PAUSE: 189 * MS, causes.BLOCKING: 6 * MS, causes.LATENCY: 5 * MS}


def test_what_is_launched_while_a_graph_is_captured_is_missing_nothing():
    """Of 1,000 launches in a row each ran; 100 more were captured, and ran with their graph."""
    rows = [("cudaLaunchKernel", at * 10) for at in range(1000)]
    captured = [("cudaLaunchKernel", 5_003 + 10 * at) for at in range(100)]
    marks = [("cudaStreamBeginCapture_v10000", 5_002), ("cudaStreamEndCapture_v10000", 5_998)]
    called = np.array([at for _, at in rows], dtype=np.int64)

    def ran(*calls: tuple[str, int]) -> float:
        return _host._ran(pd.DataFrame(sorted(calls, key=lambda call: call[1]), columns=["name", "start_ns"]), called)

    assert ran(*rows, *captured, *marks) == 1.0
    assert ran(*rows, *captured) == pytest.approx(1000 / 1100)
