"""Events of one lane never overlap, wherever the blocks end in which they come."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.record.tiles._nesting import MAX_DEPTH, depths, nesting

spans = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 8) | st.integers(0, 60)), min_size=1, max_size=40)


def ordered(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(rows, key=lambda row: (row[0], -row[1]))
    starts = np.array([start for start, _ in rows])
    return starts, starts + np.array([duration for _, duration in rows])


def in_blocks(starts: np.ndarray, ends: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(starts[at : at + size], ends[at : at + size]) for at in range(0, len(starts), size)]


@settings(max_examples=80, deadline=None)
@given(spans)
def test_events_of_one_lane_do_not_overlap(rows):
    starts, ends = ordered(rows)
    found = depths(starts, ends)
    for lane in np.unique(found):
        assert (ends[found == lane][:-1] <= starts[found == lane][1:]).all()


@settings(max_examples=80, deadline=None)
@given(spans, st.integers(1, 7))
def test_it_does_not_matter_where_a_block_ends(rows, size):
    starts, ends = ordered(rows)
    blocks = in_blocks(starts, ends, size)
    lanes, num_lanes = nesting(iter(blocks))
    found = np.concatenate([lanes(*block) for block in blocks])
    assert found.tolist() == depths(starts, ends).tolist()
    assert (num_lanes == 1) == (found == 0).all()


def test_nested_calls_lie_one_below_the_other():
    starts, ends = np.array([0, 0, 10, 20, 50, 60]), np.array([100, 40, 30, 25, 100, 70])
    assert depths(starts, ends).tolist() == [0, 1, 2, 3, 1, 2]


def test_spans_that_overlap_without_nesting_take_the_first_free_lane():
    assert depths(np.array([0, 5, 10, 12]), np.array([10, 15, 20, 14])).tolist() == [0, 1, 0, 2]


def test_events_that_follow_one_another_share_a_lane():
    assert depths(np.array([0, 5, 5, 9]), np.array([5, 5, 9, 9])).max() <= 1
    assert depths(np.array([0, 5, 9]), np.array([5, 9, 10])).tolist() == [0, 0, 0]


def test_a_thousand_events_at_one_moment_have_a_bounded_number_of_lanes():
    starts = np.zeros(1000, dtype=np.int64)
    assert depths(starts, starts + 5).max() == MAX_DEPTH - 1
