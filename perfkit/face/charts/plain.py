"""Plain charts that many answers share: ranked bars, values over time, and lanes of stretches."""

from __future__ import annotations

from typing import Any

import altair as alt

from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
PARTS = (theme.COMPUTING, theme.COMMUNICATION, theme.FREE, theme.GREEN, theme.DATA, theme.SKY, theme.YELLOW, theme.BUBBLE)


def ranked_bars(rows: Rows, *, title: str) -> alt.Chart:
    """Draw a bar for each label, stacked by part, in the order of the rows: "bars" has `label`, `value`, `part` and `detail`."""
    return theme.bars(
        rows,
        "bars",
        height={"step": 22},
        x=alt.X("value:Q", title=title, stack="zero"),
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
        color=_parts(rows["bars"]),
        tooltip=[alt.Tooltip("detail:N"), alt.Tooltip("part:N"), theme.tooltip("value", "number", title=title)],
    )


def time_steps(rows: Rows, *, title: str) -> alt.Chart:
    """Draw values that hold until the next one, a line each part: "steps" has `ms`, `value` and `part`."""
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("steps"), width="container", height=260)
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=alt.X("ms:Q", title="ms since the first row", scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=title),
            color=_parts(rows["steps"]),
            tooltip=[alt.Tooltip("part:N"), theme.tooltip("ms", "moment"), theme.tooltip("value", "number", title=title)],
        )
    )
    return theme.with_rows(chart, rows)


def lanes(rows: Rows) -> alt.Chart:
    """Draw stretches of time, a lane each label: "stretches" has `label`, `begin_ms`, `end_ms`, `part` and `detail`."""
    return theme.bars(
        rows,
        "stretches",
        height={"step": 30},
        x=alt.X("begin_ms:Q", title="ms since the first row", scale=alt.Scale(nice=False)),
        x2=alt.X2("end_ms:Q"),
        y=alt.Y("label:N", title=None, sort=None),
        color=_parts(rows["stretches"]),
        tooltip=[
            alt.Tooltip("detail:N"),
            alt.Tooltip("part:N"),
            theme.tooltip("begin_ms", "moment"),
            theme.tooltip("end_ms", "moment"),
        ],
    )


def _parts(rows: list[dict[str, Any]]) -> alt.Color:
    """The colours of the parts that are there: those of the theme by name, else in turn."""
    found = list(dict.fromkeys(str(row["part"]) for row in rows))
    colors = [theme.PATH_COLORS.get(part, PARTS[place % len(PARTS)]) for place, part in enumerate(found)]
    legend = alt.Legend() if len(found) > 1 else None
    return alt.Color("part:N", title=None, sort=found, legend=legend, scale=alt.Scale(domain=found, range=colors))
