"""The columnar engine: reads big text files into exact columns. The only module that imports polars.

Every cell of a foreign CSV is text first: it is stripped (a tab follows time stamps in some files), `N/A`, `NA`, `nan`, `-` and
the empty text are null, and numbers are parsed from their decimal text, never through float, because epoch times in us have 19
digits and float64 keeps 0.25 us there. What does not parse is null, counted by column, and never ends the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import polars as pl

from perfkit.errors import InputError
from perfkit.trace._listing import File
from perfkit.units import NS_PER_MS, NS_PER_US, decimal_to_ns

Cell = Literal["text", "int", "float", "us", "ms", "ns"]
"""How a cell is read: text, a whole number, a float, or a decimal time in us, ms or ns that becomes int64 ns."""

NULLS = ("", "N/A", "NA", "n/a", "nan", "NaN", "None", "null", "-")
_NS_PER_UNIT = {"us": NS_PER_US, "ms": NS_PER_MS, "ns": 1}
_FRACTION_DIGITS = {"us": 3, "ms": 6, "ns": 0}


@dataclass(frozen=True, slots=True)
class Csv:
    """A CSV file as columns: `frame` has every column asked for, null where the file has none.

    `absent` are columns asked for that the file lacks, `unread` those it has beyond them, `unparsed` counts of cells that were
    neither null nor a number, by column.
    """

    frame: pd.DataFrame
    absent: tuple[str, ...]
    unread: tuple[str, ...]
    unparsed: Mapping[str, int]


def read_csv(file: File, columns: Mapping[str, Cell], *, required: Iterable[str] = ()) -> Csv:
    """Read the `columns` of a CSV file by name, never by position; CRLF or LF, with or without a byte order mark.

    Raises InputError that lists every `required` column that the file lacks, or that the file is empty.
    """
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    raw = _read_text_columns(file)
    present = {name.strip().lstrip("\ufeff"): name for name in raw.columns}
    missing = [name for name in required if name not in present]
    if missing:
        found = ", ".join(repr(name) for name in list(present)[:12])
        raise InputError(file.label, [f"column {name!r} is missing; the file has {found}" for name in missing])
    parsed: dict[str, pd.Series] = {}
    unparsed: dict[str, int] = {}
    for name, cell in columns.items():
        if name not in present:
            parsed[name] = _no_values(raw.height, cell)
            continue
        text = _cleaned(raw.get_column(present[name]))
        parsed[name], bad = _parse(text, cell)
        if bad:
            unparsed[name] = bad
    return Csv(
        frame=pd.DataFrame(parsed),
        absent=tuple(name for name in columns if name not in present),
        unread=tuple(name for name in present if name not in columns),
        unparsed=unparsed,
    )


def _read_text_columns(file: File) -> pl.DataFrame:
    try:
        return pl.read_csv(file.path.read_bytes(), infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True)
    except pl.exceptions.NoDataError:
        raise InputError(file.label, ["the file has no header line"]) from None
    except pl.exceptions.PolarsError as error:
        raise InputError(file.label, [f"cannot be read as CSV: {error}"]) from error


def _cleaned(text: pl.Series) -> pl.Series:
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(NULLS)), None)


def _no_values(rows: int, cell: Cell) -> pd.Series:
    dtype = "object" if cell == "text" else "float64" if cell == "float" else "Int64"
    return pd.Series([None] * rows, dtype=dtype)


def _parse(text: pl.Series, cell: Cell) -> tuple[pd.Series, int]:
    if cell == "text":
        return pd.Series(text.to_list(), dtype="object"), 0
    if cell == "float":
        values = text.cast(pl.Float64, strict=False)
        finite = values.is_finite().fill_null(False)
        bad = int((text.is_not_null() & ~finite).sum())
        return pd.Series(values.set(~finite, None).to_numpy(), dtype="float64"), bad
    if cell == "int":
        whole = text.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
        return _nullable(whole), int((text.is_not_null() & whole.is_null()).sum())
    return _times(text, cell)


def _times(text: pl.Series, cell: Literal["us", "ms", "ns"]) -> tuple[pd.Series, int]:
    """Decimal text to ns: digits are shifted as text; the rare rest (exponents, more digits than ns) goes through Decimal."""
    digits = _FRACTION_DIGITS[cell]
    pieces = text.str.extract_groups(rf"^([+-]?)(\d{{1,15}})(?:\.(\d{{0,{digits}}})0*)?$").struct.unnest()
    sign, whole, fraction = pieces.get_columns()
    shifted = (whole + fraction.fill_null("").str.pad_end(digits, "0")).cast(pl.Int64, strict=False)
    ns = pl.select(pl.when(sign == "-").then(-shifted).otherwise(shifted)).to_series()
    rest = text.is_not_null() & ns.is_null()
    bad = 0
    if rest.any():
        values = ns.to_list()
        for index in rest.arg_true():
            try:
                values[index] = decimal_to_ns(text[index], _NS_PER_UNIT[cell])
            except ValueError:
                bad += 1
        ns = pl.Series(values, dtype=pl.Int64)
    return _nullable(ns), bad


def _nullable(values: pl.Series) -> pd.Series:
    mask = values.is_null().to_numpy()
    numbers = values.fill_null(0).to_numpy()
    return pd.Series(pd.arrays.IntegerArray(numbers.copy(), mask.copy()))
