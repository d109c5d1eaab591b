"""Clusters as pictures: every rank in its place by colour, ranks of a stage as dots, links as a matrix, the parallel layout."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from perfkit.core import quantity
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

RELATIONS = {
    "chosen": theme.TEXT,
    "tensor": theme.TENSOR,
    "data": theme.DATA_PARALLEL,
    "pipeline": theme.PIPELINE,
    "context": theme.CONTEXT,
    "expert": theme.EXPERT,
    "other": theme.BUBBLE,
}
"""What a rank is to the chosen one: the dimension of a group that both are in."""
MOST_LABELS = 128
"""Cells of a grid that still have room for the number of their rank."""
FEW_ROWS = 12
WIDEST_CELL = 110
"""Pixels: so few columns that they would be wider leave the rest of the width free."""
FEW_COLUMNS = 3
MOST_NUMBERS = 8
"""Ends of links beside one another that leave room for a rate in each cell, on a phone too."""
ENDS = {"source": "from rank", "target": "to rank"}
FULL_COLOUR = 0.02
"""Twice the deviation from which a rule looks at a rank: what is a tenth of a percent off has the colour of the page."""
DARK = 0.2
"""Luminance below which white is read more easily than black."""
STAGE_PIXELS = 44
TITLE_LIMIT = 460


def rank_grid(rows: Rows, *, words: str, axes: str, scale: str) -> alt.LayerChart:
    """Draw a cell a rank, coloured by `value`, which is `words`; a click picks the rank.

    `rows` has the data set "grid" with `rank`, `place`, `row`, `value`, `shown` (the value as text) and `note`, from `grid_rows`
    with the same `axes` ("stage", "node") and `scale`: "median" is blue below and orange above the stage's, at full colour from 2 %
    on, so that what is within the noise has the colour of the page; "ms" and "max" start at the smallest value.
    """
    cells, diverging = rows["grid"], scale == "median"
    titles = {"median": f"{words}, against the stage's median", "ms": f"{words} (ms)", "max": f"{words}, of the largest"}
    largest = max([FULL_COLOUR, *(abs(cell["value"]) for cell in cells if cell["value"] is not None)])
    colors = theme.diverging_scale(largest) if diverging else alt.Scale(scheme=theme.SEQUENTIAL)
    axis = alt.Axis(format="+.1%") if diverging else alt.Axis(format=",.4~r")
    # More than three labels run into one another below a short bar.
    legend = alt.Legend(format=axis.format, titleLimit=TITLE_LIMIT, values=[-largest, 0, largest] if diverging else alt.Undefined)
    base = alt.Chart(alt.NamedData("grid")).encode(
        x=alt.X("place:O", title=f"rank in its {axes}", axis=alt.Axis(labelAngle=0, labelOverlap=True, orient="top")),
        y=alt.Y("row:O", title=axes, sort=None),
    )
    marks = base.mark_rect(stroke=theme.MUTED, strokeWidth=0.5, cornerRadius=2, cursor="pointer").encode(
        color=alt.Color("value:Q", title=titles[scale], scale=colors, legend=legend),
        tooltip=[alt.Tooltip("rank:N"), alt.Tooltip("shown:N", title=words), alt.Tooltip("note:N", title="place")],
    )
    return _cells(base, marks, cells, rows)


def _cells(base: alt.Chart, marks: alt.Chart, cells: list[dict[str, Any]], rows: Rows) -> alt.LayerChart:
    layers = [marks]
    if len(cells) <= MOST_LABELS:
        layers.append(_words(base, alt.Text("rank:N"), on=str(marks.encoding.color.shorthand).partition(":")[0]))
    columns = len({cell["place"] for cell in cells})
    num_rows = len({cell["row"] for cell in cells})
    chart = alt.LayerChart(layer=layers, width=_across(columns), height={"step": 34 if num_rows <= FEW_ROWS else 18})
    return theme.with_rows(chart, rows)


def _words(base: alt.Chart, text: alt.Text, *, on: str) -> alt.Chart:
    """The words of cells that are coloured by the column `on`: white where black would have less contrast."""
    dark = f"isValid(datum['{on}']) && luminance(scale('color', datum['{on}'])) < {DARK}"
    color = alt.ColorValue("#1b1b1b", condition={"test": dark, "value": "white"})
    words: alt.Chart = base.mark_text(fontSize=11, fontWeight=600).encode(text=text, color=color)
    return words


def stage_dots(rows: Rows, *, title: str) -> alt.LayerChart:
    """Draw every rank as a dot beside the ranks of its stage, with the band in which it is like them.

    `rows` has the data sets "ranks" (`rank`, `stage`, `value_ms`, `state`, `over_stage`, `z`) and "bands" (`stage`,
    `low_ms`, `high_ms`, `median_ms`).
    """
    y = alt.Y("stage:N", title="stage", sort=None)
    band = (
        alt.Chart(alt.NamedData("bands"))
        .mark_rect(color=theme.GREEN, opacity=0.18)
        .encode(x=alt.X("low_ms:Q", title=title, scale=alt.Scale(zero=False)), x2=alt.X2("high_ms:Q"), y=y)
    )
    median = alt.Chart(alt.NamedData("bands")).mark_tick(color=theme.GREEN, thickness=2).encode(x=alt.X("median_ms:Q"), y=y)
    states = {"like its stage": theme.COMPUTING, "stands out": theme.FREE, "slow rank": theme.FREE}
    dots = (
        alt.Chart(alt.NamedData("ranks"))
        .mark_point(filled=True, size=80, opacity=0.8, stroke=theme.TEXT, strokeWidth=0.8, cursor="pointer")
        .encode(
            x=alt.X("value_ms:Q"),
            y=y,
            color=alt.Color("state:N", title=None, scale=alt.Scale(domain=list(states), range=list(states.values()))),
            shape=alt.Shape("state:N", title=None, scale=alt.Scale(domain=list(states), range=["circle", "diamond", "cross"])),
            tooltip=[
                alt.Tooltip("rank:N"),
                theme.tooltip("value_ms", "ns", title="ms"),
                theme.tooltip("over_stage", "number", title="of the stage's median"),
                theme.tooltip("z", "number", title="robust z", signed=True),
            ],
        )
    )
    return theme.with_rows(alt.LayerChart(layer=[band, median, dots], width="container", height={"step": STAGE_PIXELS}), rows)


def link_matrix(rows: Rows) -> alt.LayerChart:
    """Draw the bandwidth of every link with the ends that are more from left to right; slow links are ringed.

    `rows` has the data set "links" with `source`, `target`, `gb_per_s`, `slowness`, `transport`, `operation` and `slow`.
    """
    ends = {name: len({row[name] for row in rows["links"]}) for name in ENDS}
    across, down = sorted(ends, key=lambda name: -ends[name])
    base = alt.Chart(alt.NamedData("links")).encode(
        x=alt.X(f"{across}:O", title=ENDS[across], axis=alt.Axis(labelAngle=0, labelOverlap=True, orient="top")),
        y=alt.Y(f"{down}:O", title=ENDS[down], axis=alt.Axis(labelOverlap=True)),
    )
    cells = base.mark_rect(cursor="pointer").encode(
        color=alt.Color("gb_per_s:Q", title="GB/s", scale=alt.Scale(scheme=theme.SEQUENTIAL, zero=True)),
        tooltip=[
            alt.Tooltip("source:O", title="from rank"),
            alt.Tooltip("target:O", title="to rank"),
            theme.tooltip("gb_per_s", "bytes_per_s", title="GB/s"),
            theme.tooltip("slowness", "number", title="time a byte against like links"),
            alt.Tooltip("transport:N"),
            alt.Tooltip("operation:N"),
        ],
    )
    rings = base.transform_filter("datum.slow").mark_rect(fillOpacity=0, stroke=theme.FREE, strokeWidth=3)
    rate = alt.Text("gb_per_s:Q", format=quantity.spelled("bytes_per_s"))
    numbers = [_words(base, rate, on="gb_per_s")] if ends[across] <= MOST_NUMBERS else []
    height: Any = {"step": 34} if ends[down] <= FEW_ROWS else {"step": 24} if ends[down] <= 2 * FEW_ROWS else 420
    chart = alt.LayerChart(layer=[cells, *numbers, rings], width=_across(ends[across]), height=height)
    return theme.with_rows(chart, rows)


def _across(columns: int) -> Any:
    """The width of a matrix of so many columns: that of its place, where its cells do not become beams."""
    return {"step": WIDEST_CELL} if columns <= FEW_COLUMNS else "container"


def flops_map(rows: Rows) -> alt.LayerChart:
    """Draw FLOPs, rate and computing time of every rank against the mean of the ranks (data set "flops").

    `rows["flops"]` has `rank`, `metric`, `over_mean` (ratio - 1) and `shown`.
    """
    base = alt.Chart(alt.NamedData("flops")).encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap=True, orient="top")),
        y=alt.Y("metric:N", title=None, sort=None),
    )
    largest = max((abs(row["over_mean"]) for row in rows["flops"] if row["over_mean"] is not None), default=0.0)
    edge = max(largest, 0.01)
    cells = base.mark_rect(stroke=theme.MUTED, strokeWidth=0.5, cornerRadius=2, cursor="pointer").encode(
        color=alt.Color(
            "over_mean:Q",
            title="against the mean of the ranks",
            scale=theme.diverging_scale(edge),
            legend=alt.Legend(format="+.1%", titleLimit=TITLE_LIMIT, values=[-edge, 0, edge]),
        ),
        tooltip=[
            alt.Tooltip("rank:O"),
            alt.Tooltip("metric:N"),
            alt.Tooltip("shown:N"),
            theme.tooltip("over_mean", "ratio", title="against the mean", signed=True),
        ],
    )
    return theme.with_rows(alt.LayerChart(layer=[cells], width="container", height={"step": 30}), rows)


def layout_map(rows: Rows, *, axis: str) -> alt.LayerChart:
    """Draw the parallel layout: each rank in its place, coloured by the group that it shares with the chosen rank.

    `rows` has the data set "layout" with `rank`, `place`, `row` (of `axis`, "stage" or "node"), `relation` and `note`. A click
    picks a rank.
    """
    cells = rows["layout"]
    base = alt.Chart(alt.NamedData("layout")).encode(
        x=alt.X("place:O", title=f"rank in its {axis}", axis=alt.Axis(labelAngle=0, labelOverlap=True, orient="top")),
        y=alt.Y("row:O", title=axis, sort=None),
    )
    present = [name for name in RELATIONS if any(cell["relation"] == name for cell in cells)]
    scale = alt.Scale(domain=present, range=[RELATIONS[name] for name in present])
    marks = base.mark_rect(stroke=theme.GROUND, strokeWidth=1, cornerRadius=2, cursor="pointer").encode(
        color=alt.Color("relation:N", title=None, scale=scale),
        tooltip=[alt.Tooltip("rank:N"), alt.Tooltip("relation:N"), alt.Tooltip("note:N", title="place")],
    )
    return _cells(base, marks, cells, rows)


def link_rows(table: pd.DataFrame) -> Rows:
    """The data set of `link_matrix` from rows of `explain.communication.link_table`; above 5 000 the slow and the largest."""
    cells = [
        {
            "source": int(row["source_rank"]),
            "target": int(row["target_rank"]),
            "gb_per_s": row["bytes_per_s"] / 1e9,
            "slowness": None if pd.isna(row["slowness"]) else float(row["slowness"]),
            "transport": str(row["transport"]),
            "operation": str(row["operation"]),
            "slow": bool(row["slow"]),
        }
        for row in table.head(theme.MAX_MARKS).to_dict("records")
    ]
    return {"links": cells}
