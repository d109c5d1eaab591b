"""Plans as pictures: all strategies by memory and throughput, some side by side, and why the others lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from perfkit.core import quantity
from perfkit.core.units import GIB
from perfkit.face.charts import theme
from perfkit.predict.estimate import Estimate
from perfkit.predict.plans.search.comparison import Comparison
from perfkit.predict.plans.search.search_text import plan_text

Rows = dict[str, list[dict[str, Any]]]

TENSOR_COLORS: Mapping[str, str] = {  # more of one colour, which no part of a step has
    "1": "#6B7F92",
    "2": "#E0A8DC",
    "4": "#C06CC4",
    "8": "#8E3C97",
    "other": "#C9CED3",
}
STEP_PARTS: Mapping[str, str] = {
    "computing/forward": "forward",
    "computing/backward": "backward",
    "computing/recompute": "recompute",
    "computing/optimizer": "optimizer",
    "communication/exposed/tp": "wait for tensor",
    "communication/exposed/pp": "wait for pipeline",
    "communication/exposed/dp": "wait for data",
    "communication/exposed/cp": "wait for context",
    "communication/exposed/ep": "wait for experts",
    "bubble": "bubble",
    "free": "host",
}
"""Parts of a step that are told apart and their short names, in the order in which they are stacked."""
_FIGURES_PIXELS = 115
"""Width of a step and its peak memory behind a bar."""


@theme.drawn_once
def plan_scatter(rows: Rows) -> alt.LayerChart:
    """Draw a mark a strategy, the front, the limit, and rings with numbers around the chosen ones. Data from `scatter_rows`.

    Colour alone tells strategies apart, and the front stands out: whatever else they are is told where one is looked at.
    """
    x = alt.X("gib:Q", title="peak of one device (GiB)", scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("tokens:Q", title="tokens/s/device", scale=alt.Scale(zero=False, nice=True))
    marks = (
        alt.Chart(alt.NamedData("plans"))
        .mark_circle()
        .encode(
            x=x,
            y=y,
            color=alt.Color("tp:N", title="tensor parallel", sort=list(TENSOR_COLORS), scale=_scale(TENSOR_COLORS)),
            size=alt.SizeValue(36, condition={"test": "datum.front", "value": 110}),
            opacity=alt.OpacityValue(0.45, condition={"test": "datum.front", "value": 1}),
            tooltip=[
                alt.Tooltip("plan:N"),
                alt.Tooltip("pp:N", title="pipeline parallel"),
                alt.Tooltip("micro:Q", title="micro batch"),
                theme.tooltip("tokens", "tokens_per_s_per_device", title="tokens/s/device"),
                theme.tooltip("gib", "bytes", title="GiB"),
                theme.tooltip("step_s", "step_time_s", title="step (s)"),
            ],
        )
    )
    front = (
        alt.Chart(alt.NamedData("front"))
        .mark_line(interpolate="step-after", color=theme.MUTED, strokeDash=[4, 3])
        .encode(x=alt.X("gib:Q"), y=alt.Y("tokens:Q"), order=alt.Order("order:Q"))
    )
    limit = (
        alt.Chart(alt.NamedData("limit")).mark_rule(color=theme.LIMIT, strokeWidth=1.5, strokeDash=[6, 4]).encode(x=alt.X("gib:Q"))
    )
    chosen = alt.Chart(alt.NamedData("chosen")).encode(x=alt.X("gib:Q"), y=alt.Y("tokens:Q"), tooltip=[alt.Tooltip("plan:N")])
    rings = chosen.mark_point(size=260, color=theme.TEXT, strokeWidth=2, filled=False)
    numbers = chosen.mark_text(dy=-17, fontWeight="bold", color=theme.TEXT).encode(text=alt.Text("label:N"))
    chart = alt.LayerChart(layer=[front, limit, marks, rings, numbers], width="container", height=340)
    return theme.with_rows(chart, rows)


def scatter_rows(compared: Comparison) -> Rows:
    """The data sets of `plan_scatter`: the strategies of a search, those that no other one beats, the limit, the compared plans.

    Every mark has its `plan` in words, which is how a search knows it.
    """
    marks = compared.found.marks
    front = sorted((mark.peak_memory_bytes / GIB, mark.tokens_per_s_per_device) for mark in marks.values() if mark.front)
    return {
        "plans": [
            {
                "plan": name,
                "tp": _known(mark.tp, TENSOR_COLORS),
                "pp": str(mark.pp),
                "micro": mark.micro_batch_size,
                "tokens": mark.tokens_per_s_per_device,
                "step_s": mark.step_time_s,
                "gib": mark.peak_memory_bytes / GIB,
                "front": mark.front,
            }
            for name, mark in marks.items()
        ],
        "front": [{"gib": gib, "tokens": tokens, "order": index} for index, (gib, tokens) in enumerate(front)],
        "limit": [{"gib": compared.found.memory_limit_bytes / GIB}],
        "chosen": [
            {
                "plan": plan_text(one.plan),
                "label": str(one.number),
                "tokens": one.estimate.tokens_per_s_per_device,
                "gib": (one.estimate.peak_memory_bytes or 0) / GIB,
            }
            for one in compared.plans
        ],
    }


def step_bars(rows: Rows) -> alt.LayerChart:
    """Draw one stacked bar a plan with what its step is made of, and its figures behind it. Data from `step_rows`."""
    seen = theme.words_in(rows["steps"], "part")
    return theme.with_present(_step_bars(rows), [part for part in STEP_PARTS.values() if part in seen])


@theme.drawn_once
def _step_bars(rows: Rows) -> alt.LayerChart:
    parts, scale = list(STEP_PARTS.values()), theme.labelled_scale(_FIGURES_PIXELS)
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=280))
    bars = (
        alt.Chart(alt.NamedData("steps"))
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("seconds:Q", title="step (s)", stack="zero", scale=scale),
            y=y,
            color=alt.Color(
                "part:N",
                title=None,
                sort=parts,
                scale=alt.Scale(domain=parts, range=theme.path_colors(STEP_PARTS)),
                legend=theme.present_legend(columns=6),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("name:N", title="plan"),
                alt.Tooltip("part:N"),
                theme.tooltip("seconds", "ns", title="seconds"),
                theme.tooltip("share", "ratio", title="share of the step"),
            ],
        )
    )
    figures = alt.Chart(alt.NamedData("totals")).mark_text(align="left", dx=6, color=theme.TEXT)
    labels = figures.encode(x=alt.X("seconds:Q", scale=scale), y=y, text=alt.Text("label:N"))
    named = theme.present_param(parts)
    return theme.with_rows(alt.LayerChart(layer=[bars, labels], width="container", height={"step": 40}, params=[named]), rows)


def step_rows(estimates: Mapping[str, Estimate]) -> Rows:
    """The data sets of `step_bars`: by plan the parts of its step in seconds, and its step with the peak memory where known."""
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    for name, predicted in estimates.items():
        step, peak_bytes = predicted.breakdown, predicted.peak_memory_bytes
        label = quantity.text("step_time_s", step.total)
        label = label if peak_bytes is None else f"{label}, {quantity.text('peak_bytes', peak_bytes)}"
        totals.append({"name": name, "seconds": step.total, "label": label})
        amounts = [float(step.amount(path)) for path in STEP_PARTS]
        rows += [
            {"name": name, "part": part, "seconds": amount, "share": amount / step.total, "order": order}
            for order, (part, amount) in enumerate(zip(STEP_PARTS.values(), amounts, strict=True))
            if amount
        ]
    return {"steps": rows, "totals": totals}


@theme.drawn_once
def rejected_bars(rows: Rows) -> alt.Chart:
    """Draw one bar a reason with the combinations that it ruled out, on a log axis. Data "reasons" come from `rejected_rows`."""
    return theme.bars(
        rows,
        "reasons",
        height={"step": 22},
        mark={"color": theme.BUBBLE},
        x=alt.X(
            "count:Q", title="combinations (log)", scale=alt.Scale(type="log", domainMin=1), axis=theme.powers_axis("x"), stack=None
        ),
        x2=alt.X2Datum(1),
        y=alt.Y("reason:N", title=None, sort=None, axis=alt.Axis(labelLimit=420)),
        tooltip=[alt.Tooltip("reason:N"), theme.tooltip("count", "count", title="combinations")],
    )


def rejected_rows(rejected: Mapping[str, int]) -> Rows:
    """The data set of `rejected_bars`, most frequent reason first."""
    ordered = sorted(rejected.items(), key=lambda item: -item[1])
    return {"reasons": [{"reason": reason, "count": count} for reason, count in ordered]}


def _scale(ranges: Mapping[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(ranges), range=list(ranges.values()))


def _known(size: int, names: Mapping[str, str]) -> str:
    return str(size) if str(size) in names else "other"
