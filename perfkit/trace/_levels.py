"""Levels of detail: the slices of one thread or stream, merged into buckets of 1 us, 2 us, 4 us and so on.

Level 0 is the events themselves, level k has buckets of 2^(k-1) us from moment 0 of the clock on. A slice that is as long as a
bucket of its level stays what it is; shorter ones that start in one bucket become one slice with their count, their summed time
and their kinds. So a screen of n pixels shows at most 2n slices, no merged slice looks like a long operator, and on every level
counts and busy times sum to those of the events. Merging level by level or at once gives the same.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from perfkit.units import NS_PER_US

Ints = npt.NDArray[np.int64]

MERGED = -1
"""Stands for the name of a slice that has none, because it stands for several events."""
MAX_DEPTH = 64
"""Slices of one thread that overlap lie in lanes of their own; what overlaps more shares the last of them."""
MAX_LEVEL = 54
"""Its buckets of 2^53 us hold any time that int64 ns can hold."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices in order of `depth` and `start_ns`: one row an event, or a bucket of `count` > 1 events.

    `busy_ns` is the sum of their durations, `name` a number of theirs or MERGED, `kinds` a set of kinds as bits.
    """

    depth: Ints
    start_ns: Ints
    end_ns: Ints
    count: Ints
    busy_ns: Ints
    name: Ints
    kinds: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Slices:
        """Some of the rows."""
        return Slices(*(getattr(self, field.name)[rows] for field in fields(self)))


def width_ns(level: int) -> int:
    """How wide the buckets of a level are; 0 for the events themselves."""
    return NS_PER_US << (level - 1) if level else 0


def level_for(span_ns: int, pixels: int) -> int:
    """The finest level of which `span_ns` touches at most `pixels` buckets, wherever it begins."""
    pixel_ns = -(-span_ns // max(pixels - 2, 1))
    level = 0 if pixel_ns < NS_PER_US else 1
    while level and level < MAX_LEVEL and width_ns(level) < pixel_ns:
        level += 1
    return level


def events(start_ns: Ints, duration_ns: Ints, name: Ints, kinds: Ints) -> Slices:
    """Level 0 from events in any order: sorted, and told apart by depth where they overlap."""
    order = np.lexsort((-duration_ns, start_ns))
    starts, durations = start_ns[order], duration_ns[order]
    depth = depths(starts, starts + durations)
    inner = np.argsort(depth, kind="stable")
    rows = order[inner]
    starts, durations = starts[inner], durations[inner]
    return Slices(depth[inner], starts, starts + durations, np.ones(len(rows), np.int64), durations, name[rows], kinds[rows])


def depths(starts: Ints, ends: Ints) -> Ints:
    """In which lane each interval lies, so that those of one lane do not overlap; they come by start, the longer first.

    Where intervals nest, the depth is how many of them are open; where they overlap otherwise, the first lane that is free.
    """
    numbers = np.arange(len(starts), dtype=np.int64)
    open_at_start: Ints = numbers - np.searchsorted(np.sort(np.maximum(ends, starts + 1)), starts, side="right")
    if not open_at_start.any():
        return open_at_start
    order = np.argsort(open_at_start, kind="stable")
    same = open_at_start[order][1:] == open_at_start[order][:-1]
    if (same & (starts[order][1:] < ends[order][:-1])).any():
        open_at_start = _first_free(starts, ends)
    return np.minimum(open_at_start, MAX_DEPTH - 1)


def _first_free(starts: Ints, ends: Ints) -> Ints:
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    lanes: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (max(end, start + 1), lane))
        lanes.append(lane)
    return np.array(lanes, dtype=np.int64)


def coarser(rows: Slices, level: int) -> Slices:
    """Slices of a finer level merged into the buckets of `level`."""
    width = width_ns(level)
    if not len(rows) or not width:
        return rows
    at = np.flatnonzero((rows.count > 1) | (rows.end_ns - rows.start_ns < width))
    if not len(at):
        return rows
    bucket, depth = rows.start_ns[at] // width, rows.depth[at]
    first = np.concatenate([[0], 1 + np.flatnonzero((bucket[1:] != bucket[:-1]) | (depth[1:] != depth[:-1]))])
    if len(first) == len(at):
        return rows
    heads = at[first]
    keep = np.ones(len(rows), dtype=bool)
    keep[at] = False
    keep[heads] = True
    merged = rows.take(keep)
    places = (np.cumsum(keep) - 1)[heads]
    merged.count[places] = np.add.reduceat(rows.count[at], first)
    merged.busy_ns[places] = np.add.reduceat(rows.busy_ns[at], first)
    merged.end_ns[places] = np.maximum.reduceat(rows.end_ns[at], first)
    merged.kinds[places] = np.bitwise_or.reduceat(rows.kinds[at], first)
    merged.name[merged.count > 1] = MERGED
    return merged


def reach(rows: Slices) -> Ints:
    """How far any slice up to each one reaches, in its depth: ascending there, so that those that reach a moment are found."""
    reached = rows.end_ns.copy()
    firsts = np.flatnonzero(np.concatenate([[True], rows.depth[1:] != rows.depth[:-1]])) if len(rows) else np.array([], np.int64)
    for begin, end in zip(firsts, [*firsts[1:], len(rows)], strict=True):
        np.maximum.accumulate(reached[begin:end], out=reached[begin:end])
    return reached


def pyramid(rows: Slices) -> dict[int, Slices]:
    """The levels that are worth keeping: the events, and each level with at most half as many slices as the one kept before."""
    kept = {0: rows}
    last = current = rows
    for level in range(1, MAX_LEVEL + 1):
        if len(current) <= len(np.unique(current.depth)):
            break
        current = coarser(current, level)
        if 2 * len(current) <= len(last):
            kept[level] = last = current
    return kept
