"""Scatter: rows of whole numbers sorted into groups as they come, of which those beyond a few MiB wait in a temporary file.

The file has no name and disappears with the groups. Where none can be written, the rows stay in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from perfkit.core import settings
from perfkit.core.units import MIB

Ints = npt.NDArray[np.int64]
Order = Callable[[Ints], Ints]

PART_ROWS = 65_536
"""Rows that are read from the file at a time."""
_MOST_BYTES = 16 * MIB
_SHARE = 16
"""The rows in memory may take this part of the memory limit."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a group, column by column: `content` if they are in memory, else from byte `place` of a file on."""

    num_rows: int
    width: int
    content: Ints | None = None
    file: IO[bytes] | None = None
    place: int = 0

    def rows(self, first: int, last: int) -> Ints:
        """The rows from `first` to before `last`, `width` x rows."""
        if self.content is not None:
            return self.content[:, first:last]
        assert self.file is not None
        count = min(last, self.num_rows) - first
        columns = [
            os.pread(self.file.fileno(), 8 * count, self.place + 8 * (number * self.num_rows + first))
            for number in range(self.width)
        ]
        rows: Ints = np.frombuffer(b"".join(columns), dtype=np.int64).reshape(self.width, count)
        return rows


class Scatter:
    """Add rows to groups, then read one group after another, as often as needed. A row is `width` numbers.

    With `order` the rows of every part of a group are put in that order before they wait.
    """

    def __init__(self, width: int, order: Order | None = None) -> None:
        self._width = width
        self._order: Order = order or (lambda rows: rows)
        self._limit_bytes = min(_MOST_BYTES, settings.memory_limit_bytes() // _SHARE)
        self._ready: dict[int, list[Ints]] = {}
        self._written: dict[int, list[Part]] = {}
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, groups: Ints, columns: list[Ints]) -> None:
        """Add rows, given column by column, to the group of each."""
        if not len(groups):
            return
        order = np.argsort(groups, kind="stable")
        found, firsts = np.unique(groups[order], return_index=True)
        rows = np.stack([column[order] for column in columns])
        for group, part in zip(found.tolist(), np.split(rows, firsts[1:], axis=1), strict=True):
            self._ready.setdefault(group, []).append(np.ascontiguousarray(part))
        self._bytes += rows.nbytes
        if self._bytes > self._limit_bytes:
            self._spill()

    def groups(self) -> list[int]:
        """The groups that have rows, ascending."""
        return sorted({*self._written, *self._ready})

    def parts(self, group: int) -> list[Part]:
        """The rows of a group in parts, one after the other as they came."""
        rows = self._ready.get(group)
        waiting = [self._order(np.concatenate(rows, axis=1))] if rows else []
        return [*self._written.get(group, ()), *(Part(content.shape[1], self._width, content) for content in waiting)]

    def pieces(self, group: int) -> Iterator[Ints]:
        """The rows of a group in pieces of at most `PART_ROWS`, `width` x rows."""
        for part in self.parts(group):
            for first in range(0, part.num_rows, PART_ROWS):
                yield part.rows(first, first + PART_ROWS)

    def _spill(self) -> None:
        """Write what is in memory to the file; if that fails, keep it, and try again when as much has come."""
        written: list[tuple[int, Part]] = []
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="perfkit-")  # noqa: SIM115  (closed with the groups)
            place = self._file.seek(0, os.SEEK_END)
            for group, parts in self._ready.items():
                rows = self._order(np.concatenate(parts, axis=1))
                self._file.write(np.ascontiguousarray(rows).data)
                written.append((group, Part(rows.shape[1], self._width, None, self._file, place)))
                place += rows.nbytes
            self._file.flush()
        except OSError:
            self._limit_bytes *= 2
            return
        for group, part in written:
            self._written.setdefault(group, []).append(part)
        self._ready.clear()
        self._bytes = 0
