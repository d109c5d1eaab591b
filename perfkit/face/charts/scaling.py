"""Scaling: throughput of several runs against the ideal line from the smallest, and MFU against devices beside published runs."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.face.charts import theme
from perfkit.predict.cost.scaling import OWN


def linearity_chart(table: pd.DataFrame) -> alt.LayerChart:
    """Draw measured points and the ideal line; `table` comes from `predict.cost.scaling.linearity_table` (data set "runs")."""
    rows = table.assign(measured=table["tokens_per_s"] / 1e3, ideal=table["ideal_tokens_per_s"] / 1e3)[
        ["name", "num_devices", "measured", "ideal", "linearity_ratio"]
    ]
    base = alt.Chart(alt.NamedData("runs"))
    x = alt.X("num_devices:Q", title="devices", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickMinStep=1))
    ideal = base.mark_line(color=theme.MUTED, strokeDash=[6, 4]).encode(x=x, y=alt.Y("ideal:Q", title="throughput (10³ tokens/s)"))
    tooltip = [
        alt.Tooltip("name:N"),
        theme.tooltip("measured", "tokens_per_s", title="10³ tokens/s"),
        theme.tooltip("ideal", "tokens_per_s", title="ideal, 10³ tokens/s"),
        theme.tooltip("linearity_ratio", "linearity_ratio", title="linearity"),
    ]
    points = base.mark_point(filled=True, size=90, color=theme.COMPUTING, opacity=1).encode(
        x=x, y=alt.Y("measured:Q"), tooltip=tooltip
    )
    chart = alt.LayerChart(layer=[ideal, points], width="container", height=240)
    return theme.with_rows(chart, {"runs": theme.records(rows)})


def mfu_against_devices(points: pd.DataFrame) -> alt.Chart:
    """Draw MFU against the number of devices, published runs and one's own; `points` are of `scaling.mfu_points`."""
    rows = points[["name", "device", "num_devices", "mfu", "source"]]
    devices = [OWN, *(name for name in dict.fromkeys(rows["device"]) if name != OWN)]
    colors = dict(zip(devices, theme.path_colors(devices), strict=True))
    powers = [2**power for power in range(int(rows["num_devices"].max()).bit_length() + 1)]
    chart: alt.Chart = alt.Chart(alt.NamedData("points"), width="container", height=280).mark_point(filled=True, opacity=0.75)
    drawn: alt.Chart = chart.encode(
        x=alt.X(
            "num_devices:Q",
            title="devices",
            scale=alt.Scale(type="log", base=2, padding=16, nice=False),
            axis=alt.Axis(values=powers, format=",d"),
        ),
        y=alt.Y("mfu:Q", title="MFU", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=True)),
        color=alt.Color("device:N", title="device", scale=theme.present_scale(colors, rows["device"])),
        size=alt.SizeValue(70, condition={"test": f"datum.device === '{OWN}'", "value": 220}),
        tooltip=[
            alt.Tooltip("name:N"),
            alt.Tooltip("device:N"),
            theme.tooltip("num_devices", "num_devices"),
            theme.tooltip("mfu", "mfu"),
            alt.Tooltip("source:N"),
        ],
    )
    return theme.with_rows(drawn, {"points": theme.records(rows)})
