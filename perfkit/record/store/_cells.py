"""Cells: text as exact columns. Numbers are parsed from their decimal text, never through float.

Epoch times in us have 19 digits and float64 keeps 0.25 us there. What does not parse is null and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.units import NS_PER_MS, NS_PER_US, decimal_to_ns
from perfkit.record.store._decimals import plain_decimals

if TYPE_CHECKING:
    import polars as pl
else:
    from perfkit.record.store._polars import pl

Cell = Literal["text", "label", "int", "float", "us", "ms", "ns"]
"""How a cell is read: text, text that repeats (as categories), a whole number, a float, or a decimal time in us, ms or ns that
becomes int64 ns."""

SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""What the columnar engine takes for space around a text."""
NULLS = ("", "N/A", "NA", "n/a", "nan", "NaN", "None", "null", "-")
NS_PER_UNIT = {"us": NS_PER_US, "ms": NS_PER_MS, "ns": 1}
_FEW = 1000
_FRACTION_DIGITS = {"us": 3, "ms": 6, "ns": 0}


def times_ns(texts: Sequence[bytes], cell: Literal["us", "ms", "ns"]) -> pd.Series:
    """Decimal times as nullable int64 ns, one a text; quotes around a number are ignored, what is no number is null."""
    values, known = exact_ns(texts, cell)
    return pd.Series(pd.arrays.IntegerArray(values, ~known))


def exact_ns(texts: Sequence[bytes], cell: Literal["us", "ms", "ns"]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Decimal times as int64 ns, one a text, and which of them are numbers."""
    values, known = plain_decimals(texts, _FRACTION_DIGITS[cell])
    if not known.all():
        rest = np.flatnonzero(~known)
        odd = [bytes(texts[row]).decode("utf-8", "replace").strip('"') for row in rest.tolist()]
        values[rest], known[rest] = _parsed(odd, cell)
    return values, known


def _parsed(texts: list[str], cell: Literal["us", "ms", "ns"]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """As `exact_ns`; of few different texts each is read alone, which is done before the columnar engine is imported."""
    distinct = set(texts)
    if len(distinct) <= _FEW:
        read = {text: _exact_ns(text, NS_PER_UNIT[cell]) for text in distinct}
        known = np.array([read[text] is not None for text in texts], dtype=bool)
        return np.array([read[text] or 0 for text in texts], dtype=np.int64), known
    values = parse(pl.Series(texts, dtype=pl.String), cell)[0]
    return values.fill_null(0).to_numpy(), values.is_not_null().to_numpy()


def cleaned(text: pl.Series) -> pl.Series:
    """Text without spaces around it, null where it stands for nothing."""
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(NULLS)), None)


def no_values(rows: int, cell: Cell) -> pd.Series:
    """A column of a file that lacks it: all null."""
    dtype: pl.DataType = {"label": pl.Categorical(), "text": pl.Categorical(), "float": pl.Float64()}.get(cell, pl.Int64())
    return joined([pl.Series([None], dtype=dtype).new_from_index(0, rows)], cell)


def parse_all(texts: Mapping[str, pl.Series], columns: Mapping[str, Cell]) -> tuple[dict[str, pl.Series], dict[str, int]]:
    """The cells of columns of numbers as values, and how many were neither null nor a value, by column.

    All are read in one go, since each call costs more than the cells of a small table; columns with an odd cell are read again.
    """
    if not texts:
        return {}, {}
    frame = pl.DataFrame([text.alias(str(at)) for at, text in enumerate(texts.values())])
    found = frame.select(_plain(pl.col(str(at)), columns[name]) for at, name in enumerate(texts))
    values: dict[str, pl.Series] = {}
    bad: dict[str, int] = {}
    for (name, text), plain in zip(texts.items(), found.get_columns(), strict=True):
        values[name] = plain
        if plain.null_count() > text.null_count():
            values[name], bad[name] = parse(text, columns[name])
    return values, bad


def _plain(text: pl.Expr, cell: Cell) -> pl.Expr:
    stripped = text.str.strip_chars()
    if cell == "float":
        values = stripped.cast(pl.Float64, strict=False)
        return pl.when(values.is_finite()).then(values)
    if cell == "int":
        return stripped.cast(pl.Int64, strict=False)
    return stripped.cast(pl.Decimal(38, _FRACTION_DIGITS[cell]), strict=False).to_physical().cast(pl.Int64, strict=False)


def parse(text: pl.Series, cell: Cell) -> tuple[pl.Series, int]:
    """The cells of a column of numbers as values, and how many were neither null nor a value."""
    stripped = text.str.strip_chars()
    if cell == "float":
        values = stripped.cast(pl.Float64, strict=False)
        values = values.set(~values.is_finite().fill_null(True), None)
    elif cell == "int":
        values = stripped.cast(pl.Int64, strict=False)
    else:
        values = stripped.cast(pl.Decimal(38, _FRACTION_DIGITS[cell]), strict=False).to_physical().cast(pl.Int64, strict=False)
    rest = stripped.is_not_null() & values.is_null()
    if rest.any():
        rest &= cleaned(stripped).is_not_null()
    if cell == "float" or not rest.any():
        return values, int(rest.sum())
    odd = stripped.filter(rest)
    if cell == "int":
        again = odd.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
    else:
        again = pl.Series([_exact_ns(one, NS_PER_UNIT[cell]) for one in odd], dtype=pl.Int64)
    return values.scatter(rest.arg_true(), again), again.null_count()


def joined(pieces: list[pl.Series], cell: Cell) -> pd.Series:
    """The values of all blocks as pandas keeps them; the pieces are used up."""
    values = pl.concat(pieces)
    pieces.clear()
    if cell in ("label", "text"):
        labels = _labels(values)
        return labels if cell == "label" else _shared_text(labels)
    return pd.Series(values.to_numpy(), dtype="float64") if cell == "float" else nullable(values)


def _labels(values: pl.Series) -> pd.Series:
    """A polars Categorical, cleaned once a distinct text, as categories in ascending order."""
    distinct = values.unique().drop_nulls()
    stripped = [text.strip(SPACES) for text in distinct.cast(pl.String).to_list()]
    clean = [None if text in NULLS else text for text in stripped]
    known = sorted({text for text in clean if text is not None})
    place = {text: index for index, text in enumerate(known)} | {None: -1}
    new_code = np.full(_codes(distinct).max(initial=-1) + 2, -1, dtype=np.min_scalar_type(-1 - len(known)))
    new_code[_codes(distinct)] = [place[text] for text in clean]
    codes = new_code[values.to_physical().fill_null(len(new_code) - 1).to_numpy()]
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype=None if known else "object")))


def _codes(values: pl.Series) -> npt.NDArray[np.int64]:
    return values.to_physical().to_numpy().astype(np.int64)


def _shared_text(labels: pd.Series) -> pd.Series:
    """Text that repeats, as one object a distinct value: names of millions of kernels are a few hundred texts."""
    return pd.Series(np.array([*labels.cat.categories, None], dtype=object)[labels.cat.codes.to_numpy()], dtype="object")


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
