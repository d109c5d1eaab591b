"""Slices: the levels of detail of one thread as a file of blocks, of which a window reads a few, and keeps them for the next.

A block is a run of rows of one level: of each column the least value and the differences from it, in the narrowest type that
holds them, so that a row takes 5 to 12 bytes and a block is read in a tenth of a millisecond. Blocks are written as they come, so
that a file of any size takes little memory; where each lies is written beside the file. Those read last stay in memory up to a
limit: a timeline that is moved asks for almost the same again.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import IO, Any, NamedTuple, Self

import numpy as np

from perfkit.core.units import MIB
from perfkit.record.levels import Ints, Slices, joined

SLICES_PER_BLOCK = 8_192
"""Rows of a block: the least that a window reads of a level."""
MAX_KEPT_BYTES = 32 * MIB
_COLUMNS = tuple(field.name for field in fields(Slices))
_ROW_BYTES = 8 * len(_COLUMNS)
_HEAD = struct.Struct("<2qB")
"""Before the values of a column: the first one (of ascending ones), the least, and the bytes of each."""
_WIDTHS: dict[int, np.dtype[np.unsignedinteger[Any]]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
"""The order of bytes is that of the machine, which is also the one that reads its cache."""


class Block(NamedTuple):
    """`num_rows` rows in `num_bytes` from `place` of a file on: all of `level`, none before `start_ns` or beyond `reach_ns`."""

    level: int
    place: int
    num_bytes: int
    checksum: int
    num_rows: int
    start_ns: int
    reach_ns: int


class SliceWriter:
    """Takes the slices of every level in the order of depth and start, in pieces of any size, and writes them in blocks.

    `blocks` are those of a whole file once the `with` of the writer ends. Raises OSError if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.blocks: list[Block] = []
        self._file: IO[bytes] = path.open("wb")
        self._waiting: dict[int, list[Slices]] = {}
        self._place = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            for level, waiting in self._waiting.items() if kind is None else ():
                rows = joined(waiting)
                if len(rows):
                    self._write(level, rows)
        self.blocks.sort(key=lambda block: (block.level, block.place))

    def put(self, level: int, rows: Slices) -> None:
        """Write the rows that fill a block; the others wait for more."""
        waiting = self._waiting.setdefault(level, [])
        waiting.append(rows)
        if sum(map(len, waiting)) < SLICES_PER_BLOCK:
            return
        whole = joined(waiting)
        end = len(whole) // SLICES_PER_BLOCK * SLICES_PER_BLOCK
        for first in range(0, end, SLICES_PER_BLOCK):
            self._write(level, whole.part(first, first + SLICES_PER_BLOCK))
        self._waiting[level] = [joined([whole.part(end, len(whole))])]

    def _write(self, level: int, rows: Slices) -> None:
        content = _packed(rows)
        self._file.write(content)
        low, high = int(rows.start_ns.min()), int(rows.end_ns.max())
        self.blocks.append(Block(level, self._place, len(content), zlib.crc32(content), len(rows), low, high))
        self._place += len(content)


def _packed(rows: Slices) -> bytes:
    """The columns as bytes. Ends are kept as lengths, busy times as what lengths exceed them by; differences may wrap around."""
    length = rows.end_ns - rows.start_ns
    columns = (np.diff(rows.start_ns), rows.depth, length, length - rows.busy_ns, rows.count, rows.name, rows.kinds)
    parts: list[bytes] = []
    for column in columns:
        least = column.min() if len(column) else np.int64(0)
        values = (column - least).view(np.uint64)
        widest = int(values.max(initial=0))
        width = next((width for width in _WIDTHS if widest < 1 << 8 * width), 8) if widest else 0
        parts.append(_HEAD.pack(int(rows.start_ns[0]), int(least), width))
        if width:
            parts.append(values.astype(_WIDTHS[width]).tobytes())
    return b"".join(parts)


def _unpacked(content: bytes, num_rows: int) -> Slices:
    """What `_packed` packed. Raises ValueError or struct.error for other bytes."""
    place, first, columns = 0, 0, []
    for number in range(len(_COLUMNS)):
        size = num_rows - 1 if number == 0 else num_rows
        first, least, width = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        column = np.full(size, least, dtype=np.int64)
        if width:
            column += np.frombuffer(content, _WIDTHS[width], size, place).astype(np.int64)
            place += size * width
        columns.append(column)
    steps, depth, length, gap, count, name, kinds = columns
    start = np.empty(num_rows, dtype=np.int64)
    start[0] = first
    np.cumsum(steps, out=start[1:])
    start[1:] += first
    return Slices(depth, start, start + length, count, length - gap, name, kinds)


class SliceFile:
    """A file of a `SliceWriter` with its blocks; those that were read last are kept, in common for all files of the process."""

    def __init__(self, path: Path, blocks: Sequence[Block]) -> None:
        self._path = path
        self._blocks: dict[int, list[Block]] = {}
        for block in blocks:
            self._blocks.setdefault(block.level, []).append(block)
        self._bounds: dict[int, Ints] = {
            level: np.array([(block.start_ns, block.reach_ns) for block in found], dtype=np.int64).T
            for level, found in self._blocks.items()
        }

    def read(self, level: int, depths: Sequence[int], start_ns: int, end_ns: int) -> Slices:
        """The slices of a kept level that touch [start_ns, end_ns]. Raises OSError if the file is gone or damaged."""
        starts, reaches = self._bounds[level]
        parts = []
        for rows in self._read(level, np.flatnonzero((starts <= end_ns) & (reaches >= start_ns)).tolist()):
            inside = (rows.start_ns <= end_ns) & (rows.end_ns >= start_ns)
            if rows.depth[0] != rows.depth[-1] or rows.depth[0] not in depths:
                inside &= np.isin(rows.depth, depths)
            parts.append(rows.take(np.flatnonzero(inside)))
        return parts[0] if len(parts) == 1 else joined(parts)

    def _read(self, level: int, numbers: Sequence[int]) -> Iterator[Slices]:
        """Some blocks of a level, one after another."""
        for number in numbers:
            key = (id(self), level, number)
            with _LOCK:
                if key in _KEPT:
                    _KEPT.move_to_end(key)
                kept = _KEPT.get(key)
            yield kept[1] if kept is not None else self._keep(key, self._blocks[level][number])

    def _keep(self, key: tuple[int, int, int], block: Block) -> Slices:
        with self._path.open("rb", buffering=0) as file:
            file.seek(block.place)
            content = file.read(block.num_bytes)
        if zlib.crc32(content) != block.checksum:
            raise OSError(f"{self._path.name} is damaged at byte {block.place}")
        rows = _unpacked(content, block.num_rows)
        with _LOCK:
            _KEPT[key] = (self, rows)
            while len(_KEPT) > 1 and sum(len(kept) for _, kept in _KEPT.values()) * _ROW_BYTES > MAX_KEPT_BYTES:
                _KEPT.popitem(last=False)
        return rows


_KEPT: OrderedDict[tuple[int, int, int], tuple[SliceFile, Slices]] = OrderedDict()
"""Blocks by file and place; each holds its file, so that no other file gets the same identity meanwhile."""
_LOCK = Lock()
