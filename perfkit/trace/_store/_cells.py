"""Cells: text as exact columns. Numbers are parsed from their decimal text, never through float.

Epoch times in us have 19 digits and float64 keeps 0.25 us there. What does not parse is null and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import polars as pl

from perfkit.units import NS_PER_MS, NS_PER_US, decimal_to_ns

Cell = Literal["text", "label", "int", "float", "us", "ms", "ns"]
"""How a cell is read: text, text that repeats (as categories), a whole number, a float, or a decimal time in us, ms or ns that
becomes int64 ns."""

NULLS = ("", "N/A", "NA", "n/a", "nan", "NaN", "None", "null", "-")
_NS_PER_UNIT = {"us": NS_PER_US, "ms": NS_PER_MS, "ns": 1}
_FRACTION_DIGITS = {"us": 3, "ms": 6, "ns": 0}


def times_ns(texts: Sequence[bytes], cell: Literal["us", "ms", "ns"]) -> pd.Series:
    """Decimal times as nullable int64 ns, one a text; quotes around a number are ignored, what is no number is null."""
    joined = b"\n".join(texts).decode("utf-8", "replace")
    text = pl.Series([joined] if texts else [], dtype=pl.String).str.split("\n").explode()
    if len(text) != len(texts):  # one of them is no number and has lines of its own
        text = pl.Series([bytes(value).decode("utf-8", "replace") for value in texts], dtype=pl.String)
    return nullable(_times(cleaned(text.str.strip_chars('"')), cell)[0])


def cleaned(text: pl.Series) -> pl.Series:
    """Text without spaces around it, null where it stands for nothing."""
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(NULLS)), None)


def cleaned_labels(text: pl.Series) -> pl.Series:
    """Text that repeats, cleaned once a distinct value, as an Enum in ascending order."""
    raw = text.unique().drop_nulls()
    clean = cleaned(raw)
    known = clean.unique().drop_nulls().sort()
    codes = text.cast(pl.Enum(raw)).to_physical().cast(pl.Int64).fill_null(len(raw))
    places = clean.cast(pl.Enum(known)).to_physical().cast(pl.Int64).append(pl.Series([None], dtype=pl.Int64))
    return known.cast(pl.Enum(known)).gather(places.gather(codes)).alias(text.name)


def no_values(rows: int, cell: Cell) -> pd.Series:
    """A column of a file that lacks it: all null."""
    dtype: pl.DataType = {"label": pl.Enum([]), "text": pl.String(), "float": pl.Float64()}.get(cell, pl.Int64())
    return joined([pl.Series([None], dtype=dtype).new_from_index(0, rows)], cell)


def parse(text: pl.Series, cell: Cell) -> tuple[pl.Series, int]:
    """The cells as values, and how many were neither null nor a value."""
    if cell in ("label", "text"):
        return text, 0
    if cell == "float":
        values = text.cast(pl.Float64, strict=False)
        finite = values.is_finite().fill_null(False)
        return values.set(~finite, None), int((text.is_not_null() & ~finite).sum())
    if cell == "int":
        whole = text.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
        return whole, int((text.is_not_null() & whole.is_null()).sum())
    return _times(text, cell)  # type: ignore[arg-type]  # the three that are left are times


def joined(pieces: list[pl.Series], cell: Cell) -> pd.Series:
    """The values of all blocks as pandas keeps them; the pieces are used up."""
    if cell == "label":
        return _joined_labels(pieces)
    values = pl.concat(pieces)
    pieces.clear()
    if cell == "text":
        return _shared_text(values)
    return pd.Series(values.to_numpy(), dtype="float64") if cell == "float" else nullable(values)


def _joined_labels(pieces: list[pl.Series]) -> pd.Series:
    """Enums of blocks as categories in ascending order."""
    texts = [piece.dtype.categories.to_list() if isinstance(piece.dtype, pl.Enum) else [] for piece in pieces]
    known = sorted({text for block in texts for text in block})
    place = {text: index for index, text in enumerate(known)}
    codes = [
        np.array([*(place[text] for text in block), -1], dtype=np.int32)[piece.to_physical().cast(pl.Int64).fill_null(len(block))]
        for block, piece in zip(texts, pieces, strict=True)
    ]
    return pd.Series(
        pd.Categorical.from_codes(np.concatenate(codes), categories=pd.Index(known, dtype=None if known else "object"))
    )


def _shared_text(text: pl.Series) -> pd.Series:
    """Text that repeats, as one object a distinct value: names of millions of kernels are a few hundred texts."""
    values = text.unique().drop_nulls()
    codes = text.cast(pl.Enum(values)).to_physical().cast(pl.Int64).fill_null(len(values)).to_numpy()
    return pd.Series(np.array([*values.to_list(), None], dtype=object)[codes], dtype="object")


def _times(text: pl.Series, cell: Literal["us", "ms", "ns"]) -> tuple[pl.Series, int]:
    """Decimal text to ns: the digits of a decimal number, rounded half to even; what polars does not read goes through Decimal."""
    ns = text.cast(pl.Decimal(38, _FRACTION_DIGITS[cell]), strict=False).to_physical().cast(pl.Int64, strict=False)
    rest = text.is_not_null() & ns.is_null()
    bad = 0
    if rest.any():
        values = ns.to_list()
        for index in rest.arg_true():
            values[index] = _exact_ns(text[index], _NS_PER_UNIT[cell])
            bad += values[index] is None
        ns = pl.Series(values, dtype=pl.Int64)
    return ns, bad


def _exact_ns(text: str, ns_per_unit: int) -> int | None:
    try:
        ns = decimal_to_ns(text, ns_per_unit)
    except (ValueError, ArithmeticError):
        return None
    return ns if abs(ns) < 2**63 else None


def nullable(values: pl.Series) -> pd.Series:
    """Whole numbers as pandas keeps them with nulls."""
    mask = values.is_null().to_numpy()
    numbers = values.fill_null(0).to_numpy()
    return pd.Series(pd.arrays.IntegerArray(numbers.copy(), mask.copy()))


def categories(values: pl.Series) -> pd.Series:
    """An Enum as pandas categories."""
    texts = values.dtype.categories.to_list() if isinstance(values.dtype, pl.Enum) else []
    codes = values.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype=None if texts else "object")))
