"""Spool: frames in order, of which those beyond a few MiB wait in a temporary file, so that memory does not grow with the input.

The file has no name and disappears with the spool. Where none can be written, the frames stay in memory.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pandas as pd

from perfkit.core import settings
from perfkit.core.units import MIB

_MOST_BYTES = 2 * MIB
_SHARE = 32
"""A spool may hold this part of the memory limit: a reader has several, and copies of what it works on."""


class Spool:
    """Append frames, then iterate over them, as often as needed and in any thread. `len` is the number of rows."""

    def __init__(self) -> None:
        self._limit_bytes = min(_MOST_BYTES, settings.memory_limit_bytes() // _SHARE)
        self._frames: list[pd.DataFrame] = []
        self._bytes = 0
        self._rows = 0
        self._file: IO[bytes] | None = None
        self._spilled: list[tuple[int, int]] = []  # offset and size of each frame in the file

    def append(self, frame: pd.DataFrame) -> None:
        """Add a frame, which must not change afterwards."""
        self._frames.append(frame)
        self._rows += len(frame)
        self._bytes += sum(values.nbytes for _, values in frame.items())
        if self._bytes > self._limit_bytes:
            self._spill()

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for offset, size in self._spilled:
            yield pickle.loads(os.pread(self._file.fileno(), size, offset))  # type: ignore[union-attr]  # it was written
        yield from self._frames

    @property
    def is_spilled(self) -> bool:
        """Whether some of the frames are not in memory."""
        return bool(self._spilled)

    def __getstate__(self) -> list[pd.DataFrame]:
        return list(self)

    def __setstate__(self, frames: list[pd.DataFrame]) -> None:
        self.__init__()  # type: ignore[misc]  # as if new
        for frame in frames:
            self.append(frame)

    def _spill(self) -> None:
        """Write what is in memory to the file; if that fails, keep it, and try again when as much has come."""
        written: list[tuple[int, int]] = []
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="perfkit-")  # noqa: SIM115  (closed with the spool)
            offset = self._file.seek(0, os.SEEK_END)
            for frame in self._frames:
                size = self._file.write(_packed(frame))
                written.append((offset, size))
                offset += size
            self._file.flush()
        except OSError:
            self._limit_bytes *= 2
            return
        self._spilled += written
        self._frames.clear()
        self._bytes = 0


def _packed(frame: Any) -> bytes:
    return pickle.dumps(frame, protocol=pickle.HIGHEST_PROTOCOL)
