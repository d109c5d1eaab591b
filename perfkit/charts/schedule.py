"""A pipeline schedule as a picture: what every stage runs when, and its memory against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfkit.charts import _theme as theme
from perfkit.units import GIB, NS_PER_MS

ACTIVITIES = {
    "forward": theme.COMPUTING,
    "backward": theme.SKY,
    "recompute": theme.COMMUNICATION,
    "weight gradient": theme.GREEN,
    "forward + backward": theme.DATA,
    "transfer": theme.YELLOW,
}
"""What a stage does, in the order of the legend; the background between is idle."""
_OF_OP = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradient",
    "BW": "backward",
    "FBW": "forward + backward",
    "transfer": "transfer",
}
ROW_HEIGHT = 34
_SEAM = "rgba(0, 0, 0, 0.45)"
"""Between bars of one colour that follow each other without a break."""
_LABEL_SHARE = 0.02
"""A bar narrower than this share of the step has no room for its micro batch."""

Rows = dict[str, list[dict[str, Any]]]


def schedule_picture(rows: Rows, *, num_stages: int) -> alt.LayerChart:
    """Draw one lane a stage with the operations of every micro batch, outlined where they decide the makespan.

    `rows` comes from `schedule_rows`: data sets "lanes" (the idle background), "operations" and "labels".
    """
    stages = [str(stage) for stage in range(num_stages)]
    y = alt.Y("stage:N", title="stage", sort=stages, scale=alt.Scale(domain=stages, paddingInner=0.12))
    x = alt.X("start_ms:Q", title="time (ms)", scale=alt.Scale(nice=False, zero=True))
    lanes = alt.Chart(alt.NamedData("lanes")).mark_bar(color=theme.BUBBLE, opacity=0.25).encode(x=x, x2=alt.X2("end_ms:Q"), y=y)
    seen = {row["activity"] for row in rows["operations"]}
    names = [name for name in ACTIVITIES if name in seen]
    operations = (
        alt.Chart(alt.NamedData("operations"))
        .mark_bar()
        .encode(
            x=x,
            x2=alt.X2("end_ms:Q"),
            y=y,
            color=alt.Color(
                "activity:N", title=None, sort=names, scale=alt.Scale(domain=names, range=[ACTIVITIES[name] for name in names])
            ),
            stroke=alt.condition("datum.critical", alt.value(theme.TEXT), alt.value(_SEAM)),
            strokeWidth=alt.condition("datum.critical", alt.value(1.2), alt.value(0.5)),
            opacity=alt.condition("datum.critical", alt.value(1.0), alt.value(0.85)),
            tooltip=[
                alt.Tooltip("activity:N"),
                alt.Tooltip("stage:N"),
                alt.Tooltip("what:N", title="micro batch"),
                alt.Tooltip("start_ms:Q", title="start (ms)", format=",.4~r"),
                alt.Tooltip("end_ms:Q", title="end (ms)", format=",.4~r"),
                alt.Tooltip("critical:N", title="on the critical path"),
            ],
        )
    )
    labels = (
        alt.Chart(alt.NamedData("labels"))
        .mark_text(fontSize=10, color="white", fontWeight="bold")
        .encode(x=alt.X("middle_ms:Q"), y=y, text=alt.Text("label:N"))
    )
    chart = alt.LayerChart(layer=[lanes, operations, labels], width="container", height={"step": _row_height(num_stages)})
    return theme.with_rows(chart, rows)


def schedule_rows(operations: pd.DataFrame, recompute_ns: Sequence[Sequence[int]] | None = None) -> Rows:
    """The data sets of `schedule_picture` from `ScheduleResult.frame()`.

    `recompute_ns` by chunk and stage is the part of every backward that repeats the forward; it is drawn before the rest. More than
    5 000 bars are reduced: each stage is cut into equal slices, filled as far as it is busy with the colour of what it does most.
    """
    bars = operations.assign(activity=operations["op"].map(_OF_OP))
    if recompute_ns is not None:
        bars = _with_recompute(bars, recompute_ns)
    end_ns = int(operations["end_ns"].max())
    lanes = [{"stage": str(stage), "start_ms": 0.0, "end_ms": end_ns / NS_PER_MS} for stage in sorted(operations["stage"].unique())]
    several = int(operations["chunk"].max()) > 0
    if len(bars) > theme.MAX_MARKS:
        return {"lanes": lanes, "operations": _slices(bars, end_ns), "labels": []}
    bars = bars[bars["end_ns"] > bars["start_ns"]]
    drawn, labels = [], []
    for bar in bars.to_dict("records"):
        what = "" if bar["microbatch"] < 0 else f"{bar['microbatch']}.{bar['chunk']}" if several else str(bar["microbatch"])
        start_ms, stop_ms = bar["start_ns"] / NS_PER_MS, bar["end_ns"] / NS_PER_MS
        drawn.append(
            {
                "stage": str(bar["stage"]),
                "activity": bar["activity"],
                "what": what,
                "start_ms": start_ms,
                "end_ms": stop_ms,
                "critical": bool(bar["critical"]),
            }
        )
        if bar["activity"] in ("forward", "backward") and bar["end_ns"] - bar["start_ns"] > _LABEL_SHARE * end_ns:
            labels.append({"stage": str(bar["stage"]), "middle_ms": (start_ms + stop_ms) / 2, "label": what})
    return {"lanes": lanes, "operations": drawn, "labels": labels}


@theme.drawn_once
def memory_bars(rows: Rows) -> alt.LayerChart:
    """Draw the memory of every stage, parameters and activations stacked, against the limit.

    `rows` comes from `memory_rows`: data sets "memory" and "limit".
    """
    parts = ["constant", "parameters", "activations"]
    colors = [theme.BUBBLE, theme.COMPUTING, theme.COMMUNICATION]
    bars = (
        alt.Chart(alt.NamedData("memory"))
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("stage:N", title="stage", sort=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("gib:Q", title="GiB", stack="zero"),
            color=alt.Color("part:N", title=None, sort=parts, scale=alt.Scale(domain=parts, range=colors)),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("stage:N"), alt.Tooltip("part:N"), alt.Tooltip("gib:Q", title="GiB", format=",.4~r")],
        )
    )
    rule = (
        alt.Chart(alt.NamedData("limit"))
        .mark_rule(color=theme.FREE, strokeWidth=2, strokeDash=[6, 4])
        .encode(y=alt.Y("gib:Q"), tooltip=[alt.Tooltip("gib:Q", title="limit (GiB)", format=",.4~r")])
    )
    return theme.with_rows(alt.LayerChart(layer=[bars, rule], width="container", height=240), rows)


def memory_rows(parts_bytes: dict[str, Sequence[int]], limit_bytes: int | None) -> Rows:
    """The data sets of `memory_bars`; `parts_bytes` has one list by stage for "constant", "parameters" and "activations"."""
    rows = [
        {"stage": str(stage), "part": part, "gib": amount / GIB, "order": order}
        for order, (part, amounts) in enumerate(parts_bytes.items())
        for stage, amount in enumerate(amounts)
    ]
    return {"memory": rows, "limit": [] if limit_bytes is None else [{"gib": limit_bytes / GIB}]}


def _row_height(num_stages: int) -> int:
    return max(10, min(ROW_HEIGHT, 420 // num_stages))


def _with_recompute(bars: pd.DataFrame, recompute_ns: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Every backward as two bars: the repeated forward, then the rest."""
    table = np.array(recompute_ns, dtype=np.int64)
    backward = (bars["op"] == "B").to_numpy()
    again = np.zeros(len(bars), dtype=np.int64)
    again[backward] = table[bars["chunk"].to_numpy()[backward], bars["stage"].to_numpy()[backward]]
    first = bars[again > 0].assign(activity="recompute")
    first["end_ns"] = first["start_ns"] + again[again > 0]
    rest = bars.assign(start_ns=bars["start_ns"] + again)
    return pd.concat([rest, first], ignore_index=True).sort_values(["stage", "start_ns"], kind="stable", ignore_index=True)


