"""Parquet: tables of a run as files, of which only what is asked for is read again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfkit.core.schema import Column, Table
from perfkit.record.store._cells import categories, nullable

if TYPE_CHECKING:
    import polars as pl
else:
    from perfkit.record.store._polars import pl

ROWS_PER_GROUP = 131_072
"""Rows of a Parquet row group: the least that is read to get the rows of one rank."""

_TYPES = {"int": "Int64", "float": "Float64", "flag": "Boolean", "text": "Int64"}
"""What holds the nulls of a column; those of text are numbers of texts."""


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of a run as Parquet. Raises ValueError for text that is no Unicode, OSError if it cannot be written."""
    columns = [stored(str(name), frame[name]) for name in frame.columns]
    try:
        pl.DataFrame(columns).write_parquet(path, row_group_size=ROWS_PER_GROUP)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from error


def read_table(
    path: Path, table: Table, *, columns: Sequence[str] | None = None, ranks: Iterable[int] | None = None
) -> pd.DataFrame:
    """A table that `write_table` wrote, equal to what it was; or only some `columns`, or only the rows of some `ranks`.

    Row groups without any of the ranks are not read; a nullable column that the table did not have yet is null. Raises OSError if
    the file is gone or damaged.
    """
    try:
        scan = pl.scan_parquet(path)
        known = set(scan.collect_schema().names())
        later = [column for column in table.columns if column.nullable and column.name not in known]
        if later:
            scan = scan.with_columns(pl.lit(None, dtype=getattr(pl, _TYPES[column.dtype])).alias(column.name) for column in later)
        if ranks is not None:
            scan = scan.filter(pl.col("rank").is_in(sorted(set(ranks))))
        frame = scan.select(list(columns) if columns is not None else pl.all()).collect()
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be read: {error}") from error
    return pd.DataFrame({series.name: _restored(series, table.column(series.name)) for series in frame.get_columns()})


def read_group(path: Path, table: Table, number: int, *, columns: Sequence[str], rank: int) -> pd.DataFrame:
    """The rows of one rank in a row group of a table that `write_table` wrote; some `columns` of them.

    Raises OSError if the file is gone or damaged.
    """
    wanted = list(dict.fromkeys([*columns, "rank"]))
    try:
        scan = pl.scan_parquet(path, cache=False).select(wanted).slice(number * ROWS_PER_GROUP, ROWS_PER_GROUP)
        frame = scan.collect().filter(pl.col("rank") == rank).select(list(columns))
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be read: {error}") from error
    return pd.DataFrame({series.name: _restored(series, table.column(series.name)) for series in frame.get_columns()})


def stored(name: str, values: pd.Series) -> pl.Series:
    """A column of a frame as the engine holds it: text as an Enum, null where it is null."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        texts = [str(text) for text in values.cat.categories.tolist()]
        codes = pl.Series(values.cat.codes.to_numpy(dtype=np.int64))
        known = codes.set(codes < 0, None) if (codes < 0).any() else codes
        return pl.Series(texts, dtype=pl.Enum(texts)).gather(known).alias(name)
    if isinstance(values.dtype, pd.api.extensions.ExtensionDtype):
        flags = isinstance(values.dtype, pd.BooleanDtype)
        filled = values.fillna(False if flags else 0).to_numpy(dtype=bool if flags else np.int64)
        missing = values.isna().to_numpy()
        return pl.Series(name, filled).set(pl.Series(missing), None) if missing.any() else pl.Series(name, filled)
    return pl.Series(name, values.to_numpy())


def _restored(values: pl.Series, column: Column) -> pd.Series:
    if column.dtype == "text":
        return categories(values)
    if column.dtype == "flag":
        flags, mask = values.fill_null(False).to_numpy().copy(), values.is_null().to_numpy().copy()
        return pd.Series(pd.arrays.BooleanArray(flags, mask))
    if column.nullable and column.dtype == "int":
        return nullable(values)
    return pd.Series(values.to_numpy().copy())
