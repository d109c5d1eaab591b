"""Levels of detail lose no event and no ns, whatever is merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.record.levels import MERGED, Slices, coarser, level_for, width_ns
from perfkit.record.tiles._nesting import depths

EPOCH_NS = 1_736_408_883_704_643_212
spans = st.lists(
    st.tuples(st.integers(-(10**7), 10**7), st.integers(0, 10**4) | st.integers(0, 10**7), st.integers(0, 4)),
    min_size=1,
    max_size=60,
)


def made(rows: list[tuple[int, int, int]], offset_ns: int = 0) -> Slices:
    """The events of a thread as level 0."""
    starts, durations, names = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    order = np.lexsort((-durations, starts))
    starts, durations, names = starts[order] + offset_ns, durations[order], names[order]
    depth = depths(starts, starts + durations)
    ones = np.ones(len(rows), dtype=np.int64)
    slices = Slices(depth, starts, starts + durations, ones, durations, names, np.left_shift(1, names % 3))
    return slices.take(np.argsort(depth, kind="stable"))


def listed(rows: Slices) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(rows, name).tolist() for name in Slices.__slots__), strict=True))


@settings(max_examples=80, deadline=None)
@given(spans, st.integers(0, 16))
def test_counts_and_busy_times_of_every_level_are_those_of_the_events(rows, level):
    slices = coarser(made(rows, EPOCH_NS), level)
    assert slices.count.sum() == len(rows)
    assert slices.busy_ns.sum() == sum(duration for _, duration, _ in rows)
    assert slices.start_ns.min() == min(start for start, _, _ in rows) + EPOCH_NS
    assert slices.end_ns.max() == max(start + duration for start, duration, _ in rows) + EPOCH_NS


@settings(max_examples=80, deadline=None)
@given(spans, st.integers(0, 16), st.integers(0, 16))
def test_merging_in_two_goes_is_merging_at_once(rows, finer, level):
    finer, level = sorted((finer, level))
    assert listed(coarser(coarser(made(rows), finer), level)) == listed(coarser(made(rows), level))


@settings(max_examples=80, deadline=None)
@given(spans, st.integers(1, 16))
def test_no_event_as_long_as_a_bucket_is_merged_and_no_bucket_has_two_slices_of_shorter_ones(rows, level):
    slices = coarser(made(rows), level)
    width = width_ns(level)
    assert sum(duration >= width for _, duration, _ in rows) == ((slices.count == 1) & (slices.busy_ns >= width)).sum()
    short = (slices.count > 1) | (slices.busy_ns < width)
    buckets = list(zip(slices.depth[short].tolist(), (slices.start_ns[short] // width).tolist(), strict=True))
    assert len(set(buckets)) == len(buckets)
    assert ((slices.end_ns - slices.start_ns < 2 * width) | (slices.count == 1)).all()
    assert ((slices.name == MERGED) == (slices.count > 1)).all()


@settings(max_examples=80, deadline=None)
@given(spans)
def test_slices_of_one_depth_do_not_overlap(rows):
    slices = made(rows)
    for depth in np.unique(slices.depth):
        at = slices.depth == depth
        assert (slices.end_ns[at][:-1] <= slices.start_ns[at][1:]).all()


def test_a_thousand_events_at_one_moment_have_a_bounded_number_of_lanes():
    slices = made([(0, 5, 0)] * 1000)
    assert len(np.unique(slices.depth)) == 64
    assert coarser(slices, 1).count.sum() == 1000


@pytest.mark.parametrize(("span_ns", "pixels", "width"), [(1000, 2000, 0), (10**9, 1002, 1_024_000), (2**62, 4, None)])
def test_a_bucket_is_at_least_a_pixel_wide(span_ns: int, pixels: int, width: int | None):
    found = width_ns(level_for(span_ns, pixels))
    assert found >= span_ns // pixels or found == 0
    assert width is None or found == width
