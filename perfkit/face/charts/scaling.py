"""Scaling: the throughput of several runs against the ideal line from the smallest."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.face.charts import theme


def linearity_chart(table: pd.DataFrame) -> alt.LayerChart:
    """Draw measured points and the ideal line; `table` comes from `predict.cost.scaling.linearity_table` (data set "runs")."""
    rows = table.assign(
        measured=table["tokens_per_s"] / 1e3,
        ideal=table["ideal_tokens_per_s"] / 1e3,
    )[["name", "num_devices", "measured", "ideal", "linearity_ratio"]]
    base = alt.Chart(alt.NamedData("runs"))
    x = alt.X("num_devices:Q", title="devices", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickMinStep=1))
    ideal = base.mark_line(color=theme.MUTED, strokeDash=[6, 4]).encode(x=x, y=alt.Y("ideal:Q", title="throughput (10³ tokens/s)"))
    tooltip = [
        "name:N",
        theme.tooltip("measured", "tokens_per_s", title="10³ tokens/s"),
        theme.tooltip("ideal", "tokens_per_s", title="ideal, 10³ tokens/s"),
        theme.tooltip("linearity_ratio", "linearity_ratio", title="linearity"),
    ]
    points = base.mark_point(filled=True, size=90, color=theme.COMPUTING, opacity=1).encode(
        x=x, y=alt.Y("measured:Q"), tooltip=tooltip
    )
    chart = alt.LayerChart(layer=[ideal, points], width="container", height=240)
    return theme.with_rows(chart, {"runs": theme.records(rows)})
