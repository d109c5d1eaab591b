"""The columnar engine: reads big text files into exact columns, and keeps tables as Parquet. The only module that imports polars.

Every cell of a foreign CSV is text first: it is stripped (a tab follows time stamps in some files), `N/A`, `NA`, `nan`, `-` and
the empty text are null, and numbers are parsed from their decimal text, never through float, because epoch times in us have 19
digits and float64 keeps 0.25 us there. What does not parse is null, counted by column, and never ends the reading. A row with
more or fewer cells than the header (a cut file, an unquoted comma) is left out and counted, because its cells cannot be named.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import polars as pl

from perfkit.errors import InputError
from perfkit.schema import Column, Table
from perfkit.trace._listing import File
from perfkit.units import NS_PER_MS, NS_PER_US, decimal_to_ns

Cell = Literal["text", "label", "int", "float", "us", "ms", "ns"]
"""How a cell is read: text, text that repeats (as categories), a whole number, a float, or a decimal time in us, ms or ns that
becomes int64 ns."""

ROWS_PER_GROUP = 131_072
"""Rows of a Parquet row group: the least that is read to get the rows of one rank."""

NULLS = ("", "N/A", "NA", "n/a", "nan", "NaN", "None", "null", "-")
_NS_PER_UNIT = {"us": NS_PER_US, "ms": NS_PER_MS, "ns": 1}
_FRACTION_DIGITS = {"us": 3, "ms": 6, "ns": 0}


@dataclass(frozen=True, slots=True)
class Csv:
    """A CSV file as columns: `frame` has every column asked for, null where the file has none.

    `absent` are columns asked for that the file lacks, `unread` those it has beyond them, `unparsed` counts of cells that were
    neither null nor a number, by column, `misshapen` rows left out because they have not as many cells as the header.
    """

    frame: pd.DataFrame
    absent: tuple[str, ...]
    unread: tuple[str, ...]
    unparsed: Mapping[str, int]
    misshapen: int = 0

    def losses(self) -> dict[str, int]:
        """What was lost, in words for `Sink.drop`, with its count."""
        lost = {f"{name}: not a number": count for name, count in self.unparsed.items()}
        if self.misshapen:
            lost["row with more or fewer cells than the header"] = self.misshapen
        return lost


def read_csv(file: File, columns: Mapping[str, Cell], *, required: Iterable[str] = ()) -> Csv:
    """Read the `columns` of a CSV file by name, never by position; CRLF or LF, with or without a byte order mark.

    Rows in which every column asked for is null (blank lines) are left out. Raises InputError that lists every `required` column
    that the file lacks, or that the file is empty or cannot be read.
    """
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    content = _content(file)
    header = _header(file, content)
    present = {name: index for index, name in reversed(list(enumerate(header)))}
    missing = [name for name in required if name not in present]
    if missing:
        found = ", ".join(repr(name) for name in header[:12])
        raise InputError(file.label, [f"column {name!r} is missing; the file has {found}" for name in missing])
    raw, misshapen = _text_columns(file, content, header, sorted(present[name] for name in columns if name in present))
    cells = {
        name: _cleaned_labels(raw[present[name]]) if cell == "label" else _cleaned(raw[present[name]])
        for name, cell in columns.items()
        if name in present
    }
    if cells:
        filled = ~pl.DataFrame(cells).select(pl.all_horizontal(pl.all().is_null())).to_series()
        cells = {name: text.filter(filled) for name, text in cells.items()}
    rows = len(next(iter(cells.values()))) if cells else 0
    parsed: dict[str, pd.Series] = {}
    unparsed: dict[str, int] = {}
    for name, cell in columns.items():
        if name not in cells:
            parsed[name] = _no_values(rows, cell)
            continue
        parsed[name], bad = _parse(cells[name], cell)
        if bad:
            unparsed[name] = bad
    return Csv(
        frame=pd.DataFrame(parsed),
        absent=tuple(name for name in columns if name not in present),
        unread=tuple(name for name in present if name not in columns),
        unparsed=unparsed,
        misshapen=misshapen,
    )


def _content(file: File) -> bytes:
    try:
        content = file.path.read_bytes()
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    return content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")


def _header(file: File, content: bytes) -> list[str]:
    line = content[: content.find(b"\n") + 1] or content
    try:
        names = next(csv.reader([line.decode("utf-8", "replace")]), [])
    except csv.Error as error:
        raise InputError(file.label, [f"the header line cannot be read as CSV: {error}"]) from error
    if not any(name.strip() for name in names):
        raise InputError(file.label, ["the file has no header line"])
    return [name.strip() for name in names]


def _text_columns(file: File, content: bytes, header: list[str], indexes: list[int]) -> tuple[dict[int, pl.Series], int]:
    """The columns at `indexes` as text, and how many rows were left out for their shape.

    The fast reader fills short rows with nulls, so that a null in the last column may hide one: only then, and where a row is too
    long or quotes do not match, are the rows looked at one by one.
    """
    last = len(header) - 1
    try:
        frame = pl.read_csv(content, columns=sorted({*indexes, last}), infer_schema=False, encoding="utf8-lossy")
    except pl.exceptions.NoDataError:
        return {index: pl.Series([], dtype=pl.String) for index in indexes}, 0
    except pl.exceptions.PolarsError:
        return _rows_one_by_one(file, content, header, indexes)
    columns = dict(zip(sorted({*indexes, last}), frame.get_columns(), strict=True))
    if columns[last].null_count():
        return _rows_one_by_one(file, content, header, indexes)
    return {index: columns[index] for index in indexes}, 0


def _rows_one_by_one(file: File, content: bytes, header: list[str], indexes: list[int]) -> tuple[dict[int, pl.Series], int]:
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline="")
    kept: list[list[str]] = []
    misshapen, line = 0, 1
    try:
        rows = csv.reader(lines)
        next(rows)
        for row in rows:
            first, line = line, rows.line_num
            if len(row) == len(header) or (len(row) > len(header) and not any(row[len(header) :])):
                kept.append([row[index] for index in indexes])
            elif any(row):
                misshapen += line - first  # an open quote swallows the lines up to the next quote
    except csv.Error as error:
        raise InputError(file.label, [f"cannot be read as CSV: {error}"]) from error
    return {index: pl.Series([row[at] for row in kept], dtype=pl.String) for at, index in enumerate(indexes)}, misshapen


def times_ns(texts: Sequence[bytes], cell: Literal["us", "ms", "ns"]) -> pd.Series:
    """Decimal times as nullable int64 ns, one a text; quotes around a number are ignored, what is no number is null."""
    joined = b"\n".join(texts).decode("utf-8", "replace")
    text = pl.Series([joined] if texts else [], dtype=pl.String).str.split("\n").explode()
    if len(text) != len(texts):  # one of them is no number and has lines of its own
        text = pl.Series([bytes(value).decode("utf-8", "replace") for value in texts], dtype=pl.String)
    return _times(_cleaned(text.str.strip_chars('"')), cell)[0]


def _cleaned(text: pl.Series) -> pl.Series:
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(NULLS)), None)


def _cleaned_labels(text: pl.Series) -> pl.Series:
    """Text that repeats, cleaned once a distinct value, as an Enum in ascending order."""
    raw = text.unique().drop_nulls()
    clean = _cleaned(raw)
    known = clean.unique().drop_nulls().sort()
    codes = text.cast(pl.Enum(raw)).to_physical().cast(pl.Int64).fill_null(len(raw))
    places = clean.cast(pl.Enum(known)).to_physical().cast(pl.Int64).append(pl.Series([None], dtype=pl.Int64))
    return known.cast(pl.Enum(known)).gather(places.gather(codes)).alias(text.name)


def _no_values(rows: int, cell: Cell) -> pd.Series:
    if cell == "label":
        return _categories(pl.Series([None] * rows, dtype=pl.Enum([])))
    if cell == "text":
        return pd.Series(np.full(rows, None, dtype="object"))
    return (
        pd.Series(np.full(rows, np.nan))
        if cell == "float"
        else _nullable(pl.Series([None], dtype=pl.Int64).new_from_index(0, rows))
    )


def _parse(text: pl.Series, cell: Cell) -> tuple[pd.Series, int]:
    if cell == "label":
        return _categories(text), 0
    if cell == "text":
        return _shared_text(text), 0
    if cell == "float":
        values = text.cast(pl.Float64, strict=False)
        finite = values.is_finite().fill_null(False)
        bad = int((text.is_not_null() & ~finite).sum())
        return pd.Series(values.set(~finite, None).to_numpy(), dtype="float64"), bad
    if cell == "int":
        whole = text.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
        return _nullable(whole), int((text.is_not_null() & whole.is_null()).sum())
    return _times(text, cell)


def _shared_text(text: pl.Series) -> pd.Series:
    """Text that repeats, as one object a distinct value: names of millions of kernels are a few hundred texts."""
    values = text.unique().drop_nulls()
    codes = text.cast(pl.Enum(values)).to_physical().cast(pl.Int64).fill_null(len(values)).to_numpy()
    return pd.Series(np.array([*values.to_list(), None], dtype=object)[codes], dtype="object")


def _times(text: pl.Series, cell: Literal["us", "ms", "ns"]) -> tuple[pd.Series, int]:
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
    return _nullable(ns), bad


def _exact_ns(text: str, ns_per_unit: int) -> int | None:
    try:
        ns = decimal_to_ns(text, ns_per_unit)
    except (ValueError, ArithmeticError):
        return None
    return ns if abs(ns) < 2**63 else None


def _nullable(values: pl.Series) -> pd.Series:
    mask = values.is_null().to_numpy()
    numbers = values.fill_null(0).to_numpy()
    return pd.Series(pd.arrays.IntegerArray(numbers.copy(), mask.copy()))


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of a run as Parquet. Raises ValueError for text that is no Unicode, OSError if it cannot be written."""
    columns = [_stored(str(name), frame[name]) for name in frame.columns]
    try:
        pl.DataFrame(columns).write_parquet(path, row_group_size=ROWS_PER_GROUP)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from error


