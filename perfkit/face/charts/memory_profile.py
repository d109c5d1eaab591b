"""Memory over time as pictures: allocated under reserved against the limit, and who owns the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from perfkit.core import quantity
from perfkit.core.units import GIB
from perfkit.explain.memory_use import Curve
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
MAX_OWNERS = 12
LEAST_SHARE = 0.005
"""Of the peak; smaller owners are drawn as one."""
LINES = {"allocated": theme.SKY, "reserved": theme.MUTED}


@theme.drawn_once
def memory_area(rows: Rows, *, x_title: str) -> alt.LayerChart:
    """Draw what is allocated as an area under the line of what is reserved. Data sets from `memory_area_rows`."""
    scale = alt.Scale(domain=list(LINES), range=list(LINES.values()))
    color = alt.Color("kind:N", title=None, scale=scale, sort=list(LINES), legend=alt.Legend(symbolOpacity=1))
    x = alt.X("time:Q", title=x_title, scale=alt.Scale(nice=False))
    tooltip = [theme.tooltip("time", "moment", title=x_title), theme.tooltip("gib", "bytes", title="GiB")]
    data = alt.Chart(alt.NamedData("curve"))
    area = (
        data.transform_filter("datum.kind == 'allocated'")
        .mark_area(interpolate="step-after", opacity=0.55)
        .encode(x=x, y=alt.Y("gib:Q", title="memory (GiB)", scale=alt.Scale(zero=True)), color=color, tooltip=tooltip)
    )
    line = (
        data.transform_filter("datum.kind == 'reserved'")
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=x, y=alt.Y("gib:Q"), color=color, tooltip=tooltip)
    )
    mark = alt.Chart(alt.NamedData("peak")).encode(x=alt.X("time:Q"))
    dot = mark.mark_point(size=80, filled=True, color=theme.FREE).encode(y=alt.Y("gib:Q"), tooltip=tooltip)
    name = mark.mark_text(align="left", dx=8, dy=-6, color=theme.TEXT).encode(y=alt.Y("gib:Q"), text=alt.Text("label:N"))
    limit = alt.Chart(alt.NamedData("limit")).mark_rule(color=theme.LIMIT, strokeWidth=1.5, strokeDash=[6, 4])
    rule = limit.encode(y=alt.Y("limit:Q"), tooltip=[theme.tooltip("limit", "bytes", title="limit (GiB)")])
    return theme.with_rows(alt.LayerChart(layer=[area, line, dot, name, rule], width="container", height=280), rows)


def memory_area_rows(points: Sequence[Mapping[str, Any]], peak: tuple[float, float] | None, limit_bytes: int | None) -> Rows:
    """The data sets of `memory_area`.

    `points` have `time` (as drawn), `allocated_bytes` and `reserved_bytes` (None: not recorded); `peak` is its time and bytes.
    """
    found = [
        {"time": point["time"], "kind": kind, "gib": point[f"{kind}_bytes"] / GIB}
        for kind in LINES
        for point in points
        if point[f"{kind}_bytes"] is not None
    ]
    top = [] if peak is None else [{"time": peak[0], "gib": peak[1] / GIB, "label": "peak"}]
    return {"curve": found, "peak": top, "limit": [] if limit_bytes is None else [{"limit": limit_bytes / GIB}]}


def curve_chart(curve: Curve, limit_bytes: int | None = None) -> alt.LayerChart:
    """A curve of memory with its peak, against a limit where there is one."""
    points, unit = curve_points(curve)
    top = curve.allocated_peak_bytes if curve.allocated_peak_bytes is not None else curve.reserved_peak_bytes
    at = None if top is None or curve.peak_moment is None else (drawn_at(curve, curve.peak_moment), float(top))
    return memory_area(memory_area_rows(points, at, limit_bytes), x_title=unit)


def curve_points(curve: Curve) -> tuple[list[dict[str, Any]], str]:
    """The points of a curve for `memory_area_rows`, and the title of its time."""
    rows = [
        {
            "time": drawn_at(curve, int(row["time"])),
            "allocated_bytes": None if pd.isna(row["allocated_bytes"]) else int(row["allocated_bytes"]),
            "reserved_bytes": None if pd.isna(row["reserved_bytes"]) else int(row["reserved_bytes"]),
        }
        for row in curve.frame.to_dict("records")
    ]
    return rows, "ms since the first record" if curve.clock == "ns" else "events of the allocator (no time)"


def drawn_at(curve: Curve, moment: int) -> float:
    """Where a moment of a curve is drawn."""
    since = moment - int(curve.frame["time"].iloc[0])
    return since / 1e6 if curve.clock == "ns" else float(moment)


def owner_bars(rows: Rows) -> alt.Chart:
    """Draw a bar for each owner of memory at the peak, in the unit of a table of them. Data set "owners" from `owner_rows`."""
    unit, of_bytes, _ = quantity.column("size_bytes", [row["size_bytes"] for row in rows["owners"]])
    drawn = [{**row, "size": quantity.scaled(row["size_bytes"], of_bytes)} for row in rows["owners"]]
    return _owner_bars({"owners": drawn}, unit=unit)


@theme.drawn_once
def _owner_bars(rows: Rows, *, unit: str) -> alt.Chart:
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("owners"))
        .mark_bar(cornerRadius=1, color=theme.COMPUTING)
        .encode(
            x=alt.X("size:Q", title=f"alive at the peak ({unit})"),
            y=alt.Y("owner:N", title=None, sort="-x", axis=alt.Axis(labelLimit=260)),
            tooltip=[
                alt.Tooltip("owner:N"),
                theme.tooltip("size", "bytes", title=unit),
                theme.tooltip("share", "ratio", title="share of the peak"),
            ],
        )
        .properties(width="container", height={"step": 26})
    )
    return theme.with_rows(chart, rows)


def owner_rows(sizes: Mapping[str, int]) -> Rows:
    """The data set of `owner_bars` for bytes by owner; the largest `MAX_OWNERS`, all others as one."""
    total = max(1, sum(sizes.values()))
    ranked = sorted(sizes.items(), key=lambda entry: -entry[1])
    shown = [(name, size) for name, size in ranked[:MAX_OWNERS] if size >= LEAST_SHARE * total]
    if rest := sum(size for _, size in ranked[len(shown) :]):
        shown.append((f"{len(ranked) - len(shown)} others", rest))
    return {"owners": [{"owner": name or "not recorded", "size_bytes": size, "share": size / total} for name, size in shown]}
