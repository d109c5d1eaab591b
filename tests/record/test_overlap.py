"""Overlap of communication and computing on the device."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.record.overlap import Timeline, distinct, merge, overlap_ns, union

KINDS = ("computing", "communication", "copy")
EPOCH_NS = 1_736_408_883_704_643_212

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from(KINDS)), max_size=25)


def kernels(*rows: tuple[int, int, str], offset_ns: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "start_ns": pd.array([start + offset_ns for start, _, _ in rows], dtype="Int64"),
            "duration_ns": pd.array([duration for _, duration, _ in rows], dtype="Int64"),
            "kind": pd.Series([kind for _, _, kind in rows], dtype="object"),
        }
    )


def ticks(rows: list[tuple[int, int, str]], kind: str) -> set[int]:
    """Every ns in which a kernel of the kind runs, counted one by one."""
    return {tick for start, duration, its in rows if its == kind for tick in range(start, start + duration)}


def test_intervals_that_touch_overlap_or_nest_become_one():
    merged = union([0, 5, 7, 20, 30], [5, 10, 8, 25, 30])
    assert list(zip(merged.starts, merged.ends, strict=True)) == [(0, 10), (20, 25)]


def test_empty_and_reversed_intervals_cover_nothing():
    assert union([3, 9], [3, 1]).total_ns == 0
    assert union([], []).total_ns == 0


def test_times_of_the_epoch_stay_exact_to_the_ns():
    rows = kernels((0, 1, "computing"), (3, 1, "communication"), offset_ns=EPOCH_NS)
    time = Timeline(rows).whole()
    assert (time.span_ns, time.computing_ns, time.communication_ns, time.free_ns) == (4, 1, 1, 2)


def test_hidden_communication_is_overlapped_and_the_rest_exposed():
    time = Timeline(kernels((0, 10, "computing"), (5, 10, "communication"), (20, 5, "computing"))).whole()
    assert (time.computing_ns, time.communication_ns, time.overlapped_ns, time.exposed_ns, time.free_ns) == (15, 10, 5, 5, 5)


def test_a_copy_is_free_time_of_the_device_and_not_idle():
    time = Timeline(kernels((0, 10, "computing"), (5, 15, "copy"))).whole()
    assert (time.computing_ns, time.copy_ns, time.free_ns, time.idle_ns) == (10, 10, 10, 0)


def test_no_kernels_take_no_time():
    assert Timeline(kernels()).whole().span_ns == 0


@settings(max_examples=60, deadline=None)
@given(spans, st.integers(0, 80), st.integers(0, 80))
def test_every_window_agrees_with_counting_ns_by_ns(rows, start, length):
    window = set(range(start, start + length))
    computing, communication, copy = (ticks(rows, kind) & window for kind in KINDS)
    time = Timeline(kernels(*rows)).window(start, start + length)
    assert time.computing_ns == len(computing)
    assert time.communication_ns == len(communication)
    assert time.overlapped_ns == len(computing & communication)
    assert time.copy_ns == len(copy - computing - communication)
    assert time.free_ns == len(window - computing - communication)
    assert time.idle_ns == len(window - computing - communication - copy)


@settings(max_examples=60, deadline=None)
@given(spans)
def test_parts_of_the_whole_sum_to_its_span(rows):
    time = Timeline(kernels(*rows)).whole()
    assert time.computing_ns + time.exposed_ns + time.free_ns == time.span_ns
    assert min(time.computing_ns, time.exposed_ns, time.free_ns, time.overlapped_ns, time.idle_ns) >= 0


@settings(max_examples=60, deadline=None)
@given(spans, st.integers(0, 80))
def test_cutting_a_timeline_in_two_loses_nothing(rows, cut):
    timeline = Timeline(kernels(*rows))
    whole, left, right = timeline.window(0, 80), timeline.window(0, cut), timeline.window(cut, 80)
    for name in ("computing_ns", "communication_ns", "overlapped_ns", "copy_ns", "free_ns"):
        assert getattr(left, name) + getattr(right, name) == getattr(whole, name)


@settings(max_examples=60, deadline=None)
@given(spans, spans)
def test_overlap_is_symmetric_and_no_larger_than_either(first, second):
    a, b = (union([row[0] for row in rows], [row[0] + row[1] for row in rows]) for rows in (first, second))
    assert overlap_ns(a, b) == overlap_ns(b, a) <= min(a.total_ns, b.total_ns)
    assert overlap_ns(a, a) == a.total_ns
    assert merge(a, b).total_ns <= a.total_ns + b.total_ns


@settings(max_examples=60, deadline=None)
@given(spans)
def test_the_union_is_sorted_disjoint_and_covers_the_same_ns(rows):
    merged = union([start for start, _, _ in rows], [start + duration for start, duration, _ in rows])
    assert np.all(merged.starts < merged.ends)
    assert np.all(merged.starts[1:] > merged.ends[:-1])
    assert merged.total_ns == len(set().union(*(ticks(rows, kind) for kind in KINDS)))


def test_to_cut_a_window_takes_what_is_in_it_and_not_the_whole_recording():
    starts = np.arange(0, 10_000_000, 10)
    whole = union(starts, starts + 5)
    tracemalloc.start()
    inside = whole.clip(5_000_003, 5_000_123)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(inside.starts), inside.total_ns) == (13, 2 + 11 * 5 + 3)
    assert peak_bytes < whole.starts.nbytes / 1000


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_distinct_times_are_those_of_numpy(times):
    assert distinct(np.array(times, dtype=np.int64)).tolist() == np.unique(np.array(times, dtype=np.int64)).tolist()


@pytest.mark.parametrize("start", [pd.NA, None])
def test_a_kernel_without_a_start_is_on_no_timeline(start):
    rows = kernels((0, 5, "computing"), (5, 5, "computing"))
    rows.loc[1, "start_ns"] = start
    assert Timeline(rows).whole().computing_ns == 5
