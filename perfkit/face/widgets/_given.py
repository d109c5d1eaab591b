"""Given: what the function of a step is called with, whether it is the same as before, and what was chosen of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.table import Table


def origin_of(value: Any) -> str:
    """Where the numbers of a run come from, as figures say it."""
    kind, name = getattr(value, "kind", None), getattr(value, "name", None)
    return f"{kind}: {name}" if isinstance(kind, str) and isinstance(name, str) else ""


def same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a function would be called with the same again: plain values compare, everything else is the same object."""
    return before.keys() == now.keys() and all(before[name] is now[name] or _equal(before[name], now[name]) for name in now)


def _equal(before: Any, now: Any) -> bool:
    if type(before) is not type(now):
        return False
    if isinstance(before, dict):
        return same(before, now)
    if isinstance(before, tuple):
        return len(before) == len(now) and all(one is other or _equal(one, other) for one, other in zip(before, now, strict=True))
    return isinstance(before, str | int | float | bool) and bool(before == now)


def chosen_in(whole: Whole, choose: str, state: Mapping[str, Any], *, several: bool) -> Any:
    """The row that was clicked, else the first one, of the first table that can be chosen from; of several all of them."""
    table = next((table for table in whole.tables.values() if isinstance(table, Table) and table.selectable), None)
    keys = [] if table is None else [str(key) for key in table.frame[choose]]
    if several:  # a mark may have no row
        return tuple(table.row(keys.index(key)) if table and key in keys else {choose: key} for key in state[choose])
    if table is None or not keys:
        return None
    return table.row(keys.index(state[choose]) if state[choose] in keys else 0)


def marked(table: Table | pd.DataFrame, choose: str, state: Mapping[str, Any], several: int) -> Table | pd.DataFrame:
    """A table with the rows marked that are chosen: an address may have done it."""
    if not isinstance(table, Table) or not table.selectable:
        return table
    now = state[choose]
    keys = {str(key) for key in (now if isinstance(now, tuple | list) else (now,))}
    rows = [row for row, key in enumerate(table.frame[choose].astype(str)) if key in keys]
    return replace(table, chosen=rows, several=several)
