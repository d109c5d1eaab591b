"""Graphs of the compiler as pictures: the neighbourhood of an operator, and communication by cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from perfkit.explain.graph import GraphAnalysis
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.picture import Picture
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
WIDEST_PLACE = 170
"""Pixels of a box and the gap beside it where there is room; labels are cut to what fits a box."""


def dataflow_rows(analysis: GraphAnalysis, picture: Picture, chosen: Node | None) -> Rows:
    """The data sets of `dataflow`: the operators of the picture, and the way of every edge between them."""
    places = {(placed.node.graph, placed.node.id): placed for placed in picture.nodes}
    notes = {(entry.node.graph, entry.node.id): (entry.verdict, entry.why) for entry in analysis.communications}
    edges, heads = [], []
    for number, (source, target, between) in enumerate(picture.edges):
        start, end = places[source], places[target]
        # Straight down beside the boxes that it passes, else its bends run below their corners.
        passed = [(x, y + way) for x, y in between for way in (-HALF_HEIGHT, HALF_HEIGHT)]
        points = [(start.x, start.row + HALF_HEIGHT), *passed, (end.x, end.row - HALF_HEIGHT)]
        heads.append({"x": end.x, "y": end.row - HALF_HEIGHT})
        edges += [{"edge": number, "point": place, "x": x, "y": y} for place, (x, y) in enumerate(points)]
    nodes = []
    for placed in picture.nodes:
        node = placed.node
        verdict, why = notes.get((node.graph, node.id), ("", ""))
        nodes.append(
            {
                "node": node.key,
                "op": node.op,
                "label": f"⇄ {node.op}" if verdict else node.op,
                "cell": _cell(node),
                "scope": node.short_scope,
                "result": node.result,
                "strategy": node.strategy,
                "note": f"{verdict}: {why}" if verdict else "",
                "source": node.sources[-1] if node.sources else "",
                "kind": _kind_of(node, verdict),
                "chosen": chosen is not None and node is chosen,
                "x": placed.x,
                "y": placed.row,
                "left": placed.x - HALF_WIDTH,
                "right": placed.x + HALF_WIDTH,
                "top": placed.row - HALF_HEIGHT,
                "bottom": placed.row + HALF_HEIGHT,
            }
        )
    return {"nodes": nodes, "edges": edges, "heads": heads}  # the first is what the figure shows as its table


def _kind_of(node: Node, verdict: str) -> str:
    """The class of colour of an operator in a picture."""
    if verdict:
        return "communication" if verdict == "expected" else "avoidable communication"
    if node.is_copy:
        return "recomputed copy"
    return "backward" if node.is_backward else "forward"


def _cell(node: Node) -> str:
    """The cell that an operator belongs to, such as "w2"."""
    parts = node.short_scope.split("/")[:-1]
    names = (part.partition("-")[0] for part in reversed(parts) if "-" in part and not part.startswith("Grad_"))
    name = next(names, "")
    return name if name[:1].isalpha() else ""


def dataflow(rows: Rows) -> alt.LayerChart:
    """Draw operators from top to bottom with what flows between them; a click picks one (selection "picked").

    `rows` has the data sets "edges" (`edge`, `point`, `x`, `y`), "heads" (where each ends: `x`, `y`), and "nodes" (`node`, `label`,
    `cell`, `kind`, `x`, `y`, `chosen` and the columns of the tooltip). Communication is told by colour and by the mark in front of
    its label.
    """
    nodes = rows["nodes"]
    height = ROW_PIXELS * max(3, 1 + int(max((node["y"] for node in nodes), default=0)))
    low = min((row["x"] for row in [*nodes, *rows["edges"]]), default=0) - 0.6
    high = max((row["x"] for row in [*nodes, *rows["edges"]]), default=0) + 0.6
    half = f"max({(high - low) / 2}, width / {2 * WIDEST_PLACE})"
    ends = {name: alt.ExprRef(f"{(low + high) / 2} {sign} {half}") for name, sign in (("domainMin", "-"), ("domainMax", "+"))}
    x_scale = alt.Scale(**ends, nice=False, zero=False)
    y_scale = alt.Scale(domain=[-0.6, height / ROW_PIXELS - 0.4], reverse=True, nice=False, zero=False)
    x, y = alt.X("x:Q", axis=None, scale=x_scale), alt.Y("y:Q", axis=None, scale=y_scale)
    edges = (
        alt.Chart(alt.NamedData("edges"))
        .mark_line(strokeWidth=1.4, color=theme.MUTED, opacity=0.6, interpolate="monotone", orient="horizontal")
        .encode(x=x, y=y, detail=alt.Detail("edge:N"), order=alt.Order("point:Q"))
    )
    heads = (
        alt.Chart(alt.NamedData("heads"))
        .mark_point(shape="triangle-down", size=28, yOffset=-3, filled=True, color=theme.MUTED, opacity=1)
        .encode(x=x, y=y)
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
            color=alt.Color("kind:N", title=None, scale=theme.present_scale(KINDS, theme.words_in(nodes, "kind"))),
            stroke=alt.StrokeValue(theme.MUTED, condition={"test": "datum.chosen", "value": theme.TEXT}),
            strokeWidth=alt.StrokeWidthValue(0.5, condition={"test": "datum.chosen", "value": 3}),
            tooltip=tooltip,
        )
        .add_params(picked)
    )
    room = alt.ExprRef(f"min({WIDEST_PLACE}, width / {high - low}) * {2 * HALF_WIDTH} - 4")
    text = alt.Chart(alt.NamedData("nodes")).encode(x=x, y=y, tooltip=tooltip)
    names = text.mark_text(
        fontSize=11, fontWeight=600, dy=alt.ExprRef("datum.cell ? -6 : 1"), limit=room, cursor="pointer", color="#111111"
    ).encode(text=alt.Text("label:N"))
    cells = text.mark_text(fontSize=10, dy=8, limit=room, cursor="pointer", color="#222222").encode(text=alt.Text("cell:N"))
    chart = alt.LayerChart(layer=[edges, heads, boxes, names, cells], width="container", height=height)
    return theme.with_rows(chart, rows)


def communication_bars(entries: pd.DataFrame) -> alt.Chart:
    """Draw the bytes that communication moves a step, one bar a cause, split by verdict.

    `entries` has one row an operator: `cause`, `verdict`, `bytes`. The rows drawn are the data set "causes".
    """
    known = entries[entries["bytes"].notna()].astype({"bytes": "float64"})
    sums = known.groupby(["cause", "verdict"], sort=False)["bytes"].agg(moved_bytes="sum", count="count").reset_index()
    scale, unit = next(
        ((size, unit) for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")) if sums["moved_bytes"].max() >= size),
        (1, "B"),
    )
    sums["amount"] = sums["moved_bytes"] / scale
    return theme.bars(
        {"causes": theme.records(sums)},
        "causes",
        height={"step": 30},
        x=alt.X("amount:Q", title=f"moved by a rank in a step ({unit})", stack="zero"),
        y=alt.Y("cause:N", title=None, sort="-x", axis=alt.Axis(labelLimit=240)),
        color=alt.Color("verdict:N", title=None, scale=theme.present_scale(VERDICTS, sums["verdict"])),
        tooltip=[
            alt.Tooltip("cause:N"),
            alt.Tooltip("verdict:N"),
            alt.Tooltip("count:Q", title="operators"),
            theme.tooltip("amount", "number", title=unit),
        ],
    )
