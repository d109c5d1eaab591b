"""Table: a frame as a table with units in its header, the same values in full digits in its CSV, and rows that can be chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pandas as pd

from perfkit.core import quantity
from perfkit.core.demangled import demangled
from perfkit.core.shortening import shortened
from perfkit.core.texts import PARTS, Said, path_words, told
from perfkit.face.charts.spec import plain

MAX_ROWS = 500
"""Rows sent to the page; how many more there are is said below the table."""
LONGEST_NAME = 72
"""Characters of a name that a cell shows; a kernel of C++ has hundreds."""
SIGNS = {
    "severity": {"high": "bad", "medium": "warn", "low": "plain"},
    "fits": {"no": "bad"},
    "enough": {"no": "bad"},
    "slow": {"yes": "bad"},
    "level": {"error": "bad", "warning": "warn", "information": "plain"},
    "value": {"not measured": "absent", "not known": "absent"},
    "stands_out": {"yes": "warn"},
    "verdict": {"impossible": "bad", "unexpected": "bad", "avoidable": "warn"},
}
"""Cells of columns of judgements that are drawn as a sign: by what they begin with, how much they stand out."""


@dataclass(frozen=True, slots=True)
class Table:
    """A `frame` to be shown under `title`.

    Column names with a unit suffix (`_ns`, `_bytes`, `_ratio`, ...) are scaled and get their unit by themselves. `labels` and
    `units` override the words and units of columns; a column with a unit of its own is written as it is. `links` has for columns
    the address that each cell leads to ("" for none). Of a wide table the columns `first` stand, and the others when asked; its CSV
    has all. `look="tiles"` draws rows as figures side by side, `"folded"` one line that opens. `selectable` makes rows clickable,
    the rows `chosen` are marked, and up to `several` can be at once (0: one).
    """

    frame: pd.DataFrame
    _: KW_ONLY
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)
    first: Sequence[str] = ()
    look: str = ""
    selectable: bool = False
    chosen: Sequence[int] = ()
    several: int = 0
    max_rows: int = MAX_ROWS

    def row(self, index: int) -> dict[str, Any]:
        """One row by column name, as plain Python values."""
        return {str(name): plain(self.frame[name].iloc[index]) for name in self.frame.columns}


def table_content(name: str, table: Table) -> dict[str, Any]:
    """What the page needs to draw `table`: by column the label, the unit, and the cells as text and as values in that unit."""
    shown = table.frame.head(table.max_rows)
    return {
        "name": name,
        "title": told(table.title),
        "label": told(table.title) or name,
        "columns": [_column(str(column), shown[column], table) for column in told_columns(shown)],
        "look": table.look,
        "total": len(table.frame),
        "selectable": table.selectable,
        "chosen": list(table.chosen),
        "several": table.several,
    }


def told_columns(frame: pd.DataFrame) -> list[Any]:
    """The columns of a table of which a cell says something; of one without rows all."""
    return [name for name in frame.columns if frame.empty or any(cell is pd.NA or cell != "" for cell in frame[name].tolist())]


def _sign(name: str, given: Any) -> str:
    word = {True: "yes", False: "no"}[given] if isinstance(given, bool) else given
    return SIGNS[name].get(word.partition(",")[0], "") if isinstance(word, str) else ""


def _told(cell: Any, given: Any) -> Any:
    """A cell in the language of the page; several sentences that were given as one cell stand one after the other."""
    if isinstance(given, tuple) and given and all(isinstance(one, str) for one in given):
        return "; ".join(map(told, given))
    return told(cell) if isinstance(cell, str) else cell


def _column(name: str, series: pd.Series[Any], table: Table) -> dict[str, Any]:
    """One column: its cells are written from the very values that its CSV holds, both in the unit of its head."""
    told_too = name not in quantity.NAMES or name in PARTS  # a name is not, unless perfkit says it
    pairs = zip(quantity.cells(series), series.tolist(), strict=True)
    own = [_told(cell, given) if told_too or isinstance(given, Said) else cell for cell, given in pairs]
    unit, size, digits = (table.units[name], 1.0, 3) if name in table.units else quantity.column(name, own)
    values = own if size == 1 else [quantity.scaled(value, size) for value in own]
    cells = [quantity.with_sign(name, value, quantity.cell(value, digits, unit=unit)) for value in values]
    text = [told(cell) if isinstance(value, bool) else cell for cell, value in zip(cells, values, strict=True)]
    if name in PARTS:
        text = [path_words(cell) for cell in text]
    numbers = [value for value in values if value is not None]
    return {
        "label": told(table.labels.get(name, quantity.label(name))),
        "unit": unit,
        "text": [shortened(demangled(cell), LONGEST_NAME) for cell in text] if name in quantity.NAMES else text,
        "values": [quantity.word(value) for value in values],
        "links": list(table.links.get(name, ()))[: len(own)],
        "signs": [_sign(name, given) for given in series.tolist()] if name in SIGNS else [],
        "aside": bool(table.first) and name not in table.first,
        "numeric": bool(numbers or unit)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers),
    }
