"""Breakdowns as bars: one horizontal bar a breakdown, all on one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from perfkit.core.breakdown import Breakdown, one_unit
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
_STEP = (
    *(f"computing/{part}" for part in ("forward", "backward", "recompute", "optimizer")),
    "communication/exposed",
    "bubble",
    "free",
)
"""Parts of a step in the order in which they are stacked, whichever of them a plan has."""


def bars(breakdowns: Mapping[str, Breakdown], *, depth: int = 2) -> alt.Chart:
    """Draw one bar a breakdown, split at `depth` path levels.

    All must have one unit. Rows are in the data set "parts" (`name`, `path`, `amount`, `share`, `order`), so that a panel can
    replace them without building the chart again. What is nothing is neither drawn nor in the legend, and unmeasured paths are not
    drawn as zero; `Breakdown.unmeasured_text` names them.
    """
    rows = bar_rows(breakdowns, depth=depth)
    paths = _paths(breakdowns, depth)
    chart = _bars({"parts": rows}, unit=one_unit(breakdowns.values()), names=tuple(breakdowns), paths=paths)
    shown = theme.words_in(rows, "path")
    return theme.with_present(chart, [path for path in paths if path in shown])


@theme.drawn_once
def _bars(rows: Rows, *, unit: str, names: tuple[str, ...], paths: tuple[str, ...]) -> alt.Chart:
    scale = alt.Scale(domain=list(paths), range=theme.path_colors(paths))
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("parts"), height={"step": 34}, width="container", params=[theme.present_param(paths)])
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("amount:Q", title=f"amount ({unit})", stack="zero", axis=alt.Axis(format="~s")),
            y=alt.Y("name:N", title=None, sort=list(names)),
            color=alt.Color("path:N", scale=scale, title=None, sort=list(paths), legend=theme.present_legend()),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("path:N", title="part"),
                theme.tooltip("amount", "number", title=f"amount ({unit})"),
                theme.tooltip("share", "ratio"),
            ],
        )
    )
    return theme.with_rows(chart, rows)


def bar_rows(breakdowns: Mapping[str, Breakdown], *, depth: int = 2) -> list[dict[str, Any]]:
    """The rows that `bars` draws: one a breakdown and path, numbered in the order of the paths."""
    order = {path: place for place, path in enumerate(_paths(breakdowns, depth))}
    rows = []
    for name, breakdown in breakdowns.items():
        found, total = breakdown.collapse(depth), breakdown.total
        rows += [
            {
                "path": path,
                "amount": amount,
                "share": amount / total if total else 0.0,
                "name": name,
                "order": order[path],
            }
            for path, amount in found.parts.items()
            if amount
        ]
    return rows


def _paths(breakdowns: Mapping[str, Breakdown], depth: int) -> tuple[str, ...]:
    found = dict.fromkeys(path for one in breakdowns.values() for path in one.collapse(depth).parts)
    return _STEP if found.keys() <= set(_STEP) else tuple(found)