def _slices(bars: pd.DataFrame, end_ns: int) -> list[dict[str, Any]]:
    """Equal slices of every lane, as long as they are busy, with the activity that takes most of each."""
    stages = sorted(bars["stage"].unique())
    count = theme.MAX_MARKS // len(stages)
    borders = np.linspace(0, end_ns, count + 1)
    drawn: list[tuple[int, float, float, str]] = []
    for stage in stages:
        own = bars[bars["stage"] == stage]
        names = list(dict.fromkeys(own["activity"]))
        filled = np.stack([_filled(own[own["activity"] == name], borders) for name in names])
        busy_ns = filled.sum(axis=0)
        drawn += [
            (stage, borders[index], borders[index] + busy_ns[index], names[int(filled[:, index].argmax())])
            for index in np.flatnonzero(busy_ns).tolist()
        ]
    return [
        {
            "stage": str(stage),
            "activity": activity,
            "what": "several",
            "start_ms": start_ns / NS_PER_MS,
            "end_ms": stop_ns / NS_PER_MS,
            "critical": False,
        }
        for stage, start_ns, stop_ns, activity in drawn
    ]


def _filled(bars: pd.DataFrame, borders: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How much of every slice the bars, which do not overlap, fill."""
    points = np.stack([bars["start_ns"].to_numpy(), bars["end_ns"].to_numpy()], axis=1).reshape(-1).astype(np.float64)
    lengths = np.stack([np.zeros(len(bars)), (bars["end_ns"] - bars["start_ns"]).to_numpy()], axis=1).reshape(-1)
    if not len(points):
        return np.zeros(len(borders) - 1)
    return np.diff(np.interp(borders, points, np.cumsum(lengths)))
