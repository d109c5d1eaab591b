"""Studies as pictures: which input moves the step, what features would do, how throughput grows with devices."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from perfkit.core import quantity
from perfkit.core.units import GIB
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
LABEL_WIDTH, LABEL_HEIGHT = 0.22, 0.05
"""Room of a label as shares of the axes."""
SIDES = {"worse": theme.FREE, "better": theme.GREEN}


@theme.drawn_once
def tornado(rows: Rows) -> alt.LayerChart:
    """Draw a bar to each side of the predicted step an input. Data sets "sides" and "now" come from `tornado_rows`."""
    bars = (
        alt.Chart(alt.NamedData("sides"))
        .mark_bar(cornerRadius=1)
        .encode(
            y=alt.Y("input:N", title=None, sort=alt.EncodingSortField(field="swing", op="max", order="descending")),
            x=alt.X("from:Q", title="step time (s)", scale=alt.Scale(zero=False)),
            x2=alt.X2("to:Q"),
            color=alt.Color(
                "side:N", title=None, sort=list(SIDES), scale=alt.Scale(domain=list(SIDES), range=list(SIDES.values()))
            ),
            tooltip=[
                alt.Tooltip("input:N"),
                alt.Tooltip("side:N", title="input is"),
                theme.tooltip("to", "step_time_s", title="step (s)"),
                theme.tooltip("change", "ratio", title="change", signed=True),
            ],
        )
    )
    now = alt.Chart(alt.NamedData("now")).mark_rule(color=theme.MUTED, strokeWidth=1.5).encode(x=alt.X("now:Q"))
    return theme.with_rows(alt.LayerChart(layer=[bars, now], width="container", height={"step": 30}), rows)


def tornado_rows(frame: pd.DataFrame, step_time_s: float) -> Rows:
    """The data sets of `tornado` from a frame of `studies.sensitivity`."""
    rows = [
        {
            "input": row["input"],
            "side": side,
            "from": step_time_s,
            "to": row[f"step_time_{side}_s"],
            "change": row[f"step_time_{side}_s"] / step_time_s - 1,
            "swing": row["swing_ratio"],
        }
        for row in frame.to_dict("records")
        for side in SIDES
    ]
    return {"sides": rows, "now": [{"now": step_time_s}]}


@theme.drawn_once
def feature_points(rows: Rows) -> alt.LayerChart:
    """Draw every feature by its peak memory and speed, from the plan as it is. Data set "features" from `feature_rows`."""
    base = alt.Chart(alt.NamedData("features"))
    x = alt.X("gib:Q", title="peak of the fullest device (GiB)", scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("speed:Q", title="tokens/s/device", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format="~s"))
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x,
        y=y,
        shape=alt.Shape("kind:N", title=None, sort=["as planned", "with it"]),
        color=alt.Color(
            "kind:N", title=None, scale=alt.Scale(domain=["as planned", "with it"], range=[theme.FREE, theme.COMPUTING])
        ),
        tooltip=[
            alt.Tooltip("feature:N"),
            alt.Tooltip("change:N"),
            theme.tooltip("gib", "bytes", title="GiB"),
            theme.tooltip("speed", "tokens_per_s_per_device", title="tokens/s/device"),
        ],
    )
    names = base.mark_text(align="left", dx=8, dy=-6, fontSize=11, color=theme.TEXT).encode(x=x, y=y, text=alt.Text("label:N"))
    return theme.with_rows(alt.LayerChart(layer=[points, names], width="container", height=320), rows)


def feature_rows(frame: pd.DataFrame) -> Rows:
    """The data set of `feature_points` from a frame of `studies.features`; features without speed or memory are left out."""
    names = ["feature", "change", "peak_memory_bytes", "tokens_per_s_per_device"]
    rows = [
        {
            "feature": feature,
            "change": change,
            "gib": peak / GIB,
            "speed": speed,
            "kind": "as planned" if feature == "as planned" else "with it",
        }
        for feature, change, peak, speed in zip(*(frame[name].tolist() for name in names), strict=True)
        if not (pd.isna(peak) or pd.isna(speed))
    ]
    return {"features": _labelled(rows)}


def _labelled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with a label where it overlaps none before it; the others are named by their tooltip and the table."""
    if not rows:
        return rows
    spans = {name: max(row[name] for row in rows) - min(row[name] for row in rows) or 1.0 for name in ("gib", "speed")}
    shown: list[dict[str, Any]] = []
    for row in rows:
        free = all(
            abs(row["gib"] - other["gib"]) > LABEL_WIDTH * spans["gib"]
            or abs(row["speed"] - other["speed"]) > LABEL_HEIGHT * spans["speed"]
            for other in shown
        )
        row["label"] = row["feature"] if free else ""
        if free:
            shown.append(row)
    return rows


@theme.drawn_once
def growth_lines(rows: Rows) -> alt.LayerChart:
    """Draw predicted and ideal throughput over devices, both on logarithmic axes. Data set "growth" from `growth_rows`."""
    base = alt.Chart(alt.NamedData("growth"))
    x = alt.X("num_devices:Q", title="devices", scale=alt.Scale(type="log", base=2), axis=alt.Axis(format=",d", grid=False))
    tooltip = [
        theme.tooltip("num_devices", "count", title="devices"),
        theme.tooltip("tokens_per_s", "tokens_per_s", title="tokens/s"),
        theme.tooltip("linearity", "linearity_ratio"),
        theme.tooltip("exposed_ratio", "ratio", title="exposed communication"),
        theme.tooltip("bubble_ratio", "ratio", title="bubble"),
    ]
    y = alt.Y("tokens_per_s:Q", title="tokens/s of the whole job", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s"))
    ideal = base.mark_line(color=theme.MUTED, strokeDash=[6, 4]).encode(
        x=x, y=alt.Y("ideal_tokens_per_s:Q", scale=alt.Scale(type="log"))
    )
    line = base.mark_line(color=theme.COMPUTING).encode(x=x, y=y)
    points = base.mark_point(size=80, color=theme.COMPUTING, fill="white", opacity=1).encode(x=x, y=y, tooltip=tooltip)
    share = alt.Text("linearity:Q", format=quantity.spelled("linearity_ratio"))
    labels = base.mark_text(dy=16, fontSize=11, color=theme.TEXT).encode(x=x, y=y, text=share)
    return theme.with_rows(alt.LayerChart(layer=[ideal, line, points, labels], width="container", height=300), rows)


def growth_rows(frame: pd.DataFrame) -> Rows:
    """The data set of `growth_lines` from a frame of `studies.growth`; numbers of devices that do not work are left out."""
    names = ("num_devices", "tokens_per_s", "ideal_tokens_per_s", "linearity", "exposed_ratio", "bubble_ratio")
    rows = [dict(zip(names, values, strict=True)) for values in zip(*(frame[name].tolist() for name in names), strict=True)]
    return {"growth": [row for row in rows if not pd.isna(row["tokens_per_s"])]}
