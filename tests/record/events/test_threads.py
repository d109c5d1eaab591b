"""Threads: hand-overs between threads of the host, and calls that waited for the device."""

from __future__ import annotations

import pandas as pd

from perfkit.record.events.threads import HostEvents, device_waits, handovers


def host(*rows: tuple[str, str, str, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["name", "kind", "thread", "start_ns", "duration_ns"])


def events(*rows: tuple[str, str, str, int, int]) -> HostEvents:
    return HostEvents(host(*rows))


def given(*rows: tuple[str, str, str, int, int]) -> list[tuple[object, ...]]:
    frame = handovers(events(*rows).working_times(["main", "autograd"])).sort_values("taken_ns")
    return list(frame[["giver", "given_ns", "taker", "taken_ns"]].itertuples(index=False, name=None))


FORWARD = ("aten::mm", "operator", "main", 0, 10)
BACKWARD = ("autograd::engine", "operator", "autograd", 20, 30)
OPTIMIZER = ("Optimizer.step", "operator", "main", 60, 5)


def test_a_thread_hands_over_to_the_one_that_goes_on_and_gets_it_back():
    assert given(FORWARD, BACKWARD, OPTIMIZER) == [("main", 10, "autograd", 20), ("autograd", 50, "main", 60)]


def test_marks_and_stacks_that_cover_the_work_of_others_are_no_work_of_their_thread():
    cover = [
        ("backward", "mark", "main", 5, 50),
        ("run_backward", "python", "main", 5, 50),
        ("ProfilerStep#3", "operator", "main", 0, 90),
    ]
    assert given(*cover, FORWARD, BACKWARD, OPTIMIZER) == given(FORWARD, BACKWARD, OPTIMIZER)


def test_threads_that_work_at_the_same_time_hand_nothing_over():
    assert given(("a", "operator", "main", 0, 100), ("b", "operator", "autograd", 10, 20)) == []


def test_a_pause_of_one_thread_is_its_own():
    assert given(FORWARD, OPTIMIZER) == []


KERNELS = pd.DataFrame({"kind": ["computing", "copy"], "start_ns": [0, 40], "duration_ns": [30, 20]})


def launched(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame({"thread": "main", "launch_ns": [0, 5], "launch_duration_ns": [1, 1], **columns}).astype(
        {"launch_ns": "Int64", "launch_duration_ns": "Int64"}
    )


def test_a_synchronising_call_waits_for_what_ends_while_it_runs():
    calls = events(("cudaStreamSynchronize", "call", "main", 10, 55), ("cudaStreamSynchronize", "call", "main", 70, 5))
    waits = device_waits(calls, launched(), KERNELS)
    assert waits[["thread", "end_ns", "kernel"]].to_numpy().tolist() == [["main", 65, 1]]


def test_a_copy_whose_call_returns_after_it_has_ended_was_waited_for():
    rows = launched(launch_duration_ns=[1, 60])
    waits = device_waits(events(("cudaMemcpyAsync", "call", "main", 5, 60)), rows, KERNELS)
    assert waits[["end_ns", "kernel"]].to_numpy().tolist() == [[65, 1]]


def test_a_call_that_only_asks_waits_for_nothing():
    assert device_waits(events(("cudaEventQuery", "call", "main", 10, 55)), launched(), KERNELS).empty
