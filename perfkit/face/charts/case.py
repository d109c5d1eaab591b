"""The guided case as pictures: what a step takes on every stage, and what was guessed, predicted and reported."""

from __future__ import annotations

from typing import Any

import altair as alt

from perfkit.face.charts import theme

WORK = {
    "forward and backward": theme.COMPUTING,
    "computed again": theme.RECOMPUTE,
    "moving data": theme.COMMUNICATION,
    "update and host": theme.FREE,
    "waiting for the other stage": theme.BUBBLE,
}
ANSWERS = {"reported": theme.COMPUTING, "within 10 %": theme.GREEN, "more than 10 % off": theme.FREE}

Rows = dict[str, list[dict[str, Any]]]


@theme.drawn_once
def stage_work(rows: Rows) -> alt.Chart:
    """Draw a bar a round and stage: `place` ("round 2, stage 0"), `work`, `seconds`, `order` in the data set "stages"."""
    return theme.bars(
        rows,
        "stages",
        height={"step": 30},
        x=alt.X("seconds:Q", title="time for 1 000 tokens of a device (s)", stack="zero"),
        y=alt.Y("place:N", title=None, sort=None),
        color=alt.Color(
            "work:N", title=None, scale=alt.Scale(domain=list(WORK), range=list(WORK.values())), legend=alt.Legend(columns=3)
        ),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("place:N"), alt.Tooltip("work:N"), theme.tooltip("seconds", "ns")],
    )


@theme.drawn_once
def answers(rows: Rows) -> alt.LayerChart:
    """Draw the guess, the prediction and the reported value (data set "answers").

    Rows have `who`, `value`, `label`, `judged`, `why` (inside the bar) and `room`, up to where the axis goes.
    """
    base = alt.Chart(alt.NamedData("answers"))
    y = alt.Y("who:N", title=None, sort=None)
    x = alt.X("value:Q", title="tokens/s/device", scale=alt.Scale(zero=True, nice=False))
    bars = base.mark_bar(cornerRadius=1).encode(
        x=x,
        y=y,
        color=alt.Color("judged:N", title=None, scale=alt.Scale(domain=list(ANSWERS), range=list(ANSWERS.values()))),
        tooltip=[alt.Tooltip("who:N"), theme.tooltip("value", "number"), alt.Tooltip("label:N"), alt.Tooltip("why:N")],
    )
    labels = base.mark_text(align="left", dx=6, color=theme.TEXT).encode(x=x, y=y, text=alt.Text("label:N"))
    reasons = base.mark_text(align="left", dx=6, color="#000000").encode(x=alt.XDatum(0), y=y, text=alt.Text("why:N"))
    room = base.mark_point(opacity=0).encode(x=alt.X("room:Q"), y=y)
    return theme.with_rows(alt.LayerChart(layer=[bars, room, labels, reasons], width="container", height={"step": 38}), rows)
