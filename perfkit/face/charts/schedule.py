"""A pipeline schedule as a picture: what every stage runs when, and its memory against the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray

from perfkit.core.units import GIB, NS_PER_MS
from perfkit.face.charts import theme
from perfkit.face.charts.limits import limit_marks, limit_rows
from perfkit.face.charts.spec import Columns

ACTIVITIES = {
    "forward": theme.COMPUTING,
    "backward": theme.SKY,
    "recompute": theme.RECOMPUTE,
    "weight gradient": theme.GREEN,
    "forward + backward": theme.DATA,
    "transfer": theme.COMMUNICATION,
}
"""What a stage does, in the order of the legend; the background between is idle."""
_LIGHT = [name for name, color in ACTIVITIES.items() if theme.is_light(color)]
"""Activities whose bars have their micro batch in black."""
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

_ENDS = 6
"""At least so many micro batches are drawn at each end of a step whose middle repeats."""
_GAP_SHARE = 0.05
"""How much of what is drawn stands for what is left out between."""
_CUT = "data('cut')[0]"
_NARROW = 500
"""Pixels of a picture whose bars have no room for numbers."""
_HELD = {"constant": "constant", "parameters": "weights, gradients, optimizer", "activations": "activations"}
"""What a stage holds, in words: elsewhere "parameters" are the weights alone."""
_SECONDS_FROM_MS = 10_000
"""A step from here on has its axis in seconds, in which one counts it."""

Rows = dict[str, list[dict[str, Any]]]


class _Cut(NamedTuple):
    """What is left out between two moments: so much of the time, the rest is room for the number of micro batches."""

    at_ns: int
    to_ns: int
    skipped_ns: int = 0
    left_out: int = 0

    def row(self, stages: Sequence[int]) -> Columns:
        times = {"start_ms": self.at_ns, "end_ms": self.to_ns, "duration_ms": self.skipped_ns}
        label = f"+{self.left_out}" if self.left_out else ""
        return {"stage": [stages[len(stages) // 2]], "label": [label], **{name: [ns / NS_PER_MS] for name, ns in times.items()}}


_Bars = dict[str, NDArray[Any]]


def schedule_picture(rows: dict[str, Columns]) -> alt.LayerChart:
    """Draw one lane a stage with the operations of every micro batch, outlined where they decide the makespan.

    `rows` comes from `schedule_rows`: data sets "lanes" (the idle background), "operations", "labels" and "cut", the time between
    the first and the last micro batches that is left out. Its height is a parameter of the live view, see `picture_height`. It is
    drawn on a canvas also where it begins with few bars: one more stage may make them many.
    """
    seen = set(rows["operations"]["activity"])
    chart = _picture(rows, in_seconds=max(rows["lanes"]["end_ms"], default=0) >= _SECONDS_FROM_MS)
    return theme.with_present(chart, [name for name in ACTIVITIES if name in seen])


def picture_height(num_stages: int) -> int:
    """Height of the picture for so many stages: not part of its structure, so that another number of stages draws nothing anew."""
    return num_stages * max(10, min(ROW_HEIGHT, _HEIGHT // num_stages))


@theme.drawn_once
def _picture(rows: dict[str, Columns], *, in_seconds: bool) -> alt.LayerChart:
    y = alt.Y("stage:O", title="stage", scale=alt.Scale(paddingInner=0.12))
    clock = f"datum.value + (datum.value > {_CUT}.start_ms ? {_CUT}.duration_ms : 0)"
    left_out_here = f"datum.value > {_CUT}.start_ms && datum.value < {_CUT}.end_ms - {_CUT}.duration_ms"  # no time of its own
    unit, shown = ("s", f"({clock}) / 1000") if in_seconds else ("ms", clock)
    axis = alt.Axis(title=f"time ({unit})", labelExpr=f"{left_out_here} ? '' : format({shown}, ',')", labelBound=True)
    x = alt.X("from_ms:Q", axis=axis, scale=alt.Scale(nice=False, zero=True))
    lanes = _placed("lanes").mark_bar(color=theme.BUBBLE, opacity=0.25).encode(x=x, x2=alt.X2("until_ms:Q"), y=y)
    left_out = (
        alt.Chart(alt.NamedData("cut"))
        .transform_calculate(middle_ms="(datum.start_ms + datum.end_ms - datum.duration_ms) / 2")
        .mark_text(color=theme.TEXT, fontSize=alt.ExprRef(f"width < {_NARROW} ? 8 : 11"))
        .encode(x=alt.X("middle_ms:Q", axis=axis), y=y, text=alt.Text("label:N"))
    )
    names = list(ACTIVITIES)
    scale = alt.Scale(domain=names, range=list(ACTIVITIES.values()))
    operations = (
        _placed("operations")
        .mark_bar()
        .encode(
            x=x,
            x2=alt.X2("until_ms:Q"),
            y=y,
            color=alt.Color("activity:N", title=None, sort=names, scale=scale, legend=theme.present_legend()),
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
        _placed("labels")
        .transform_calculate(middle_ms="(datum.from_ms + datum.until_ms) / 2")
        .mark_text(fontSize=10, fontWeight="bold", opacity=alt.ExprRef(f"width < {_NARROW} ? 0 : 1"))
        .encode(
            x=alt.X("middle_ms:Q", axis=axis),
            y=y,
            text=alt.Text("label:N"),
            color=alt.ColorValue("white", condition={"test": f"indexof({_LIGHT}, datum.activity) >= 0", "value": "black"}),
        )
    )
    named = theme.present_param(names)
    layer = [left_out, lanes, operations, labels]
    chart = alt.LayerChart(layer=layer, width="container", height=_HEIGHT, params=[named], usermeta={"renderer": "canvas"})
    return theme.with_rows(chart, rows)


def _placed(rows: str) -> alt.Chart:
    """From where to where rows are drawn in the time without what is left out; their own times stay as they are."""
    return alt.Chart(alt.NamedData(rows)).transform_calculate(
        from_ms=f"datum.start_ms <= {_CUT}.start_ms ? datum.start_ms : max(datum.start_ms, {_CUT}.end_ms) - {_CUT}.duration_ms",
        until_ms=f"datum.end_ms >= {_CUT}.end_ms ? datum.end_ms - {_CUT}.duration_ms : min(datum.end_ms, {_CUT}.start_ms)",
    )


def schedule_rows(operations: Mapping[str, Any], recompute_ns: Sequence[Sequence[int]] | None = None) -> dict[str, Columns]:
    """The data sets of `schedule_picture`, by column, from `ScheduleResult.columns()` or from its frame.

    `recompute_ns` by chunk and stage is the part of every backward that repeats the forward; it is drawn before the rest. Of a step
    of many micro batches whose middle repeats the first and the last are drawn. Where these are more than `MOST_BARS` bars, the
    whole step is reduced: each stage is cut into equal slices, filled as far as it is busy with the colour of what it does most.
    """
    bars = _bars(operations, recompute_ns)
    end_ns, stages = int(bars["end_ns"].max()), np.unique(bars["stage"]).tolist()
    cut = _cut(bars, end_ns)
    bars = _only(bars, (bars["start_ns"] < cut.at_ns) | (bars["end_ns"] > cut.to_ns))
    if len(bars["stage"]) > MOST_BARS:
        return {
            "lanes": _lanes(stages, [(0, end_ns)]),
            "operations": schedule_table(operations, recompute_ns),
            "labels": {"stage": [], "start_ms": [], "end_ms": [], "label": [], "activity": []},
            "cut": _Cut(end_ns, end_ns).row(stages),
        }
    drawn = _columns(bars, _numbers(bars))
    lanes = _lanes(stages, [(0, cut.at_ns), (cut.to_ns, end_ns)] if cut.left_out else [(0, end_ns)])
    wide = bars["end_ns"] - bars["start_ns"] > _LABEL_SHARE * (end_ns - cut.skipped_ns)
    wide &= (bars["end_ns"] <= cut.at_ns) | (bars["start_ns"] >= cut.to_ns)  # what is cut there has less room
    labelled = np.flatnonzero(wide & ((bars["activity"] == "forward") | (bars["activity"] == "backward"))).tolist()
    of = {"stage": "stage", "start_ms": "start_ms", "end_ms": "end_ms", "label": "what", "activity": "activity"}
    labels = {name: [drawn[column][bar] for bar in labelled] for name, column in of.items()}
    return {"lanes": lanes, "operations": drawn, "labels": labels, "cut": cut.row(stages)}


def schedule_table(operations: Mapping[str, Any], recompute_ns: Sequence[Sequence[int]] | None = None) -> Columns:
    """Every bar of the whole step, also those that the picture leaves out; of more than `MOST_BARS` its slices."""
    bars = _bars(operations, recompute_ns)
    if len(bars["stage"]) <= MOST_BARS:
        return _columns(bars, _numbers(bars))
    slices = _slices(bars, int(bars["end_ns"].max()))
    return _columns(slices, ["several"] * len(slices["stage"]))


def _bars(operations: Mapping[str, Any], recompute_ns: Sequence[Sequence[int]] | None) -> _Bars:
    """What every stage does, one activity a bar."""
    bars = {name: np.asarray(operations[name]) for name in ("stage", "microbatch", "chunk", "start_ns", "end_ns", "critical")}
    bars["op"] = np.array(list(operations["op"]), dtype=object)
    bars["activity"] = np.array([_OF_OP[op] for op in bars["op"]], dtype=object)
    if recompute_ns is not None:
        bars = _with_recompute(bars, recompute_ns)
    return _only(bars, bars["end_ns"] > bars["start_ns"])


def _lanes(stages: list[int], spans_ns: list[tuple[int, int]]) -> Columns:
    """The background of every stage in each of the spans."""
    every = [(stage, start, end) for stage in stages for start, end in spans_ns]
    return {
        "stage": [stage for stage, _, _ in every],
        "start_ms": [start / NS_PER_MS for _, start, _ in every],
        "end_ms": [end / NS_PER_MS for _, _, end in every],
    }


def _cut(bars: _Bars, end_ns: int) -> _Cut:
    """The time to leave out: from where the first micro batches have ended to where the last ones begin, if most are between.

    What is skipped is a round time, so that the numbers of the axis stay round behind it.
    """
    count, kept = int(bars["microbatch"].max(initial=-1)) + 1, max(_ENDS, len(np.unique(bars["stage"])) + 2)
    if count < 3 * kept:
        return _Cut(end_ns, end_ns)
    first = (bars["microbatch"] >= 0) & (bars["microbatch"] < kept)
    at_ns, to_ns = int(bars["end_ns"][first].max()), int(bars["start_ns"][bars["microbatch"] >= count - kept].min())
    shown_ns = at_ns + end_ns - to_ns
    unit_ns = 10 ** max(0, math.floor(math.log10(shown_ns)) - 1)
    skipped_ns = math.floor((to_ns - at_ns - _GAP_SHARE * shown_ns) / unit_ns) * unit_ns
    inside = (bars["start_ns"] >= at_ns) & (bars["end_ns"] <= to_ns)
    left_out = len(np.setdiff1d(bars["microbatch"][inside], bars["microbatch"][~inside]))
    return _Cut(at_ns, to_ns, skipped_ns, left_out) if skipped_ns > 0 and left_out else _Cut(end_ns, end_ns)


@theme.drawn_once
def memory_bars(rows: Rows) -> alt.LayerChart:
    """Draw the memory of every stage, parameters and activations stacked, against the limit.

    `rows` comes from `memory_rows`: data sets "memory" and "limit".
    """
    parts, colors = list(_HELD.values()), [theme.BUBBLE, theme.COMPUTING, theme.COMMUNICATION]
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
    return theme.with_rows(alt.LayerChart(layer=[bars, *limit_marks()], width="container", height={"step": 24}), rows)


def memory_rows(parts_bytes: dict[str, Sequence[int]], limit_bytes: int | None) -> Rows:
    """The data sets of `memory_bars`; `parts_bytes` has one list by stage for "constant", "parameters" and "activations"."""
    rows = [
        {"stage": str(stage), "part": _HELD[part], "gib": amount / GIB, "order": order}
        for order, (part, amounts) in enumerate(parts_bytes.items())
        for stage, amount in enumerate(amounts)
    ]
    return {"memory": rows, "limit": limit_rows(limit_bytes)}


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
