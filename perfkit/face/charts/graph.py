"""Graphs of the compiler as pictures: the neighbourhood of an operator, and communication by cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

KINDS: Mapping[str, str] = {
    "forward": theme.SKY,
    "backward": "#C9CED3",
    "recomputed copy": theme.YELLOW,
    "communication": theme.COMMUNICATION,
    "avoidable communication": theme.FREE,
}
VERDICTS: Mapping[str, str] = {"expected": theme.GREEN, "avoidable": theme.FREE, "unexpected": theme.DATA}

ROW_PIXELS = 50
HALF_WIDTH, HALF_HEIGHT = 0.47, 0.36
TYPICAL_WIDTH = 560
"""Pixels of a picture on a page of usual width; labels are cut to what fits a box there."""


def dataflow(rows: Rows) -> alt.LayerChart:
    """Draw operators from top to bottom with what flows between them; a click picks one (selection "picked").

    `rows` has the data sets "edges" (`edge`, `point`, `x`, `y`), and "nodes" (`node`, `label`, `cell`, `kind`, `x`, `y`,
    `chosen` and the columns of the tooltip). Communication is told by colour and by the mark in front of its label.
    """
    nodes = rows["nodes"]
    height = ROW_PIXELS * max(3, 1 + int(max((node["y"] for node in nodes), default=0)))
    low = min((row["x"] for row in [*nodes, *rows["edges"]]), default=0) - 0.6
    high = max((row["x"] for row in [*nodes, *rows["edges"]]), default=0) + 0.6
    middle, half = (low + high) / 2, max(2.4, (high - low) / 2)
    x_scale = alt.Scale(domain=[middle - half, middle + half], nice=False, zero=False)
    y_scale = alt.Scale(domain=[-0.6, height / ROW_PIXELS - 0.4], reverse=True, nice=False, zero=False)
    x, y = alt.X("x:Q", axis=None, scale=x_scale), alt.Y("y:Q", axis=None, scale=y_scale)
    edges = (
        alt.Chart(alt.NamedData("edges"))
        .mark_line(strokeWidth=1.4, color=theme.MUTED, opacity=0.6, interpolate="monotone", orient="horizontal")
        .encode(x=x, y=y, detail=alt.Detail("edge:N"), order=alt.Order("point:Q"))
    )
    picked = alt.selection_point(name="picked", fields=["node"], on="click", clear=False, toggle=False)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("node", "op", "scope", "result", "strategy", "note", "source")]
    boxes = (
        alt.Chart(alt.NamedData("nodes"))
        .mark_rect(cornerRadius=4, cursor="pointer")
        .encode(
            x=alt.X("left:Q", axis=None, scale=x_scale),
            x2=alt.X2("right:Q"),
            y=alt.Y("top:Q", axis=None, scale=y_scale),
            y2=alt.Y2("bottom:Q"),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values()))),
            stroke=alt.condition("datum.chosen", alt.value(theme.TEXT), alt.value(theme.MUTED)),
            strokeWidth=alt.condition("datum.chosen", alt.value(3), alt.value(0.5)),
            tooltip=tooltip,
        )
        .add_params(picked)
    )
    room = TYPICAL_WIDTH / (2 * half) * 2 * HALF_WIDTH - 4
    text = alt.Chart(alt.NamedData("nodes")).encode(x=x, y=y, tooltip=tooltip)
    names = text.mark_text(fontSize=11, fontWeight=600, dy=-6, limit=room, cursor="pointer", color="#111111").encode(
        text=alt.Text("label:N")
    )
    cells = text.mark_text(fontSize=10, dy=8, limit=room, cursor="pointer", color="#222222").encode(text=alt.Text("cell:N"))
    chart = alt.LayerChart(layer=[edges, boxes, names, cells], width="container", height=height)
    return theme.with_rows(chart, rows)


def communication_bars(entries: pd.DataFrame) -> alt.Chart:
    """Draw the bytes that communication moves a step, one bar a cause, split by verdict.

    `entries` has one row an operator: `cause`, `verdict`, `bytes`. The rows drawn are the data set "causes".
    """
    known = entries[entries["bytes"].notna()].astype({"bytes": "float64"})
    sums = known.groupby(["cause", "verdict"], sort=False)["bytes"].agg(["sum", "count"]).reset_index()
    scale, unit = next(
        ((size, unit) for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")) if sums["sum"].max() >= size), (1, "B")
    )
    sums["amount"] = sums["sum"] / scale
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("causes"), width="container", height={"step": 30})
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("amount:Q", title=f"moved by a rank in a step ({unit})", stack="zero"),
            y=alt.Y("cause:N", title=None, sort="-x", axis=alt.Axis(labelLimit=240)),
            color=alt.Color("verdict:N", title=None, scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))),
            tooltip=[
                alt.Tooltip("cause:N"),
                alt.Tooltip("verdict:N"),
                alt.Tooltip("count:Q", title="operators"),
                alt.Tooltip("amount:Q", title=unit, format=",.3~f"),
            ],
        )
    )
    return theme.with_rows(chart, {"causes": theme.records(sums)})
