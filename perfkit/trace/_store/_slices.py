"""Slices: the levels of detail of one thread as a Parquet file, of which a window reads a few blocks, and keeps them for the next.

A block is a run of rows of one level. Asking the file for rows by value costs 6 ms of processor time, by place half of that, so the
place of every block is written beside the file, and blocks that were read stay in memory up to a limit: a timeline that is moved
asks for almost the same again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfkit.trace._levels import Slices, reach
from perfkit.units import MIB

if TYPE_CHECKING:
    import polars as pl
else:
    from perfkit.trace._store._polars import pl

SLICES_PER_GROUP = 16_384
"""Rows of a row group, and at most of a block: the least that a window reads of a level."""
MAX_KEPT_BYTES = 48 * MIB
_COLUMNS = tuple(field.name for field in fields(Slices))
_ROW_BYTES = 8 * len(_COLUMNS)


class Block(NamedTuple):
    """`num_rows` rows from row `first` of a file on: all of `level`, starting from `start_ns` on, none beyond `reach_ns`."""

    level: int
    first: int
    num_rows: int
    start_ns: int
    reach_ns: int


def write_slices(levels: Mapping[int, Slices], path: Path) -> list[Block]:
    """Write the levels of one thread, the finest first, and give their blocks. Raises OSError if it cannot be written."""
    parts, blocks, first = [], [], 0
    for level in sorted(levels):
        rows = levels[level]
        reached = reach(rows)
        for begin in range(0, len(rows), SLICES_PER_GROUP):
            which = slice(begin, begin + SLICES_PER_GROUP)
            count = len(rows.start_ns[which])
            low, high = int(rows.start_ns[which].min()), int(reached[which].max())
            blocks.append(Block(level, first + begin, count, low, high))
        parts.append(pl.DataFrame({name: getattr(rows, name) for name in _COLUMNS}))
        first += len(rows)
    try:
        pl.concat(parts, rechunk=False).write_parquet(
            path, row_group_size=SLICES_PER_GROUP, compression="zstd", compression_level=1, statistics=False
        )
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from error
    return blocks


class SliceFile:
    """A file of `write_slices` with its blocks; those that were read last are kept, in common for all files of the process."""

    def __init__(self, path: Path, blocks: Sequence[Block]) -> None:
        self._path = path
        self._blocks = blocks

    def read(self, level: int, depths: Sequence[int], start_ns: int, end_ns: int) -> Slices:
        """The slices of a kept level that touch [start_ns, end_ns]. Raises OSError if the file is gone or damaged."""
        wanted = [
            block for block in self._blocks if block.level == level and block.start_ns <= end_ns and block.reach_ns >= start_ns
        ]
        parts = []
        for block in wanted:
            rows = self._block(block)
            inside = np.flatnonzero((rows.start_ns <= end_ns) & (rows.end_ns >= start_ns))
            parts.append(rows.take(inside[np.isin(rows.depth[inside], depths)]))
        if len(parts) == 1:
            return parts[0]
        empty = np.array([], dtype=np.int64)
        return Slices(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in _COLUMNS))

    def _block(self, block: Block) -> Slices:
        key = (id(self), block.first)
        with _LOCK:
            if key in _KEPT:
                _KEPT.move_to_end(key)
                return _KEPT[key][1]
        try:
            frame = pl.scan_parquet(self._path, cache=False).slice(block.first, block.num_rows).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise OSError(f"{self._path.name} cannot be read: {error}") from error
        rows = Slices(*(frame[name].to_numpy() for name in _COLUMNS))
        with _LOCK:
            _KEPT[key] = (self, rows)
            while len(_KEPT) > 1 and sum(len(kept) for _, kept in _KEPT.values()) * _ROW_BYTES > MAX_KEPT_BYTES:
                _KEPT.popitem(last=False)
        return rows


_KEPT: OrderedDict[tuple[int, int], tuple[SliceFile, Slices]] = OrderedDict()
"""Blocks by file and place; each holds its file, so that no other file gets the same identity meanwhile."""
_LOCK = Lock()
