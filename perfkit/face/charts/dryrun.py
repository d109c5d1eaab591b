"""Dry runs as a picture: the peak of every rank without and with the gaps between blocks, against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from perfkit.core.units import GIB
from perfkit.face.charts import theme
from perfkit.face.charts.limits import limit_marks, limit_rows

Rows = dict[str, list[dict[str, Any]]]
MAX_BARS = 32
KINDS = {
    "blocks in use": theme.COMPUTING,
    "gaps between blocks": theme.COMMUNICATION,
    "blocks in use, predicted": theme.SKY,
    "gaps, predicted": theme.YELLOW,
}


@theme.drawn_once
def rank_bars(rows: Rows) -> alt.LayerChart:
    """Draw a stacked bar a rank and the limit. Data sets "ranks" and "limit" come from `rank_bar_rows`."""
    base = alt.Chart(alt.NamedData("ranks"))
    y = alt.Y("label:N", title=None, sort=alt.EncodingSortField("order", op="min"), axis=alt.Axis(labelLimit=240))
    bars = base.mark_bar(cornerRadius=1).encode(
        x=alt.X("start:Q", title="peak of one device (GiB)", scale=alt.Scale(zero=True)),
        x2=alt.X2("end:Q"),
        y=y,
        color=alt.Color(
            "kind:N",
            title=None,
            sort=list(KINDS),
            scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())),
            legend=alt.Legend(columns=2),
        ),
        tooltip=[
            alt.Tooltip("label:N", title="rank"),
            alt.Tooltip("kind:N"),
            theme.tooltip("gib", "bytes", title="GiB"),
            theme.tooltip("peak", "bytes", title="peak with gaps (GiB)"),
            theme.tooltip("room", "bytes", title="left of the limit (GiB)", signed=True),
        ],
    )
    likely = base.mark_rule(color=theme.TEXT, strokeWidth=1.5).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y)
    chart = alt.LayerChart(layer=[bars, likely, *limit_marks()], width="container", height={"step": 34})
    return theme.with_rows(chart, rows)


def rank_bar_rows(bars: Sequence[dict[str, Any]], limit_bytes: int | None) -> Rows:
    """The data sets of `rank_bars`; of more than `MAX_BARS` ranks those with the least room.

    A bar is {"label", "predicted": bool, "used_bytes", "actual_bytes", "headroom_bytes", "low_bytes", "high_bytes"}, sizes None
    where they are not known.
    """
    shown = list(enumerate(bars))
    if len(shown) > MAX_BARS:
        tightest = sorted(shown, key=lambda entry: (entry[1]["headroom_bytes"] is None, entry[1]["headroom_bytes"] or 0))
        shown = sorted(tightest[:MAX_BARS], key=lambda entry: entry[0])
    found: list[dict[str, Any]] = []
    for order, bar in shown:
        used, actual = bar["used_bytes"], bar["actual_bytes"]
        first, second = list(KINDS)[2:] if bar["predicted"] else list(KINDS)[:2]
        inner = used if used is not None else actual
        if inner is None:
            continue
        outer = max(inner, actual if actual is not None else inner)
        common = {
            "label": bar["label"],
            "order": order,
            "peak": outer / GIB,
            "room": None if bar["headroom_bytes"] is None else bar["headroom_bytes"] / GIB,
        }
        # What fits or not is the peak with its gaps, which grow with what is in use.
        to_peak = outer / inner / GIB if inner else 0.0
        likely = {name: None if bar[f"{name}_bytes"] is None else bar[f"{name}_bytes"] * to_peak for name in ("low", "high")}
        found.append({**common, **likely, "kind": first, "start": 0, "end": inner / GIB, "gib": inner / GIB})
        if outer > inner:
            gap = {
                "kind": second,
                "start": inner / GIB,
                "end": outer / GIB,
                "gib": (outer - inner) / GIB,
                "low": None,
                "high": None,
            }
            found.append({**common, **gap})
    return {"ranks": found, "limit": limit_rows(limit_bytes)}
