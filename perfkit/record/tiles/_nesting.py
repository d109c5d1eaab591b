"""Nesting: in which lane of its thread each event lies, so that those of one lane do not overlap.

Where events nest, the depth is how many of them are open; where they overlap otherwise, the first lane that is free. Events come
in order of start, the longer first, in blocks of any size: what is kept between blocks are the events that are open.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MAX_DEPTH = 64
"""Slices of one thread that overlap lie in lanes of their own; what overlaps more shares the last of them."""
_NEVER = np.iinfo(np.int64).min
Lanes = Callable[[Ints, Ints], Ints]
"""Takes the starts and ends of the next block of events and gives the lane of each."""


class _Nested:
    """How many events are open when each begins; `crossed` once two events of one depth overlap."""

    def __init__(self) -> None:
        self.crossed = False
        self._open = np.array([], dtype=np.int64)
        self._last = np.array([], dtype=np.int64)  # the end of the last event of each depth

    def add(self, starts: Ints, ends: Ints) -> Ints:
        """The depths of the next events."""
        known = np.sort(np.concatenate([self._open, np.maximum(ends, starts + 1)]))
        numbers = np.arange(len(starts), dtype=np.int64)
        depth: Ints = len(self._open) + numbers - np.searchsorted(known, starts, side="right")
        self._open = known[np.searchsorted(known, starts[-1:], side="right").sum() :]
        self.crossed = self.crossed or self._overlap(starts, ends, depth)
        return depth

    def _overlap(self, starts: Ints, ends: Ints, depth: Ints) -> bool:
        new = np.full(max(0, int(depth.max(initial=-1)) + 1 - len(self._last)), _NEVER, dtype=np.int64)
        self._last = np.concatenate([self._last, new])
        order = np.argsort(depth, kind="stable")
        depth, starts, ends = depth[order], starts[order], ends[order]
        first = np.concatenate([[True], depth[1:] != depth[:-1]]) if len(depth) else np.array([], dtype=bool)
        before = np.concatenate([[_NEVER], ends[:-1]]) if len(depth) else ends
        before = np.where(first, self._last[depth], before)
        self._last[depth] = ends  # of several the last one stays
        return bool((starts < before).any())


class _FirstFree:
    """The first lane that is free when each event begins."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        self._free: list[int] = []

    def add(self, starts: Ints, ends: Ints) -> Ints:
        """The lanes of the next events."""
        taken, free, lanes = self._taken, self._free, []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while taken and taken[0][0] <= start:
                heapq.heappush(free, heapq.heappop(taken)[1])
            lane = heapq.heappop(free) if free else len(taken)
            heapq.heappush(taken, (max(end, start + 1), lane))
            lanes.append(lane)
        return np.array(lanes, dtype=np.int64)


def nesting(blocks: Iterable[tuple[Ints, Ints]]) -> tuple[Lanes, int]:
    """How the events of a thread, given as blocks of starts and ends, are told apart, and how many lanes there are at the least.

    The function takes the same blocks once more, in the same order.
    """
    nested, deepest = _Nested(), 0
    for starts, ends in blocks:
        deepest = max(deepest, int(nested.add(starts, ends).max(initial=0)))
        if nested.crossed:
            break
    again = _FirstFree().add if nested.crossed else _Nested().add
    return (lambda starts, ends: np.minimum(again(starts, ends), MAX_DEPTH - 1)), deepest + 1


def depths(starts: Ints, ends: Ints) -> Ints:
    """The lane of each event where all of them are there at once."""
    lanes, _ = nesting([(starts, ends)])
    return lanes(starts, ends)
