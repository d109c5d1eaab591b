"""The class as a picture: who is where, one cell a student and exercise."""

from __future__ import annotations

from typing import Any

import altair as alt

from perfkit.face.charts import theme

STATES = {"untouched": "#e4e9ef", "trying": "#E69F00", "right with hint": "#56B4E9", "right": "#0072B2", "revealed": "#999999"}


def progress_map(rows: list[dict[str, Any]]) -> alt.LayerChart:
    """Draw the rows of `perfkit.teach.report.cells` (data set "cells"); the number is that of wrong tries."""
    base = alt.Chart(alt.NamedData("cells"))
    x = alt.X("exercise:N", title=None, axis=alt.Axis(labelAngle=-90))
    y = alt.Y("student:N", title=None)
    color = alt.Color("state:N", title=None, scale=alt.Scale(domain=list(STATES), range=list(STATES.values())))
    tooltip = [alt.Tooltip(f"{name}:N", title=name) for name in ("student", "exercise", "state")]
    tooltip.append(alt.Tooltip("tries:Q", title="wrong tries"))
    squares = base.mark_rect(stroke="white").encode(x=x, y=y, color=color, tooltip=tooltip)
    tries = (
        base.transform_filter("datum.tries > 0").mark_text(fontSize=10, color=theme.TEXT).encode(x=x, y=y, text=alt.Text("tries:Q"))
    )
    return theme.with_rows(alt.LayerChart(layer=[squares, tries], width="container", height={"step": 22}), {"cells": rows})
