"""Pyramid: the levels of detail of one thread, made from its events in one pass after another that never hold more than a block.

Between blocks only the bucket that is open on each level is kept, so that it does not matter where a block ends. Events are told
apart by depth first, then counted on every level, then merged into those levels that are worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.record.levels import MAX_LEVEL, Ints, Slices, coarser, joined, width_ns
from perfkit.record.tiles._nesting import nesting
from perfkit.record.tiles._scatter import Scatter

Put = Callable[[int, Slices], None]
"""Takes the next slices of a level, in the order of depth and start."""


@dataclass(slots=True)
class Total:
    """What lies in one depth of a thread: `count` events of `busy_ns` in all."""

    depth: int
    count: int
    busy_ns: int
    start_ns: int
    end_ns: int


def pyramid(blocks: Callable[[], Iterable[Ints]], put: Put) -> tuple[list[Total], list[int]]:
    """Make the slices of a thread from `blocks` of events (start, duration, name, kinds) in the order of `TimeOrder`.

    `put` gets the events as level 0, and each level with at most half as many slices as the one kept before. Gives the depths and
    the levels.
    """
    in_order = _by_depth(blocks)
    totals: dict[int, Total] = {}
    counts = np.zeros(MAX_LEVEL + 1, dtype=np.int64)

    def count(level: int, rows: Slices) -> None:
        counts[level] += len(rows)

    cascade = Cascade(range(1, MAX_LEVEL + 1), count)
    for rows in in_order():
        _add_up(totals, rows)
        put(0, rows)
        count(0, rows)
        cascade.add(rows)
    cascade.end()
    levels = _worth_keeping(counts.tolist(), len(totals))
    cascade = Cascade(levels[1:], put)
    for rows in in_order():
        cascade.add(rows)
    cascade.end()
    return list(totals.values()), levels


def _by_depth(blocks: Callable[[], Iterable[Ints]]) -> Callable[[], Iterator[Slices]]:
    """The events in the order of depth and start, as often as needed; a thread without overlaps is in that order already."""
    lanes, num_lanes = nesting((rows[0], rows[0] + rows[1]) for rows in blocks())
    if num_lanes == 1:
        return lambda: (_slices(rows, 0) for rows in blocks())
    depths = Scatter(4)
    for rows in blocks():
        depths.add(lanes(rows[0], rows[0] + rows[1]), list(rows))
    return lambda: (_slices(rows, depth) for depth in depths.groups() for rows in depths.pieces(depth))


def _slices(rows: Ints, depth: int) -> Slices:
    starts, durations, names, kinds = rows
    count = len(starts)
    return Slices(np.full(count, depth, np.int64), starts, starts + durations, np.ones(count, np.int64), durations, names, kinds)


def _add_up(totals: dict[int, Total], rows: Slices) -> None:
    depth, start_ns, end_ns = int(rows.depth[0]), int(rows.start_ns[0]), int(rows.end_ns.max())
    total = totals.setdefault(depth, Total(depth, 0, 0, start_ns, end_ns))
    total.count += len(rows)
    total.busy_ns += int(rows.busy_ns.sum())
    total.end_ns = max(total.end_ns, end_ns)


def _worth_keeping(counts: Sequence[int], num_depths: int) -> list[int]:
    """The levels that shrink by half, until every depth is one slice."""
    kept = [0]
    for level in range(1, MAX_LEVEL + 1):
        if counts[level - 1] <= num_depths:
            break
        if 2 * counts[level] <= counts[kept[-1]]:
            kept.append(level)
    return kept


class Cascade:
    """Merges slices of level 0 into some levels, each from the one before: `put` gets those that no later slice can change.

    They come in the order of depth and start, in pieces of any size.
    """

    def __init__(self, levels: Sequence[int], put: Put) -> None:
        self._levels, self._put = levels, put
        self._open: dict[int, Slices] = {}

    def add(self, rows: Slices) -> None:
        """The next slices; those in the last bucket of each level wait for more."""
        for level in self._levels:
            if not len(rows):
                return
            rows = self._merged(level, rows)
            bucket = rows.start_ns // width_ns(level)
            ready = int(np.argmax((bucket == bucket[-1]) & (rows.depth == rows.depth[-1])))
            self._open[level] = joined([rows.part(ready, len(rows))])
            rows = rows.part(0, ready)
            if ready:
                self._put(level, rows)

    def end(self) -> None:
        """No more slices come: those that wait are put."""
        rows = joined([])
        for level in self._levels:
            rows = self._merged(level, rows)
            if len(rows):
                self._put(level, rows)

    def _merged(self, level: int, rows: Slices) -> Slices:
        waiting = self._open.pop(level, None)
        return coarser(rows if waiting is None else joined([waiting, rows]), level)
