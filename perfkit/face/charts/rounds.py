"""Rounds: the ladder of a tuning project, one point a round, with its prediction and the goal."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.core import quantity
from perfkit.face.charts import theme

SERIES = {
    "measured": theme.TEXT,
    "predicted (ring) and its range (bar)": theme.PIPELINE,
    "goal (dashed)": theme.GREEN,
}
"""What is drawn, as the legend says it."""
BESIDE = 26
"""Pixels from a measured point to what was predicted of it, so that neither covers the number above the point."""
VERDICTS = {"keep": "circle", "revert": "cross", "repeat": "diamond", "stop": "square", "open": "triangle-up"}


def ladder(rounds: pd.DataFrame, *, metric_title: str, goal: float | None) -> alt.LayerChart:
    """Draw the goal metric of every round with its predicted range as a thin bar beside it, and the goal as a dashed line.

    `rounds` has `number`, `title`, `value`, `prediction`, `prediction_low`, `prediction_high`, `verdict`, `kind`. Predictions have
    open marks, measurements filled ones; where verdicts differ, the shape of a measurement is its round's. Data sets: "rounds",
    "goal".
    """
    rows = rounds.assign(verdict=rounds["verdict"].fillna("open"))
    base = alt.Chart(alt.NamedData("rounds"))
    x = alt.X("number:O", title="round", axis=alt.Axis(labelAngle=0))
    y = alt.Y("value:Q", title=metric_title, scale=alt.Scale(zero=False, padding=24))
    tooltip = [
        alt.Tooltip("number:O", title="round"),
        alt.Tooltip("title:N"),
        theme.tooltip("value", "goal", title=metric_title),
        theme.tooltip("prediction", "goal"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("kind:N"),
    ]
    verdicts = theme.words_in(theme.records(rows), "verdict")
    shape = alt.Shape(
        "verdict:N",
        title="verdict",
        scale=theme.present_scale(VERDICTS, verdicts),
        legend=alt.Legend(symbolFillColor=theme.TEXT, symbolStrokeWidth=0) if len(verdicts) > 1 else None,
    )
    shown = dict(zip(SERIES, (True, rows["prediction"].notna().any(), goal is not None), strict=True))
    scale = theme.present_scale(SERIES, [name for name, drawn in shown.items() if drawn])
    measure, prediction, aim = (
        alt.ColorDatum(name, title=None, scale=scale, legend=alt.Legend(symbolType="square", symbolOpacity=1)) for name in SERIES
    )
    beside = alt.ExprRef(expr=f"min({BESIDE}, width / {2 * max(1, len(rows))})")  # on a phone halfway to the next round
    line = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(x=x, y=y, color=measure)
    predicted_range = base.mark_rule(strokeWidth=5, opacity=0.35, xOffset=beside).encode(
        x=x, y=alt.Y("prediction_low:Q"), y2=alt.Y2("prediction_high:Q"), color=prediction
    )
    predicted = base.mark_point(filled=False, size=70, strokeWidth=2, opacity=1, xOffset=beside).encode(
        x=x, y=alt.Y("prediction:Q"), color=prediction
    )
    measured = base.mark_point(filled=True, size=110, opacity=1).encode(x=x, y=y, color=measure, shape=shape, tooltip=tooltip)
    value = alt.Text("value:Q", format=quantity.spelled("goal"))
    labels = base.mark_text(dy=-14, fontSize=12, color=theme.TEXT).encode(x=x, y=y, text=value)
    target = alt.Chart(alt.NamedData("goal")).mark_rule(strokeDash=[6, 4], strokeWidth=1.5).encode(y=alt.Y("goal:Q"), color=aim)
    chart = alt.LayerChart(layer=[target, line, predicted_range, predicted, measured, labels], width="container", height=260)
    return theme.with_rows(chart, {"rounds": theme.records(rows), "goal": [] if goal is None else [{"goal": goal}]})
