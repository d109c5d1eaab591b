"""Time order: the events of every thread of a rank in order of start, however many they are, in blocks that fit in memory.

Events come in any order, are sorted in parts as they come, and parts are merged as they are read: of each part only those rows are
in memory that may be next. Most traces are almost in order, so that this is one part at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perfkit.record.tiles._scatter import PART_ROWS, Scatter

Ints = npt.NDArray[np.int64]

STEP_ROWS = 16_384
"""Rows that are read of a part at a time."""


class TimeOrder:
    """Add events to threads, then read one thread after another, as often as needed.

    An event is `width` numbers, the start first and the duration second. Those of one start come with the longest first, those of
    one start and duration as they were added.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._scatter = Scatter(width, _sorted)

    def add(self, threads: Ints, columns: list[Ints]) -> None:
        """Add events, given column by column, to the thread of each."""
        self._scatter.add(threads, columns)

    def blocks(self, thread: int) -> Iterator[Ints]:
        """The events of a thread in order, `width` x rows, all events of one start in one block."""
        parts = self._scatter.parts(thread)
        steps = sorted(
            (int(part.rows(first, first + 1)[0, 0]), number, first)
            for number, part in enumerate(parts)
            for first in range(0, part.num_rows, STEP_ROWS)
        )
        pool: list[Ints] = []
        size, enough = 0, PART_ROWS
        for at, (_, number, first) in enumerate(steps):
            rows = parts[number].rows(first, first + STEP_ROWS)
            pool.append(np.concatenate([rows, np.full((1, rows.shape[1]), number, dtype=np.int64)]))
            size += rows.shape[1]
            if at + 1 == len(steps):
                yield _merged(pool)[: self._width]
            elif size >= enough:
                whole = _merged(pool)
                ready = int(np.searchsorted(whole[0], steps[at + 1][0]))
                if ready:
                    yield whole[: self._width, :ready]
                pool, size = [whole[:, ready:].copy()], whole.shape[1] - ready
                enough = PART_ROWS + 2 * size  # where many parts overlap they are not sorted again for every step


def _sorted(rows: Ints) -> Ints:
    """Events by start, the longer first; as they came where both are equal."""
    return rows if _ascending(rows[0]) else rows[:, np.lexsort((-rows[1], rows[0]))]


def _merged(pool: list[Ints]) -> Ints:
    """The same for sorted parts, whose numbers are the last row."""
    rows = np.concatenate(pool, axis=1)
    return rows if _ascending(rows[0]) else rows[:, np.lexsort((rows[-1], -rows[1], rows[0]))]


def _ascending(starts: Ints) -> bool:
    return bool((starts[1:] > starts[:-1]).all())
