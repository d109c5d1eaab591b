"""Slices: the levels of detail of one thread as a Parquet file, of which a window reads a few row groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl

from perfkit.trace._levels import Slices, reach

SLICES_PER_GROUP = 16_384
"""Rows of a row group: the least that a window reads of a level."""


def write_slices(levels: Mapping[int, Slices], path: Path) -> None:
    """Write the levels of one thread, the finest first. Raises OSError if it cannot be written."""
    parts = []
    for level in sorted(levels):
        columns = {field.name: getattr(levels[level], field.name) for field in fields(Slices)}
        parts.append(pl.DataFrame({"level": np.full(len(levels[level]), level), "reach_ns": reach(levels[level])} | columns))
    try:
        pl.concat(parts, rechunk=False).write_parquet(
            path, row_group_size=SLICES_PER_GROUP, compression="zstd", compression_level=1, statistics=True
        )
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from error


def read_slices(path: Path, level: int, depths: Sequence[int], start_ns: int, end_ns: int) -> Slices:
    """The slices of a kept level that may touch [start_ns, end_ns]. Raises OSError if the file is gone or damaged."""
    column = pl.col
    wanted = column("level").eq(level) & column("start_ns").le(end_ns) & column("reach_ns").ge(start_ns)
    try:
        rows = (
            pl.scan_parquet(path, cache=False)
            .filter(wanted & column("depth").is_in(list(depths)))
            .select([field.name for field in fields(Slices)])
            .collect()
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise OSError(f"{path.name} cannot be read: {error}") from error
    return Slices(*(rows[field.name].to_numpy() for field in fields(Slices)))
