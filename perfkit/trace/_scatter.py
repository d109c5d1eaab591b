"""Scatter: rows of whole numbers sorted into groups as they come, of which those beyond a few MiB wait in a temporary file.

The file has no name and disappears with the groups. Where none can be written, the rows stay in memory.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO

import numpy as np
import numpy.typing as npt

from perfkit import settings
from perfkit.units import MIB

Ints = npt.NDArray[np.int64]

_MOST_BYTES = 32 * MIB
_SHARE = 16
"""The rows in memory may take this part of the memory limit."""


class Scatter:
    """Add rows to groups, then take one group after another. A row is `width` numbers."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._limit_bytes = min(_MOST_BYTES, settings.memory_limit_bytes() // _SHARE)
        self._ready: dict[int, list[Ints]] = {}
        self._written: dict[int, list[tuple[int, int]]] = {}
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

    def take(self, group: int) -> Ints:
        """The rows of a group in the order in which they came, `width` x rows, which are forgotten here."""
        parts = [self._read(place) for place in self._written.pop(group, ())] + self._ready.pop(group, [])
        return np.concatenate(parts, axis=1) if parts else np.zeros((self._width, 0), dtype=np.int64)

    def _read(self, place: tuple[int, int]) -> Ints:
        assert self._file is not None
        rows: Ints = np.frombuffer(os.pread(self._file.fileno(), place[1], place[0]), dtype=np.int64).reshape(self._width, -1)
        return rows

    def _spill(self) -> None:
        """Write what is in memory to the file; if that fails, keep it, and try again when as much has come."""
        written: list[tuple[int, tuple[int, int]]] = []
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="perfkit-")  # noqa: SIM115  (closed with the groups)
            offset = self._file.seek(0, os.SEEK_END)
            for group, parts in self._ready.items():
                rows = np.concatenate(parts, axis=1)
                self._file.write(rows.tobytes())
                written.append((group, (offset, rows.nbytes)))
                offset += rows.nbytes
            self._file.flush()
        except OSError:
            self._limit_bytes *= 2
            return
        for group, place in written:
            self._written.setdefault(group, []).append(place)
        self._ready.clear()
        self._bytes = 0
