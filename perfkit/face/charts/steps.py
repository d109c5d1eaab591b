"""Steps as pictures: the step times of a log, and where the time of every rank went."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfkit.core.units import NS_PER_MS
from perfkit.explain.training_log import StepStatistics
from perfkit.face.charts import theme

PATHS = (
    "computing",
    "computing/forward_backward",
    "computing/tail",
    "communication/exposed",
    "bubble",
    "free",
    "free/data",
    "free/other",
)
"""Parts of a measured step in the order in which they are stacked."""

Rows = dict[str, list[dict[str, Any]]]

HEADROOM = 1.5
"""Warm-up steps above this multiple of the longest measured step are drawn at the edge: one compile step would flatten the rest."""


@theme.drawn_once
def step_times(rows: Rows) -> alt.LayerChart:
    """Draw the time of every step of a log: warm-up grey, outliers ringed, the median as a line.

    `rows` comes from `step_time_rows` and is patched when the warm-up cut moves.
    """
    states = list(theme.STEP_STATES)
    points = alt.Chart(alt.NamedData("steps"))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(zero=False, nice=False, padding=14))
    y = alt.Y("shown_ms:Q", title="time of a step (ms)", scale=alt.Scale(zero=True))
    line = points.mark_line(color=theme.MUTED, strokeWidth=1).encode(x=x, y=y)
    marks = points.mark_point(filled=True, size=70, opacity=1).encode(
        x=x,
        y=y,
        color=alt.Color("state:N", title=None, scale=alt.Scale(domain=states, range=list(theme.STEP_STATES.values()))),
        shape=alt.Shape("state:N", title=None, scale=alt.Scale(domain=states, range=["circle", "cross", "diamond"])),
        tooltip=[
            alt.Tooltip("step:Q"),
            theme.tooltip("duration_ms", "step_time_s", title="ms"),
            alt.Tooltip("state:N"),
            alt.Tooltip("line:Q", title="line in the log"),
        ],
    )
    rule = (
        alt.Chart(alt.NamedData("median"))
        .mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=theme.COMPUTING)
        .encode(y=alt.Y("median_ms:Q"), tooltip=[theme.tooltip("median_ms", "step_time_s", title="median (ms)")])
    )
    chart = alt.LayerChart(layer=[line, rule, marks], width="container", height=280)
    return theme.with_rows(chart, rows)


def step_time_rows(log: pd.DataFrame, statistics: StepStatistics) -> Rows:
    """The data sets of `step_times`: "steps" and "median"; of more than 5 000 steps the last 5 000."""
    outside, num_warmup = set(statistics.outlier_steps), statistics.num_warmup
    duration_ms = log["duration_ns"].to_numpy(dtype=np.float64) / NS_PER_MS
    measured_ms = duration_ms[num_warmup:]
    edge_ms = HEADROOM * float(measured_ms.max()) if len(measured_ms) else float(duration_ms.max())
    rows = [
        {
            "step": step,
            "duration_ms": own_ms,
            "shown_ms": min(own_ms, edge_ms) if index < num_warmup else own_ms,
            "state": "warm-up" if index < num_warmup else "outlier" if step in outside else "measured",
            "line": line,
        }
        for index, (step, own_ms, line) in enumerate(
            zip(log["step"].tolist(), duration_ms.tolist(), log["line"].tolist(), strict=True)
        )
    ]
    return {"steps": rows[-theme.MAX_MARKS :], "median": [{"median_ms": statistics.median_ns / NS_PER_MS}]}


def rank_bars(parts: pd.DataFrame, *, unit: str, lit: Collection[int] = ()) -> alt.Chart:
    """Draw one stacked bar a rank; a click on a bar picks its rank (selection "picked").

    `parts` comes from `part_rows` with `rank` as text, in the order to draw; it is the data set "parts". `unit` is "ms" or "%".
    Until one is picked the bars of the ranks `lit` stand out; all do where none of them is drawn. Few bars lie, so that they take
    no more of the page than they say; many stand side by side.
    """
    drawn = set(map(str, lit)) & set(parts["rank"])
    parts = parts.assign(lit=parts["rank"].isin(drawn) if drawn else True)
    paths = _drawn_paths(parts)
    if unit == "ms":
        amount, title, axis = "amount_ms:Q", "time of the step (ms)", alt.Axis()
    else:
        amount, title, axis = "share:Q", "share of the step", alt.Axis(format=".0%")
    picked = alt.selection_point(name="picked", fields=["rank"], on="click", clear=False, toggle=False)
    num_ranks = parts["rank"].nunique()
    across = num_ranks <= theme.MAX_ACROSS
    place: dict[str, Any]
    if across:
        size = 30 * num_ranks + 10  # in all, not a rank: of that Vega-Lite warns in the console of a report
        place = {"x": alt.X(amount, title=title, stack="zero", axis=axis), "y": alt.Y("rank:N", title="rank", sort=None)}
    else:
        size = 320
        beside = alt.X("rank:N", title="rank", sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True))
        place = {"x": beside.scale(paddingInner=0.25), "y": alt.Y(amount, title=title, stack="zero", axis=axis)}
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("parts"), width="container", height=size)
        .mark_bar(cornerRadius=1, cursor="pointer")
        .encode(
            **place,
            opacity=alt.OpacityValue(
                0.45,
                condition=[
                    {"param": "picked", "empty": False, "value": 1.0},
                    {"test": "datum.lit && !length(data('picked_store'))", "value": 1.0},
                ],
            ),
            **_part_encoding(paths, "rank"),
        )
        .add_params(picked)
    )
    return theme.with_rows(chart, {"parts": theme.records(parts)})


def step_trend(parts: pd.DataFrame) -> alt.Chart:
    """Draw the parts of one rank's steps side by side; `parts` comes from `part_rows` (data set "trend")."""
    paths = _drawn_paths(parts)
    return theme.bars(
        {"trend": theme.records(parts)},
        "trend",
        height=200,
        x=alt.X("step:N", title="step", sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("amount_ms:Q", title="time (ms)", stack="zero"),
        **_part_encoding(paths, "step"),
    )


def part_rows(step_parts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table `step_parts` as the charts draw them: `rank`, `step` (text), `path`, `amount_ms`, `share`, `order`.

    Parts that were not told apart are left out; shares are of the parts that were.
    """
    known = step_parts[step_parts["amount_ns"].notna()]
    amount_ns = known["amount_ns"].astype("int64")
    whole_ns = amount_ns.groupby([known["rank"], known["step"]]).transform("sum")
    order = {path: index for index, path in enumerate(PATHS)}
    path = known["path"].astype(str)
    return pd.DataFrame(
        {
            "rank": known["rank"].astype(str),
            "step": known["step"].astype(str),
            "path": path,
            "amount_ms": amount_ns / NS_PER_MS,
            "share": (amount_ns / whole_ns).fillna(0.0),
            "order": path.map(order).fillna(len(PATHS)).astype(int),
        }
    )


def _drawn_paths(parts: pd.DataFrame) -> list[str]:
    """The paths of which there is anything to see, in their order."""
    seen = set(parts.loc[parts["amount_ms"] > 0, "path"])
    return [path for path in PATHS if path in seen]


def _part_encoding(paths: Sequence[str], by: str) -> dict[str, Any]:
    return {
        "color": alt.Color("path:N", title=None, sort=list(paths), scale=theme.path_scale(paths)),
        "order": alt.Order("order:Q"),
        "tooltip": [
            alt.Tooltip(f"{by}:N"),
            alt.Tooltip("path:N", title="part"),
            theme.tooltip("amount_ms", "ns", title="ms"),
            theme.tooltip("share", "ratio", title="share of the step"),
        ],
    }
