"""Spec: a chart taken apart into its structure and its rows, so that a live view can be patched instead of rebuilt.

The structure is a Vega-Lite specification whose data sets are only named; rows travel as lists by column. Two charts with one
`digest` differ in their rows alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

from perfkit.core import quantity
from perfkit.face.charts.theme import PRESENT, STRUCTURE

_SPLIT = "_perfkit_split"
_ANONYMOUS = re.compile(r"^data-[0-9a-f]{32}$")

_PLAIN = frozenset({str, int, bool})

UNITS = quantity.units() - {"", "%"} | {"us", "10³ tokens/s", "10⁹"}
"""The units that axes and tooltips name."""

Columns = dict[str, list[Any]]
AnyChart = alt.TopLevelMixin
"""Any chart of altair: single, layered or concatenated."""


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """A Vega-Lite `spec` without rows, its `digest`, and the rows of each data set by column.

    `headers` are the names that columns have in a file, where that is not their own: with the unit that the chart gives them.
    `params` are values of parameters, which are no structure either. `words` are what rows and `heads` what columns are called in
    the language of a page, where that is not the code's.
    """

    spec: dict[str, Any]
    digest: str
    datasets: dict[str, Columns]
    headers: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)


def split(chart: AnyChart) -> ChartSpec:
    """Take `chart` apart. Frames given inline get the names "data-0", "data-1", ... in order of appearance."""
    structure = vars(chart).get(STRUCTURE)
    if structure is None:
        return _split(chart)
    known = vars(structure).get(_SPLIT)
    if known is None:
        known = _split(structure)
        object.__setattr__(structure, _SPLIT, known)
    rows: Mapping[str, Any] = chart.datasets  # type: ignore[attr-defined]
    found = {name: columns(records) for name, records in rows.items()}
    return ChartSpec(known.spec, known.digest, found, known.headers, _present(chart))


def _present(chart: AnyChart) -> dict[str, Any]:
    params = getattr(chart, "params", None)
    return {one.name: one.value for one in params if one.name == PRESENT} if isinstance(params, list) else {}


def _split(chart: AnyChart) -> ChartSpec:
    copy = chart.copy(deep=False)  # type: ignore[attr-defined]
    records = copy.datasets
    copy.datasets = alt.Undefined
    spec = copy.to_dict(validate=False)
    rows: dict[str, Any] = dict(spec.pop("datasets", {}))
    if records is not alt.Undefined:
        rows.update(records if isinstance(records, Mapping) else records.to_dict(validate=False))
    names = {old: f"data-{index}" for index, old in enumerate(name for name in rows if _ANONYMOUS.match(name))}
    if names:
        spec = _renamed(spec, names)
    text = json.dumps(spec, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return ChartSpec(spec, digest, {names.get(name, name): columns(records) for name, records in rows.items()}, headers(spec))


def headers(spec: Mapping[str, Any]) -> dict[str, str]:
    """The names of a chart's columns with the units in which it draws them, as its axes and tooltips say them.

    A column whose own name ends with its unit keeps it, as do shares, counts and texts, which have none. The second end of a bar
    has the unit of the first.
    """
    units: dict[str, str] = {}
    untitled: list[tuple[str, str]] = []
    by_axis: dict[str, str] = {}
    for channel, column, title in _titles(spec):
        if unit := unit_in(title):
            units.setdefault(column, unit)
            by_axis.setdefault(channel, unit)
        elif channel and not title:
            untitled.append((channel, column))
    for channel, column in untitled:
        if channel in by_axis:
            units.setdefault(column, by_axis[channel])
    return {
        column: f"{column} ({unit})"
        for column, unit in units.items()
        if column != (own := unit.lower().replace("/", "_per_").replace("µ", "u")) and not column.endswith(f"_{own}")
    }


def _titles(node: Any) -> Iterator[tuple[str, str, str]]:
    """Of every column that a specification draws as a number: the axis on which, or "", its name, and its words."""
    if isinstance(node, Mapping):
        for channel, drawn in node.items():
            for one in drawn if isinstance(drawn, list) else (drawn,):
                if isinstance(one, Mapping) and isinstance(one.get("field"), str) and one.get("type") in (None, "quantitative"):
                    title = one.get("title") or (one.get("axis") or {}).get("title") or ""
                    yield channel.rstrip("2") if channel in ("x", "x2", "y", "y2") else "", one["field"], title
            yield from _titles(drawn)
    elif isinstance(node, list):
        for each in node:
            yield from _titles(each)


def unit_in(title: str) -> str:
    """The unit that a title names, at its end in brackets or as its first word; "" if there is none."""
    bracket = re.search(r"\(([^()]*)\)$", title)
    first, _, rest = title.partition(" ")
    found = bracket[1] if bracket else title if title in UNITS else first
    return found if found in UNITS and not rest.startswith("per ") else ""


def unchecked() -> AbstractContextManager[None]:
    """While charts are built in it, altair does not check every part of them against its schema; tests build them checked."""
    return debug_mode(False)


def columns(records: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]) -> Columns:
    """Rows as one list a column; a value that is no finite number becomes None, as JSON has no NaN."""
    if isinstance(records, Mapping):
        return {name: _plain_column(list(values)) for name, values in records.items()}
    rows = list(records)
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    return {name: _plain_column([row.get(name) for row in rows]) for name in names}


def _plain_column(values: list[Any]) -> list[Any]:
    kinds = set(map(type, values))
    if kinds <= _PLAIN or (kinds == {float} and all(map(math.isfinite, values))):  # nearly every column
        return values
    return [plain(value) for value in values]


def plain(value: Any) -> Any:
    """`value` as JSON can carry it: numpy scalars as Python ones, NaN and missing values as None, times as ISO text."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if value is pd.NA or value is pd.NaT:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            key: names.get(value, value) if key == "name" and isinstance(value, str) else _renamed(value, names)
            for key, value in node.items()
        }
    return [_renamed(item, names) for item in node] if isinstance(node, list) else node
