"""Beside: the room for a table that stands to the right of its charts where the screen is wide enough for both.

The page must know it before it draws the charts, and the table comes after them: how wide it will be is reckoned from its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.core.shortening import width_of
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.table import Table, table_content, told_columns

MOST_CH = 120
"""A wider table leaves its charts no room on any screen."""
MOST_COLUMNS = 8
LEAST_ROWS = 4
"""A shorter table costs less height below several charts than width beside them, unless these are narrow themselves."""
LEAST_BESIDE_ONE = 2
PADDING_CH = 3
"""Of a cell, and of a table's card, both sides together."""
LONGEST_CH = 40
"""A longer cell is a sentence, which goes on in the next line."""


class Beside:
    """The room of the one table of a panel; it stays as it is while the table keeps its columns, so that nothing moves."""

    def __init__(self) -> None:
        self._known: tuple[Any, ...] = ()
        self._room_ch = 0

    def room_ch(self, charts: Mapping[str, Figure], tables: Any) -> int:
        """Characters of the widest lines of the table; 0 for one that does not stand beside `charts`.

        `tables` is what an answer has: one of which the tables are still to be made has none yet.
        """
        if not charts or not isinstance(tables, Mapping) or len(tables) != 1:
            self._known, self._room_ch = (), 0
            return 0
        ((name, table),) = tables.items()
        own = table if isinstance(table, Table) else Table(frame=table)
        narrow = all(map(_is_narrow, charts.values()))
        known = (*charts, narrow, name, *told_columns(own.frame))
        if known != self._known:
            least = 1 if narrow else LEAST_BESIDE_ONE if len(charts) == 1 else LEAST_ROWS
            self._known, self._room_ch = known, _room_ch(own, least)
        return self._room_ch


def _is_narrow(figure: Figure) -> bool:
    """Whether a chart is as wide as what it shows, so much a mark, and not as wide as its card."""
    return isinstance(getattr(figure.chart, "width", None), dict)


def _room_ch(table: Table, least_rows: int) -> int:
    if table.look or len(table.frame) < least_rows or len(table.first or table.frame.columns) > MOST_COLUMNS:
        return 0
    columns = [column for column in table_content("", table)["columns"] if not column["aside"]]
    room = PADDING_CH + sum(PADDING_CH + min(LONGEST_CH, _widest_ch(column)) for column in columns)
    return room if room <= MOST_CH else 0


def _widest_ch(column: Mapping[str, Any]) -> int:
    return max(map(width_of, (f"{column['label']} {column['unit']}", *column["text"])))
