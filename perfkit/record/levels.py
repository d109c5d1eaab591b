"""Levels of detail: the slices of one thread or stream, merged into buckets of 1 us, 2 us, 4 us and so on.

Level 0 is the events themselves, level k has buckets of 2^(k-1) us from moment 0 of the clock on. A slice that is as long as a
bucket of its level stays what it is; shorter ones that start in one bucket become one slice with their count, their summed time
and their kinds. So a screen of n pixels shows at most 2n slices, no merged slice looks like a long operator, and on every level
counts and busy times sum to those of the events. Merging level by level or at once gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from perfkit.core.units import NS_PER_US

Ints = npt.NDArray[np.int64]

MERGED = -1
"""Stands for the name of a slice that has none, because it stands for several events."""
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

    def part(self, first: int, last: int) -> Slices:
        """The rows from `first` to before `last`, which share their memory with these."""
        return Slices(*(getattr(self, field.name)[first:last] for field in fields(self)))


def joined(parts: Sequence[Slices]) -> Slices:
    """Slices one after the other, in memory of their own."""
    empty = np.array([], dtype=np.int64)
    return Slices(*(np.concatenate([empty, *(getattr(part, field.name) for part in parts)]) for field in fields(Slices)))


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
