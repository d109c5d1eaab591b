"""Scaling: throughput of several runs against the ideal line from the smallest, and MFU against devices beside published runs."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.core.texts import say
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
    end = alt.Chart(alt.NamedData("end")).mark_text(align="right", dx=-16, dy=-6, color=theme.MUTED)
    named = end.encode(x=x, y=alt.Y("ideal:Q"), text=alt.Text("label:N"))
    chart = alt.LayerChart(layer=[ideal, points, named], width="container", height=240)
    last = rows[["num_devices", "ideal"]].iloc[1:].tail(1).assign(label="linear")
    return theme.with_rows(chart, {"runs": theme.records(rows), "end": theme.records(last)})


def mfu_against_devices(points: pd.DataFrame) -> alt.LayerChart:
    """Draw MFU against the number of devices, published runs and one's own, which is a line as well: its devices may be missing.

    `points` are of `scaling.mfu_points`.
    """
    rows = points[["name", "device", "num_devices", "mfu", "source"]]
    own = [{"mfu": mfu, "label": say("yours: {mfu_ratio}", mfu_ratio=float(mfu))} for mfu in rows.loc[rows["device"] == OWN, "mfu"]]
    rows = rows.dropna(subset=["num_devices"]).astype({"num_devices": "int64"})
    devices = [OWN, *(name for name in dict.fromkeys(rows["device"]) if name != OWN)]
    colors = dict(zip(devices, theme.path_colors(devices), strict=True))
    powers = [2**power for power in range(int(rows["num_devices"].max()).bit_length() + 1)]
    y = alt.Y("mfu:Q", title="MFU", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=True))
    drawn = (
        alt.Chart(alt.NamedData("points"))
        .mark_point(filled=True, opacity=0.75)
        .encode(
            x=alt.X(
                "num_devices:Q",
                title="devices",
                scale=alt.Scale(type="log", base=2, padding=16, nice=False),
                axis=alt.Axis(values=powers, format=",d"),
            ),
            y=y,
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
    )
    line = alt.Chart(alt.NamedData("own")).encode(y=y)
    rule = line.mark_rule(color=theme.TEXT, strokeWidth=1.5)
    label = line.mark_text(align="left", baseline="bottom", dy=-3, color=theme.TEXT, fontWeight="bold").encode(
        x=alt.XValue(28),  # type: ignore[no-untyped-call]
        text=alt.Text("label:N"),
    )
    chart = alt.LayerChart(layer=[rule, drawn, label], width="container", height=280)
    return theme.with_rows(chart, {"points": theme.records(rows), "own": own})
