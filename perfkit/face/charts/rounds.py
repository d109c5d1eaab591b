"""Rounds: the ladder of a tuning project, one point a round, with its prediction and the goal."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.core import quantity
from perfkit.face.charts import theme

VERDICTS = {"keep": "circle", "revert": "cross", "repeat": "diamond", "stop": "square", "open": "triangle-up"}


def ladder(rounds: pd.DataFrame, *, metric_title: str, goal: float | None) -> alt.LayerChart:
    """Draw the goal metric of every round; the shape is its verdict, a thin bar its predicted range, a dashed line the goal.

    `rounds` has `number`, `title`, `value`, `prediction`, `prediction_low`, `prediction_high`, `verdict`, `kind`. Predictions have
    open marks, measurements filled ones. Data sets: "rounds", "goal".
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
    shapes = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    line = base.mark_line(color=theme.COMPUTING, strokeWidth=1.5, opacity=0.6).encode(x=x, y=y)
    predicted_range = base.mark_rule(color=theme.COMMUNICATION, strokeWidth=5, opacity=0.35).encode(
        x=x, y=alt.Y("prediction_low:Q"), y2=alt.Y2("prediction_high:Q")
    )
    predicted = base.mark_point(filled=False, size=90, color=theme.COMMUNICATION, strokeWidth=2).encode(
        x=x, y=alt.Y("prediction:Q")
    )
    measured = base.mark_point(filled=True, size=110, color=theme.COMPUTING, opacity=1).encode(
        x=x, y=y, shape=alt.Shape("verdict:N", title="verdict", scale=shapes), tooltip=tooltip
    )
    value = alt.Text("value:Q", format=quantity.spelled("goal"))
    labels = base.mark_text(dy=-14, fontSize=12, color=theme.TEXT).encode(x=x, y=y, text=value)
    target = (
        alt.Chart(alt.NamedData("goal")).mark_rule(strokeDash=[6, 4], color=theme.GREEN, strokeWidth=1.5).encode(y=alt.Y("goal:Q"))
    )
    chart = alt.LayerChart(layer=[target, line, predicted_range, predicted, measured, labels], width="container", height=260)
    return theme.with_rows(chart, {"rounds": theme.records(rows), "goal": [] if goal is None else [{"goal": goal}]})
