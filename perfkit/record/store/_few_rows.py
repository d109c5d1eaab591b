"""Few rows: small tables of a run as JSON, which is read before the columnar engine is there. Whole numbers stay whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.schema import Column, Table

FEW_ROWS = 16_384
"""Tables up to this size are read sooner as JSON than the columnar engine is imported."""


def write_rows(frame: pd.DataFrame, path: Path) -> None:
    """Write a small table of a run. Raises ValueError for text that is no Unicode, OSError if it cannot be written."""
    columns = {str(name): _stored(frame[name]) for name in frame.columns}
    path.write_text(json.dumps(columns, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def read_rows(
    path: Path, table: Table, *, columns: Sequence[str] | None = None, ranks: Iterable[int] | None = None
) -> pd.DataFrame:
    """A table that `write_rows` wrote, equal to what it was; or only some `columns`, or only the rows of some `ranks`.

    Raises OSError if the file is gone or damaged.
    """
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        frame = pd.DataFrame({name: _restored(values, table.column(name)) for name, values in stored.items()})
        if ranks is not None:
            frame = frame[frame["rank"].isin(sorted(set(ranks)))].reset_index(drop=True)
        return frame if columns is None else frame[list(columns)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise OSError(f"{path.name} cannot be read: {error}") from error


def _stored(values: pd.Series) -> Any:
    if isinstance(values.dtype, pd.CategoricalDtype):
        return {"texts": [str(text) for text in values.cat.categories.tolist()], "codes": values.cat.codes.tolist()}
    known = values.notna().to_numpy()
    return values.tolist() if known.all() else [value if good else None for value, good in zip(values.tolist(), known, strict=True)]


def _restored(values: Any, column: Column) -> pd.Series:
    if column.dtype == "text":
        texts = pd.Index(values["texts"], dtype=None if values["texts"] else "object")
        return pd.Series(pd.Categorical.from_codes(np.array(values["codes"], dtype=np.int64), categories=texts))
    if column.dtype == "float":
        return pd.Series(np.array(values, dtype=np.float64))
    if column.dtype == "int" and not column.nullable:
        return pd.Series(np.array(values, dtype=np.int64))
    mask = np.array([value is None for value in values], dtype=bool)
    if column.dtype == "flag":
        return pd.Series(pd.arrays.BooleanArray(np.array([bool(value) for value in values], dtype=bool), mask))
    return pd.Series(pd.arrays.IntegerArray(np.array([value or 0 for value in values], dtype=np.int64), mask))
