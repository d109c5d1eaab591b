"""Shown: what the function of a step returns, as charts, tables and sentences of a page.

A function returns what it would put on a table in front of a colleague: charts, frames, a sentence, one of them or several in a
tuple or list, in any order; a mapping gives them titles, a configuration to copy (`config.export_text`) has its own. The first
sentence is the answer, the others are notes under it; a text of several lines under a title is code to copy, which a `Code` may
fold. A `Figure` is a chart with parameters. What has `told()` or `to_frame()` is shown as these. A frame or chart without rows is
left out.
Words and units of a frame's columns are those of their names, or of `frame.attrs["labels"]` and `frame.attrs["units"]`;
`frame.attrs["links"]` has what cells of a column lead to, `frame.attrs["first"]` the columns that are shown at first. With
`frame.attrs["look"] = "tiles"` rows are figures side by side, with `"folded"` a line that opens, with `"none"` left to another
step; a frame without a title has that of `frame.attrs["title"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perfkit.config.export_text import Export
from perfkit.core.errors import InputError
from perfkit.core.texts import t, told
from perfkit.face.charts.spec import AnyChart
from perfkit.face.widgets.answer import Code, Whole
from perfkit.face.widgets.chart import Figure, has_rows
from perfkit.face.widgets.table import Table


def shown(result: Any, *, choose: str = "", sources: Sequence[str] = ()) -> Whole:
    """All of `result` by what it is. `choose` names the column by which rows are chosen.

    Raises InputError for something that no page can show.
    """
    charts: dict[str, Figure] = {}
    tables: dict[str, Table] = {}
    texts: list[str] = []
    blocks: list[Code] = []
    things = list(_things("", result))
    num_charts = sum(isinstance(thing, AnyChart | Figure) for _, thing in things)
    for title, thing in things:
        if isinstance(thing, AnyChart | Figure):
            words = told(title) if title else ""
            figure = thing if isinstance(thing, Figure) else Figure(chart=thing, wide=num_charts == 1)
            if has_rows(figure):
                charts[_key(title, "chart", charts)] = replace(
                    figure, title=words or figure.title, sources=figure.sources or sources
                )
        elif isinstance(thing, pd.DataFrame):
            if not len(thing) or thing.attrs.get("look") == "none":
                continue
            words = title or thing.attrs.get("title", "")
            tables[_key(words, "table", tables)] = _table(thing, words, choose)
        elif isinstance(thing, Code):
            blocks.append(thing)
        elif isinstance(thing, str):
            _say(title, thing, texts, blocks)
        else:
            kind = type(thing).__name__
            raise InputError("what the step returns", [f"{kind} is neither chart nor frame nor sentence; return one of these"])
    if not (charts or tables or texts or blocks):
        texts.append(t("There is nothing of this in what was recorded."))
    return Whole(charts, tables, texts[0] if texts else "", tuple(dict.fromkeys(texts[1:])), tuple(blocks))


def _things(title: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Everything in `result` that can be shown, with its title; None is nothing."""
    if isinstance(result, Mapping):
        for name, part in result.items():
            yield from _things(name if isinstance(name, str) else str(name), part)
    elif isinstance(result, Export):
        yield result.title, Code(result.text, result.language, result.title, result.folded)
    elif isinstance(result, Code):
        yield result.title, result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _things(title, part)
    elif isinstance(result, pd.Series):
        yield title, result.to_frame().reset_index()
    elif result is None:
        return
    elif isinstance(result, bool | int | float):
        yield title, f"{title}: {result}" if title else str(result)
    elif not isinstance(result, pd.DataFrame) and (hasattr(result, "to_frame") or hasattr(result, "told")):
        if hasattr(result, "told"):
            yield from _things("", result.told())
        if hasattr(result, "to_frame"):
            yield title, result.to_frame()
    else:
        yield title, result


def _key(title: str, kind: str, known: Mapping[str, Any]) -> str:
    name = title or kind
    return name if name not in known else f"{name} {len(known) + 1}"


def _table(frame: pd.DataFrame, title: str, choose: str) -> Table:
    own = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    labels, units, links = (dict(frame.attrs.get(name, {})) for name in ("labels", "units", "links"))
    chosen, look = bool(choose) and choose in own.columns, str(frame.attrs.get("look", ""))
    first = tuple(name for name in frame.attrs.get("first", ()) if name in own.columns)
    return Table(frame=own, title=title, labels=labels, units=units, links=links, first=first, look=look, selectable=chosen)


def _say(title: str, text: str, texts: list[str], blocks: list[Code]) -> None:
    if "\n" in text.strip():
        blocks.append(Code(text, "", title))
    elif text:
        texts.append(told(text))
