"""Paint: one cause for every moment of a timeline, from intervals that lie over one another.

Intervals are half-open [start_ns, end_ns) in int64 ns. Of several in one layer the one that began first has the moment; of several
layers the first one. So pieces never overlap, and sum to the window exactly. Costs one sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.record.overlap import Intervals, distinct

Ints = npt.NDArray[np.int64]
NOTHING = -1


@dataclass(frozen=True, slots=True)
class Layer:
    """Disjoint intervals in order, each with the row (of whatever table) that it is a part of."""

    starts: Ints
    ends: Ints
    rows: Ints


@dataclass(frozen=True, slots=True)
class Pieces:
    """A window cut into pieces in order: which `layer` has each (NOTHING: none) and by which of its `rows`."""

    starts: Ints
    ends: Ints
    layers: Ints
    rows: Ints


def layer(starts: Ints, ends: Ints, rows: Ints | None = None) -> Layer:
    """The intervals without what an earlier one of them covers; empty ones are left out."""
    numbers = np.arange(len(starts), dtype=np.int64) if rows is None else rows
    order = np.lexsort((ends, starts))
    begin, end, numbers = starts[order], ends[order], numbers[order]
    covered = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    begin = np.maximum(begin, covered)
    keep = begin < end
    return Layer(begin[keep], end[keep], numbers[keep])


def paint(layers: list[Layer], window: tuple[int, int]) -> Pieces:
    """The window with every moment given to the first layer that has it."""
    inside = [_inside(each, window) for each in layers]
    edges = [np.array(window, dtype=np.int64), *(each.starts for each in inside), *(each.ends for each in inside)]
    points = distinct(np.clip(np.concatenate(edges), *window))
    starts, ends = points[:-1], points[1:]
    found, rows = np.full(len(starts), NOTHING, dtype=np.int64), np.full(len(starts), NOTHING, dtype=np.int64)
    for number, each in enumerate(inside):
        at = np.searchsorted(each.starts, starts, side="right") - 1
        free = (at >= 0) & (found == NOTHING)
        free[free] = starts[free] < each.ends[at[free]]
        found[free], rows[free] = number, each.rows[at[free]]
    return Pieces(starts, ends, found, rows)


def _inside(each: Layer, window: tuple[int, int]) -> Layer:
    """The intervals of a layer that a window touches."""
    first, last = np.searchsorted(each.ends, window[0], side="right"), np.searchsorted(each.starts, window[1], side="left")
    return Layer(each.starts[first:last], each.ends[first:last], each.rows[first:last])


@dataclass(frozen=True, slots=True)
class Covered:
    """Disjoint intervals in order, with what is covered before each of them (and in all), in ns: added up once, asked often."""

    starts: Ints
    ends: Ints
    before: Ints

    @classmethod
    def of(cls, busy: Intervals) -> Covered:
        """Those of `busy`."""
        return cls(busy.starts, busy.ends, np.concatenate([[0], np.cumsum(busy.ends - busy.starts)]))

    def until(self, moments: Ints) -> Ints:
        """How much of them lies before each moment, in ns."""
        if not len(self.starts):
            return np.zeros(len(moments), dtype=np.int64)
        at = np.searchsorted(self.starts, moments, side="right")
        running = np.where(at > 0, np.maximum(0, self.ends[at - 1] - moments), 0)
        return self.before[at] - running

    def within(self, starts: Ints, ends: Ints) -> Ints:
        """How much of them lies in each [start, end), in ns."""
        return self.until(ends) - self.until(starts)


def without(busy: Intervals, other: Intervals) -> Intervals:
    """The part of `busy` that `other` does not cover."""
    if not len(busy.starts) or not len(other.starts):
        return busy
    points = distinct(np.concatenate([busy.starts, busy.ends, other.starts, other.ends]))
    begin, end = points[:-1], points[1:]
    inside = _covers(busy, begin) & ~_covers(other, begin)
    return Intervals(begin[inside], end[inside])


def _covers(intervals: Intervals, moments: Ints) -> npt.NDArray[np.bool_]:
    at = np.searchsorted(intervals.starts, moments, side="right") - 1
    covered: npt.NDArray[np.bool_] = (at >= 0) & (moments < intervals.ends[at.clip(min=0)])
    return covered


def shared(total: int, weights: Ints) -> Ints:
    """`total` (ns) shared out by weights of at least 0 as whole ns that sum to it; the largest remainders get what is left over.

    Raises ValueError if there is no weight to share by.
    """
    whole = int(weights.sum())
    if whole <= 0:
        raise ValueError("nothing to share by")
    exact = [total * weight for weight in weights.tolist()]
    parts = np.array([value // whole for value in exact], dtype=np.int64)
    left = total - int(parts.sum())
    if left:
        rest = np.array([value % whole for value in exact], dtype=object)
        parts[np.argsort(-rest, kind="stable")[:left]] += 1
    return parts
