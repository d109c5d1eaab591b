"""What is covered of a timeline: counted ns by ns, and added up once for however many questions."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit.explain.ledger._paint import Covered, without
from perfkit.record.overlap import union

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8)


def intervals(rows):
    return union([start for start, _ in rows], [start + length for start, length in rows])


def ticks(rows):
    return {tick for start, length in rows for tick in range(start, start + length)}


@given(spans, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6))
def test_what_is_covered_agrees_with_counting_ns_by_ns(rows, windows):
    starts = np.array([start for start, _ in windows], dtype=np.int64)
    ends = starts + np.array([length for _, length in windows], dtype=np.int64)
    covered = Covered.of(intervals(rows))
    assert covered.until(ends).tolist() == [len(ticks(rows) & set(range(end))) for end in ends.tolist()]
    inside = [len(ticks(rows) & set(range(start, start + length))) for start, length in windows]
    assert covered.within(starts, ends).tolist() == inside


@given(spans, spans)
def test_without_leaves_what_the_other_does_not_cover(rows, others):
    left = without(intervals(rows), intervals(others))
    assert left.total_ns == len(ticks(rows) - ticks(others))


def test_a_question_takes_nothing_of_the_size_of_the_recording():
    starts = np.arange(0, 10_000_000, 10)
    covered = Covered.of(union(starts, starts + 5))
    tracemalloc.start()
    amount = covered.within(np.array([5_000_003]), np.array([5_000_123]))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert amount.tolist() == [2 + 11 * 5 + 3]
    assert peak_bytes < starts.nbytes / 1000
