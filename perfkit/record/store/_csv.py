"""CSV: big files into columns by name, block by block. Every cell is text first and is parsed by `_cells`.

A row with more or fewer cells than the header (a cut file, an unquoted comma) is left out and counted, because its cells cannot be
named.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record.listing import File
from perfkit.record.store._cells import Cell, cleaned, joined, no_values, parse_all
from perfkit.record.store._few_cells import read_plain, series
from perfkit.record.store._row_blocks import row_blocks

if TYPE_CHECKING:
    import polars as pl
else:
    from perfkit.record.store._polars import pl


MISSHAPEN = "row with more or fewer cells than the header"
"""What `Csv.losses` says of whole rows; all else are cells."""


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
            lost[MISSHAPEN] = self.misshapen
        return lost or ({"table that ends after its header": 1} if self.frame.empty else {})


def read_csv(file: File, columns: Mapping[str, Cell], *, required: Iterable[str] = ()) -> Csv:
    """Read the `columns` of a CSV file by name, never by position; CRLF or LF, with or without a byte order mark.

    Rows in which every column asked for is null (blank lines) are left out. Raises InputError that lists every `required` column
    that the file lacks, or that the file is empty or cannot be read.
    """
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    required = tuple(required)
    if (plain := read_plain(file, columns, required=required)) is not None:
        header, cells = plain
        rows = len(next(iter(cells.values()), ()))
        frame = pd.DataFrame({name: series(cells.get(name, [None] * rows), cell) for name, cell in columns.items()})
        return Csv(frame, *_beside(columns, header), {})
    blocks = row_blocks(file)
    content = next(blocks, b"")
    header = _header(file, content)
    present = {name: index for index, name in reversed(list(enumerate(header)))}
    missing = [name for name in required if name not in present]
    if missing:
        found = ", ".join(repr(name) for name in header[:12])
        raise InputError(file.label, [f"column {name!r} is missing; the file has {found}" for name in missing])
    wanted = {name: cell for name, cell in columns.items() if name in present}
    texts = pl.Categorical(pl.Categories.random())  # one list of distinct texts for all blocks
    pieces: list[dict[str, pl.Series]] = []
    unparsed: Counter[str] = Counter()
    misshapen = 0
    while content:
        raw, lost = _text_columns(file, content, header, sorted(present[name] for name in wanted))
        misshapen += lost
        pieces.append(_values({name: raw[present[name]] for name in wanted}, wanted, texts, unparsed))
        content = next(blocks, b"")
    return Csv(_joined(pieces, columns), *_beside(columns, header), dict(unparsed), misshapen)


def _beside(columns: Iterable[str], header: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns asked for that a header lacks, and those that it has beyond them."""
    found, asked = dict.fromkeys(reversed(header)), list(columns)
    return tuple(name for name in asked if name not in found), tuple(name for name in found if name not in asked)


def _values(
    raw: Mapping[str, pl.Series], columns: Mapping[str, Cell], texts: pl.DataType, unparsed: Counter[str]
) -> dict[str, pl.Series]:
    """The cells of a block as values, without rows in which all are null; what is no value is counted in `unparsed`."""
    numbers = {name: text for name, text in raw.items() if columns[name] not in ("label", "text")}
    parsed, bad = parse_all(numbers, columns)
    unparsed.update({name: count for name, count in bad.items() if count})
    values = {name: parsed[name] if name in parsed else raw[name].cast(texts) for name in columns}
    complete = not columns or any(not piece.null_count() for piece in parsed.values())
    if complete:  # a column without a null shows at once that no row is empty
        return values
    filled = ~pl.DataFrame([cleaned(text).is_null() for text in raw.values()]).select(pl.all_horizontal(pl.all())).to_series()
    return {name: piece.filter(filled) for name, piece in values.items()}


def _joined(pieces: list[dict[str, pl.Series]], columns: Mapping[str, Cell]) -> pd.DataFrame:
    """The blocks as one frame, column by column, so that no column is there twice for long."""
    rows = sum(len(next(iter(piece.values()))) for piece in pieces if piece)
    frame: dict[str, pd.Series] = {}
    for name, cell in columns.items():
        found = [piece.pop(name) for piece in pieces if name in piece]
        frame[name] = joined(found, cell) if found else no_values(rows, cell)
    return pd.DataFrame(frame)


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

    The fast reader fills short rows with nulls, so that a null in the last column may hide one, and cuts long ones if not all are
    asked for. Where a null, the number of separators or quotes say so, the rows are looked at one by one.
    """
    last = len(header) - 1
    try:
        frame = pl.read_csv(content, columns=sorted({*indexes, last}), infer_schema=False, encoding="utf8-lossy")
    except pl.exceptions.NoDataError:
        return {index: pl.Series([], dtype=pl.String) for index in indexes}, 0
    except pl.exceptions.PolarsError:
        return _rows_one_by_one(file, content, header, indexes)
    columns = dict(zip(sorted({*indexes, last}), frame.get_columns(), strict=True))
    if columns[last].null_count() or _separators(content) != last * (len(frame) + 1):
        return _rows_one_by_one(file, content, header, indexes)
    return {index: columns[index] for index in indexes}, 0


def _separators(content: bytes) -> int:
    """The commas outside of quotes."""
    if b'"' not in content:
        return content.count(b",")
    characters = np.frombuffer(content, dtype=np.uint8)
    is_outside = np.cumsum(characters == ord('"'), dtype=np.uint8) & 1 == 0
    return int(np.count_nonzero((characters == ord(",")) & is_outside))


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