def read_table(
    path: Path, table: Table, *, columns: Sequence[str] | None = None, ranks: Iterable[int] | None = None
) -> pd.DataFrame:
    """A table that `write_table` wrote, equal to what it was; or only some `columns`, or only the rows of some `ranks`.

    Row groups without any of the ranks are not read. Raises OSError if the file is gone or damaged.
    """
    try:
        scan = pl.scan_parquet(path)
        if ranks is not None:
            scan = scan.filter(pl.col("rank").is_in(sorted(set(ranks))))
        frame = scan.select(list(columns) if columns is not None else pl.all()).collect()
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{path.name} cannot be read: {error}") from error
    return pd.DataFrame({series.name: _restored(series, table.column(series.name)) for series in frame.get_columns()})


def _stored(name: str, values: pd.Series) -> pl.Series:
    if isinstance(values.dtype, pd.CategoricalDtype):
        texts = [str(text) for text in values.cat.categories]
        codes = pl.Series(values.cat.codes.to_numpy(dtype=np.int64))
        return pl.Series(texts, dtype=pl.Enum(texts)).gather(codes.set(codes < 0, None)).alias(name)
    if isinstance(values.dtype, pd.api.extensions.ExtensionDtype):
        flags = isinstance(values.dtype, pd.BooleanDtype)
        filled = values.fillna(False if flags else 0).to_numpy(dtype=bool if flags else np.int64)
        return pl.Series(name, filled).set(pl.Series(values.isna().to_numpy()), None)
    return pl.Series(name, values.to_numpy())


def _restored(values: pl.Series, column: Column) -> pd.Series:
    if column.dtype == "text":
        return _categories(values)
    if column.dtype == "flag":
        flags, mask = values.fill_null(False).to_numpy().copy(), values.is_null().to_numpy().copy()
        return pd.Series(pd.arrays.BooleanArray(flags, mask))
    if column.nullable and column.dtype == "int":
        return _nullable(values)
    return pd.Series(values.to_numpy().copy())


def _categories(values: pl.Series) -> pd.Series:
    texts = values.dtype.categories.to_list() if isinstance(values.dtype, pl.Enum) else []
    codes = values.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype=None if texts else "object")))
