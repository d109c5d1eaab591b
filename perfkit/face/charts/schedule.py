"""A pipeline schedule as a picture: what every stage runs when, and its memory against the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from perfkit.core.units import GIB, NS_PER_MS
from perfkit.face.charts import theme
from perfkit.face.charts.spec import Columns

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
_HEIGHT = 420
ROW_HEIGHT = 34
MOST_BARS = 2_000
"""Bars that are drawn one by one: with more they are too narrow to be told apart, and take longer to draw than a slider may."""
_SEAM = "rgba(0, 0, 0, 0.45)"
"""Between bars of one colour that follow each other without a break."""
_LABEL_SHARE = 0.02
"""A bar narrower than this share of the step has no room for its micro batch."""

_SECONDS_FROM_MS = 10_000
"""A step from here on has its axis in seconds, in which one counts it."""

Rows = dict[str, list[dict[str, Any]]]
_Bars = dict[str, NDArray[Any]]


def schedule_picture(rows: dict[str, Columns]) -> alt.LayerChart:
    """Draw one lane a stage with the operations of every micro batch, outlined where they decide the makespan.

    `rows` comes from `schedule_rows`: data sets "lanes" (the idle background), "operations" and "labels". Its height is a parameter
    of the live view, see `picture_height`.
    """
    seen = set(rows["operations"]["activity"])
    in_seconds = max(rows["lanes"]["end_ms"], default=0) >= _SECONDS_FROM_MS
    return _picture(rows, activities=tuple(name for name in ACTIVITIES if name in seen), in_seconds=in_seconds)


def picture_height(num_stages: int) -> int:
    """Height of the picture for so many stages: not part of its structure, so that another number of stages draws nothing anew."""
    return num_stages * max(10, min(ROW_HEIGHT, _HEIGHT // num_stages))


@theme.drawn_once
def _picture(rows: dict[str, Columns], *, activities: tuple[str, ...], in_seconds: bool) -> alt.LayerChart:
    y = alt.Y("stage:O", title="stage", scale=alt.Scale(paddingInner=0.12))
    axis = alt.Axis(title="time (s)", labelExpr="format(datum.value / 1000, ',')") if in_seconds else alt.Axis()
    x = alt.X("start_ms:Q", title="time (ms)", axis=axis, scale=alt.Scale(nice=False, zero=True))
    lanes = alt.Chart(alt.NamedData("lanes")).mark_bar(color=theme.BUBBLE, opacity=0.25).encode(x=x, x2=alt.X2("end_ms:Q"), y=y)
    names, colors = list(activities), [ACTIVITIES[name] for name in activities]
    operations = (
        alt.Chart(alt.NamedData("operations"))
        .mark_bar()
        .encode(
            x=x,
            x2=alt.X2("end_ms:Q"),
            y=y,
            color=alt.Color("activity:N", title=None, sort=names, scale=alt.Scale(domain=names, range=colors)),
            stroke=alt.StrokeValue(_SEAM, condition={"test": "datum.critical", "value": theme.TEXT}),
            strokeWidth=alt.StrokeWidthValue(0.5, condition={"test": "datum.critical", "value": 1.2}),
            opacity=alt.OpacityValue(0.85, condition={"test": "datum.critical", "value": 1.0}),
            tooltip=[
                alt.Tooltip("activity:N"),
                alt.Tooltip("stage:N"),
                alt.Tooltip("what:N", title="micro batch"),
                theme.tooltip("start_ms", "moment", title="start (ms)"),
                theme.tooltip("end_ms", "moment", title="end (ms)"),
                alt.Tooltip("critical:N", title="on the critical path"),
            ],
        )
    )
    labels = (
        alt.Chart(alt.NamedData("labels"))
        .mark_text(fontSize=10, color="white", fontWeight="bold")
        .encode(x=alt.X("middle_ms:Q"), y=y, text=alt.Text("label:N"))
    )
    chart = alt.LayerChart(layer=[lanes, operations, labels], width="container", height=_HEIGHT)
    return theme.with_rows(chart, rows)


def schedule_rows(operations: Mapping[str, Any], recompute_ns: Sequence[Sequence[int]] | None = None) -> dict[str, Columns]:
    """The data sets of `schedule_picture`, by column, from `ScheduleResult.columns()` or from its frame.

    `recompute_ns` by chunk and stage is the part of every backward that repeats the forward; it is drawn before the rest. More than
    `MOST_BARS` bars are reduced: each stage is cut into equal slices, filled as far as it is busy with the colour of what it does
    most.
    """
    bars = {name: np.asarray(operations[name]) for name in ("stage", "microbatch", "chunk", "start_ns", "end_ns", "critical")}
    bars["op"] = np.array(list(operations["op"]), dtype=object)
    bars["activity"] = np.array([_OF_OP[op] for op in bars["op"]], dtype=object)
    if recompute_ns is not None:
        bars = _with_recompute(bars, recompute_ns)
    end_ns, stages = int(bars["end_ns"].max()), np.unique(bars["stage"]).tolist()
    lanes = {"stage": stages, "start_ms": [0.0] * len(stages), "end_ms": [end_ns / NS_PER_MS] * len(stages)}
    if len(bars["stage"]) > MOST_BARS:
        bars = _slices(bars, end_ns)
        drawn = _columns(bars, ["several"] * len(bars["stage"]))
        return {"lanes": lanes, "operations": drawn, "labels": {"stage": [], "middle_ms": [], "label": []}}
    bars = _only(bars, bars["end_ns"] > bars["start_ns"])
    drawn = _columns(bars, _numbers(bars))
    wide = bars["end_ns"] - bars["start_ns"] > _LABEL_SHARE * end_ns
    labelled = np.flatnonzero(wide & ((bars["activity"] == "forward") | (bars["activity"] == "backward"))).tolist()
    labels = {
        "stage": [drawn["stage"][bar] for bar in labelled],
        "middle_ms": [(drawn["start_ms"][bar] + drawn["end_ms"][bar]) / 2 for bar in labelled],
        "label": [drawn["what"][bar] for bar in labelled],
    }
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
            x=alt.X("gib:Q", title="peak of one device (GiB)", stack="zero"),
            y=alt.Y("stage:N", title="stage", sort=None),
            color=alt.Color("part:N", title=None, sort=parts, scale=alt.Scale(domain=parts, range=colors)),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("stage:N"), alt.Tooltip("part:N"), theme.tooltip("gib", "bytes", title="GiB")],
        )
    )
    rule = (
        alt.Chart(alt.NamedData("limit"))
        .mark_rule(color=theme.FREE, strokeWidth=2, strokeDash=[6, 4])
        .encode(x=alt.X("gib:Q"), tooltip=[theme.tooltip("gib", "bytes", title="limit (GiB)")])
    )
    return theme.with_rows(alt.LayerChart(layer=[bars, rule], width="container", height={"step": 24}), rows)


def memory_rows(parts_bytes: dict[str, Sequence[int]], limit_bytes: int | None) -> Rows:
    """The data sets of `memory_bars`; `parts_bytes` has one list by stage for "constant", "parameters" and "activations"."""
    rows = [
        {"stage": str(stage), "part": part, "gib": amount / GIB, "order": order}
        for order, (part, amounts) in enumerate(parts_bytes.items())
        for stage, amount in enumerate(amounts)
    ]
    return {"memory": rows, "limit": [] if limit_bytes is None else [{"gib": limit_bytes / GIB}]}


def _columns(bars: _Bars, whats: list[str]) -> Columns:
    return {
        "stage": bars["stage"].tolist(),
        "activity": bars["activity"].tolist(),
        "what": whats,
        "start_ms": (bars["start_ns"] / NS_PER_MS).tolist(),
        "end_ms": (bars["end_ns"] / NS_PER_MS).tolist(),
        "critical": bars["critical"].tolist(),
    }


def _numbers(bars: _Bars) -> list[str]:
    """The micro batch of every bar, with its chunk where there are several."""
    several = bool((bars["chunk"] > 0).any())
    numbers = zip(bars["microbatch"].tolist(), bars["chunk"].tolist(), strict=True)
    return ["" if number < 0 else f"{number}.{chunk}" if several else str(number) for number, chunk in numbers]


def _only(bars: _Bars, chosen: NDArray[Any]) -> _Bars:
    return {name: values[chosen] for name, values in bars.items()}


def _with_recompute(bars: _Bars, recompute_ns: Sequence[Sequence[int]]) -> _Bars:
    """Every backward as two bars: the repeated forward, then the rest."""
    table = np.array(recompute_ns, dtype=np.int64)
    backward = bars["op"] == "B"
    again = np.zeros(len(backward), dtype=np.int64)
    again[backward] = table[bars["chunk"][backward], bars["stage"][backward]]
    first = _only(bars, again > 0)
    first["activity"] = np.full(len(first["stage"]), "recompute", dtype=object)
    first["end_ns"] = first["start_ns"] + again[again > 0]
    rest = {**bars, "start_ns": bars["start_ns"] + again}
    both = {name: np.concatenate([rest[name], first[name]]) for name in rest}
    return _only(both, np.lexsort((both["start_ns"], both["stage"])))


def _slices(bars: _Bars, end_ns: int) -> _Bars:
    """Equal slices of every lane, as long as they are busy, with the activity that takes most of each."""
    stages = np.unique(bars["stage"]).tolist()
    borders = np.linspace(0, end_ns, MOST_BARS // len(stages) + 1)
    lanes = []
    for stage in stages:
        own = _only(bars, bars["stage"] == stage)
        names = list(dict.fromkeys(own["activity"].tolist()))
        filled = np.stack([_filled(_only(own, own["activity"] == name), borders) for name in names])
        busy_ns, most = filled.sum(axis=0), np.array(names, dtype=object)[filled.argmax(axis=0)]
        lane = {"start_ns": borders[:-1], "end_ns": borders[:-1] + busy_ns, "activity": most}
        lane |= {"stage": np.full(len(most), stage), "critical": np.zeros(len(most), dtype=np.bool_)}
        lanes.append(_only(lane, busy_ns > 0))
    return {name: np.concatenate([lane[name] for lane in lanes]) for name in lanes[0]}


def _filled(bars: _Bars, borders: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of every slice the bars, which do not overlap, fill."""
    starts, ends = bars["start_ns"], bars["end_ns"]
    if not len(starts):
        return np.zeros(len(borders) - 1)
    points = np.stack([starts, ends], axis=1).reshape(-1).astype(np.float64)
    lengths = np.stack([np.zeros(len(starts)), ends - starts], axis=1).reshape(-1)
    return np.diff(np.interp(borders, points, np.cumsum(lengths)))
