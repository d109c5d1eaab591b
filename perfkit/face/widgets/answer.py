"""Answer: what a panel shows for one state, charts and sentence first and the rest when it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import pandas as pd

from perfkit.face.charts.spec import AnyChart
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.table import Table

Charts = Mapping[str, Figure | AnyChart]
Tables = Mapping[str, Table | pd.DataFrame]
_Part = TypeVar("_Part")


class Code(NamedTuple):
    """Lines to copy into a file: `text` in `language` under `title`; `folded` ones are shown when they are asked for."""

    text: str
    language: str = ""
    title: str = ""
    folded: bool = False


class Answer(NamedTuple):
    """What `view` returns; a plain tuple of the first three does as well.

    Charts and sentence are drawn first. `tables`, `notes` and `code` may each be a function that gives them: it is called once the
    charts are on their way, and never if the visitor has moved on. What no chart needs (a search, a configuration written) belongs
    there: `Answer(charts, lambda: _tables(result), sentence, lambda: _notes(result))`.
    """

    charts: Charts
    tables: Tables | Callable[[], Tables]
    text: str
    notes: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    code: tuple[Code, ...] | Callable[[], tuple[Code, ...]] = ()

    def whole(self, check: Callable[[], None] = lambda: None) -> Whole:
        """The answer with all that was left to functions; `check` is called before each and may raise to end it."""
        made = (self.charts, _made(self.tables, check), self.text, _made(self.notes, check), _made(self.code, check))
        return Whole(*made)


class Whole(NamedTuple):
    """An answer of which nothing is left to do."""

    charts: Charts
    tables: Tables
    text: str
    notes: tuple[str, ...]
    code: tuple[Code, ...]


def _made(part: _Part | Callable[[], _Part], check: Callable[[], None]) -> _Part:
    if not callable(part):
        return part
    check()
    return part()
