"""Recomputation as pictures: settings by time and memory against the limit, and sets of operators by what they free and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
FIT: Mapping[str, str] = {"fits": theme.GREEN, "does not fit": theme.FREE}
CURVES: Mapping[str, str] = {"greedy": theme.COMMUNICATION, "exact": theme.COMPUTING}


@theme.drawn_once
def settings_chart(rows: Rows) -> alt.LayerChart:
    """Draw a point a setting: `more` (share of the step), `gib`, `name`, `fits` in "settings"; `limit` in "limit"."""
    base = alt.Chart(alt.NamedData("settings")).encode(
        x=alt.X("more:Q", title="longer step than without recomputation", axis=alt.Axis(format="%"), scale=alt.Scale(padding=48)),
        y=alt.Y("gib:Q", title="peak of the fullest stage (GiB)", scale=alt.Scale(zero=False, padding=24)),
    )
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        color=alt.Color("fits:N", title=None, scale=alt.Scale(domain=list(FIT), range=list(FIT.values()))),
        shape=alt.Shape("fits:N", title=None, scale=alt.Scale(domain=list(FIT), range=["circle", "triangle-up"])),
        tooltip=[alt.Tooltip("name:N"), theme.tooltip("more", "ratio", title="longer"), theme.tooltip("gib", "bytes", title="GiB")],
    )
    names = base.mark_text(align="left", dx=9, dy=-7, color=theme.TEXT).encode(text=alt.Text("name:N"))
    limit = (
        alt.Chart(alt.NamedData("limit"))
        .mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=theme.LIMIT)
        .encode(y=alt.Y("limit:Q"), tooltip=[theme.tooltip("limit", "bytes", title="limit (GiB)")])
    )
    chart = alt.LayerChart(layer=[limit, points, names], width="container", height=300)
    return theme.with_rows(chart, rows)


@theme.drawn_once
def curve_chart(rows: Rows) -> alt.LayerChart:
    """Draw both curves: `ms` and `mib` a layer and micro batch, `curve`, `added`, `index` in "curve"."""
    base = alt.Chart(alt.NamedData("curve")).encode(
        x=alt.X("ms:Q", title="longer backward pass of a layer (ms)"),
        y=alt.Y("mib:Q", title="memory freed a layer and micro batch (MiB)"),
        color=alt.Color("curve:N", title=None, scale=alt.Scale(domain=list(CURVES), range=list(CURVES.values()))),
    )
    lines = base.mark_line(interpolate="step-after", strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("curve:N", title=None, scale=alt.Scale(domain=list(CURVES), range=[[6, 4], [1, 0]])),
        order=alt.Order("index:Q"),
    )
    points = base.mark_point(filled=True, size=36, opacity=1).encode(
        tooltip=[
            alt.Tooltip("curve:N"),
            alt.Tooltip("added:N", title="operators"),
            theme.tooltip("mib", "bytes", title="MiB"),
            theme.tooltip("ms", "ns", title="ms"),
        ]
    )
    return theme.with_rows(alt.LayerChart(layer=[lines, points], width="container", height=300), rows)


def curve_rows(curves: Mapping[str, Sequence[tuple[float, float, str]]]) -> list[dict[str, Any]]:
    """Rows of `curve_chart` from (seconds, bytes, what is chosen) by curve."""
    return [
        {"curve": name, "ms": seconds * 1e3, "mib": saved / 2**20, "added": chosen, "index": index}
        for name, points in curves.items()
        for index, (seconds, saved, chosen) in enumerate(points)
    ]
