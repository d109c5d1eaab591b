"""Few cells: small tables in which every cell is plain, read without the columnar engine.

Most files of a rank are such, and the engine takes as long to begin with one as to read a thousand rows. What is not plain (quotes,
a row of another length, a cell that is no number) is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.units import KIB, decimal_to_ns
from perfkit.record.listing import File
from perfkit.record.store._cells import NS_PER_UNIT, NULLS, SPACES, Cell

MAX_BYTES = 64 * KIB
_WHOLE, _TIME = re.compile(r"-?\d{1,18}"), re.compile(r"-?\d{1,15}(\.\d{1,20})?")  # sums of floats have all their digits
_FLOAT = re.compile(r"-?\d{1,15}(\.\d{1,20})?([eE][+-]?\d{1,2})?")


def read_plain(
    file: File, columns: Mapping[str, Cell], *, required: Iterable[str] = ()
) -> tuple[list[str], dict[str, list[Any]]] | None:
    """The header of a small file, and the cells of those `columns` that it has, null as None, without rows in which all are null.

    None if the file is larger, lacks one that is `required`, or is not plain.
    """
    rows = _rows(file)
    if rows is None or len(rows) < 2:
        return None
    header = [name.strip() for name in rows[0]]
    wanted = {name: header.index(name) for name in columns if name in header}
    if not any(header) or any(name not in header for name in required) or any(len(row) != len(header) for row in rows):
        return None
    cells: dict[str, list[Any]] = {}
    for name, place in wanted.items():
        texts = [None if (text := row[place].strip(SPACES)) in NULLS else text for row in rows[1:]]
        values = [None if text is None else _value(text, columns[name]) for text in texts]
        if values.count(None) > texts.count(None):
            return None
        cells[name] = values
    filled = [any(value is not None for value in row) for row in zip(*cells.values(), strict=True)]
    return header, cells if all(filled) else {name: _where(values, filled) for name, values in cells.items()}


def series(values: Sequence[Any], cell: Cell) -> pd.Series:
    """The cells of a column as pandas keeps them."""
    if cell == "float":
        return pd.Series(values, dtype="float64")
    if cell == "text":
        return pd.Series(values, dtype="object")
    if cell == "label":
        known = sorted({text for text in values if text is not None})
        place = {text: index for index, text in enumerate(known)} | {None: -1}
        codes = np.array([place[text] for text in values], dtype=np.int64)
        return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype=None if known else "object")))
    missing = np.array([value is None for value in values], dtype=bool)
    return pd.Series(pd.arrays.IntegerArray(np.array([value or 0 for value in values], dtype=np.int64), missing))


def _rows(file: File) -> list[list[str]] | None:
    if not 0 < file.size_bytes <= MAX_BYTES:
        return None
    try:
        text = file.path.read_bytes().decode("ascii").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    is_plain = text[:1] != "\n" and not any(odd in text for odd in '"\r\0')
    return [line.split(",") for line in text.split("\n") if line] if is_plain else None


def _value(text: str, cell: Cell) -> Any:
    """The value of a cell; None if it is not plain."""
    if cell in ("label", "text"):
        return text
    if cell == "int":
        return int(text) if _WHOLE.fullmatch(text) else None
    if cell == "float":
        return float(text) if _FLOAT.fullmatch(text) else None
    ns = decimal_to_ns(text, NS_PER_UNIT[cell]) if _TIME.fullmatch(text) else None
    return ns if ns is None or abs(ns) < 2**63 else None


def _where(values: list[Any], chosen: list[bool]) -> list[Any]:
    return [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]
