"""Comparisons as pictures: what each part adds to the change, and how losses of two trainings lie to each other."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.shortening import shortened
from perfkit.core.units import NS_PER_MS, NS_PER_S, significant
from perfkit.explain.alignment import Alignment
from perfkit.explain.compare import Comparison
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

CHANGES = {"slower": theme.FREE, "faster": theme.GREEN, "total": theme.COMPUTING}
SIDES = {"reference": theme.MUTED, "candidate": theme.COMMUNICATION}
UNCHANGED = 1e-4
NAME_CELLS = 30
LABEL_PIXELS = 70
"""Width of an amount behind a bar."""
_ROOM = 0.1
"""Around the rounds of a project, as a share of what lies between the smallest and the largest amount."""
MAX_POINTS = theme.MAX_MARKS // 4


@theme.drawn_once
def waterfall(rows: Rows, *, unit: str) -> alt.LayerChart:
    """Draw the way from a to b: the totals as bars, each part as the step that it adds.

    `rows` comes from `waterfall_rows` (data set "steps"); `unit` is that of its amounts.
    """
    base = alt.Chart(alt.NamedData("steps"))
    y = alt.Y("path:N", sort=alt.EncodingSortField("order", op="min"), title=None, axis=alt.Axis(labelLimit=260))
    x = alt.X("start:Q", title=f"time of a step ({unit})", scale=theme.labelled_scale(LABEL_PIXELS, nice=False))
    color = alt.Color("change:N", title=None, scale=alt.Scale(domain=list(CHANGES), range=list(CHANGES.values())))
    tooltip = [
        alt.Tooltip("path:N", title="part"),
        theme.tooltip("a", "number", title=f"a ({unit})"),
        theme.tooltip("b", "number", title=f"b ({unit})"),
        theme.tooltip("delta", "number", title=f"b - a ({unit})", signed=True),
    ]
    bars = base.mark_bar(cornerRadius=1).encode(x=x, x2=alt.X2("end:Q"), y=y, color=color, tooltip=tooltip)
    labels = base.mark_text(align="left", dx=6, color=theme.TEXT).encode(x=alt.X("edge:Q"), y=y, text=alt.Text("label:N"))
    return theme.with_rows(alt.LayerChart(layer=[bars, labels], width="container", height={"step": 30}), rows)


def way_from_a_to_b(found: Comparison) -> alt.LayerChart | None:
    """The waterfall of a comparison, in s or ms; None for graphs, and where there are no parts."""
    if not found.parts or found.kind == "graphs":
        return None
    factor = 1 if found.unit == "ns" else 1 / NS_PER_S
    largest_ns = max(float(found.total_a or 0), float(found.total_b or 0)) / factor
    unit, scale = ("s", NS_PER_S * factor) if largest_ns >= NS_PER_S else ("ms", NS_PER_MS * factor)
    frame = pd.DataFrame([{"path": part.path, "a": part.a, "b": part.b} for part in found.parts])
    ends = (f"a: {shortened(found.a, NAME_CELLS)}", f"b: {shortened(found.b, NAME_CELLS)}")
    return waterfall(waterfall_rows(frame, scale=scale, unit=unit, ends=ends), unit=unit)


def waterfall_rows(parts: pd.DataFrame, *, scale: float, unit: str, ends: tuple[str, str] = ("a", "b")) -> Rows:
    """The data set of `waterfall`: `parts` has `path`, `a`, `b`; amounts are divided by `scale`, which gives them in `unit`.

    `ends` are the words of the two totals.

    Parts that change by less than `UNCHANGED` of the larger total are drawn together as the last step.
    """
    amounts = parts.assign(a=parts["a"] / scale, b=parts["b"] / scale)
    first, last = float(amounts["a"].sum()), float(amounts["b"].sum())
    size = (amounts["b"] - amounts["a"]).abs()
    large = size > UNCHANGED * max(first, last)
    kept = amounts[large].loc[size[large].sort_values(ascending=False, kind="stable").index]
    drawn = [(str(row["path"]), float(row["a"]), float(row["b"])) for row in kept.to_dict("records")]
    rest = amounts[~large & ((amounts["a"] != 0) | (amounts["b"] != 0))]
    if len(rest):
        name = str(rest["path"].iloc[0]) if len(rest) == 1 else f"{len(rest)} parts that hardly change"
        drawn.append((name, float(rest["a"].sum()), float(rest["b"].sum())))
    steps = [_step(ends[0], (0.0, first), first, first, unit, is_total=True)]
    at, smallest = first, 1e-9 * max(first, last)
    for name, a, amount in drawn:
        # Sums of floats differ in their last digits; that is no change.
        b = a if abs(amount - a) < smallest else amount
        steps.append(_step(name, (at, at + b - a), a, b, unit))
        at += b - a
    steps.append(_step(ends[1], (0.0, last), last, last, unit, is_total=True))
    return {"steps": [{**row, "order": order} for order, row in enumerate(steps)]}


def _step(path: str, place: tuple[float, float], a: float, b: float, unit: str, *, is_total: bool = False) -> dict[str, Any]:
    start, end = place
    return {
        "path": path,
        "start": start,
        "end": end,
        "edge": max(start, end),
        "change": "total" if is_total else "slower" if b > a else "faster",
        "a": a,
        "b": b,
        "delta": b - a,
        "label": f"{significant(end, 4) if is_total else ('+' if b > a else '') + significant(b - a)} {unit}",
    }


@theme.drawn_once
def loss_curves(rows: Rows) -> alt.LayerChart:
    """Draw the losses of both trainings over the steps; a dashed line where they part (data sets "losses" and "divergence").

    The reference is broad and pale, so that both are seen where one lies on the other.
    """
    scale = alt.Scale(domain=list(SIDES), range=list(SIDES.values()))
    lines = (
        alt.Chart(alt.NamedData("losses"))
        .mark_line(clip=True)
        .encode(
            x=_steps_axis(),
            y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)),
            color=alt.Color("side:N", title=None, scale=scale),
            strokeWidth=alt.StrokeWidth("side:N", title=None, scale=alt.Scale(domain=list(SIDES), range=[6, 1.4])),
            opacity=alt.Opacity("side:N", title=None, scale=alt.Scale(domain=list(SIDES), range=[0.65, 1])),
            tooltip=[alt.Tooltip("side:N"), alt.Tooltip("step:Q"), theme.tooltip("loss", "loss")],
        )
    )
    return theme.with_rows(alt.LayerChart(layer=[lines, _divergence()], width="container", height=230), rows)


@theme.drawn_once
def difference_band(rows: Rows) -> alt.LayerChart:
    """Draw the relative difference of every step and its band (data sets "differences", "band", "divergence")."""
    band = (
        alt.Chart(alt.NamedData("band"))
        .mark_rect(color=theme.GREEN, opacity=0.14)
        .encode(
            x=alt.X("first:Q", title="step"),
            x2=alt.X2("last:Q"),
            y=alt.Y("low:Q", title="candidate against reference", axis=alt.Axis(format="+.2~%")),
            y2=alt.Y2("high:Q"),
        )
    )
    points = (
        alt.Chart(alt.NamedData("differences"))
        .mark_line(color=theme.COMMUNICATION, strokeWidth=1.2, point=alt.OverlayMarkDef(size=14, color=theme.COMMUNICATION))
        .encode(
            x=_steps_axis(),
            y=alt.Y("relative:Q", title="candidate against reference", axis=alt.Axis(format="+.2~%")),
            tooltip=[alt.Tooltip("step:Q"), theme.tooltip("relative", "ratio", title="difference", signed=True)],
        )
    )
    return theme.with_rows(alt.LayerChart(layer=[band, points, _divergence()], width="container", height=180), rows)


def differences_of(found: Alignment) -> alt.LayerChart:
    """The differences of two trainings step by step, within the band of their judgement."""
    judged = found.judgement
    rows = difference_rows(found.points, band=judged.band_relative, first_divergence=judged.first_divergence_step)
    return difference_band(rows)


def loss_rows(points: pd.DataFrame, *, first_divergence: int | None) -> Rows:
    """The data sets of `loss_curves` from matched points; of many points every n-th is drawn."""
    shown = _thinned(points).to_dict("records")
    losses = [
        {"step": int(row["at"]), "side": side, "loss": None if pd.isna(row[side]) else float(row[side])}
        for side in SIDES
        for row in shown
    ]
    return {"losses": losses, "divergence": _parted(first_divergence)}


def difference_rows(points: pd.DataFrame, *, band: float | None, first_divergence: int | None) -> Rows:
    """The data sets of `difference_band` from matched points; of many points every n-th is drawn."""
    shown = _thinned(points)
    known = shown[shown["relative"].notna()].to_dict("records")
    bands = []
    if band and len(points):
        bands = [{"first": int(points["at"].min()), "last": int(points["at"].max()), "low": -band, "high": band}]
    differences = [{"step": int(row["at"]), "relative": float(row["relative"])} for row in known]
    return {"differences": differences, "band": bands, "divergence": _parted(first_divergence)}


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    return points.iloc[:: max(1, -(-len(points) // MAX_POINTS))]


def _parted(first_divergence: int | None) -> list[dict[str, Any]]:
    return [] if first_divergence is None else [{"step": first_divergence}]


def _steps_axis() -> alt.X:
    return alt.X("step:Q", title="step", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(format="d", tickMinStep=1))


def _divergence() -> alt.Chart:
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("divergence"))
        .mark_rule(color=theme.FREE, strokeDash=[6, 4], strokeWidth=1.5)
        .encode(x=alt.X("step:Q"), tooltip=[alt.Tooltip("step:Q", title="first divergence")])
    )
    return chart


def predicted_and_measured(predictions: pd.DataFrame, *, title: str) -> alt.LayerChart | None:
    """`predicted_measured` of rounds with `name`, `prediction`, `value` and `error_ratio`; None where there are none."""
    if predictions.empty:
        return None
    return predicted_measured(predicted_rows(theme.records(predictions)), title=title)


def predicted_rows(rounds: list[dict[str, Any]]) -> Rows:
    """The data sets of `predicted_measured`: `rounds` with `name`, `prediction` and `value`, and the line where both are equal."""
    amounts = [float(row[side]) for row in rounds for side in ("prediction", "value")]
    low, high = min(amounts), max(amounts)
    room = _ROOM * ((high - low) or abs(high))
    line = [{"prediction": end, "value": end} for end in (low - room, high + room)]
    return {"rounds": rounds, "line": line, "end": [{**line[-1], "label": "measured = predicted"}]}


@theme.drawn_once
def predicted_measured(rows: Rows, *, title: str) -> alt.LayerChart:
    """Draw every round as a point, measured over predicted, beside the named line of right ones, which spans both axes.

    `rows` comes from `predicted_rows`.
    """
    points, scale = alt.Chart(alt.NamedData("rounds")), alt.Scale(zero=False, nice=False)
    x = alt.X("prediction:Q", title=f"predicted ({title})", scale=scale)
    y = alt.Y("value:Q", title=f"measured ({title})", scale=scale)
    tooltip = [
        alt.Tooltip("name:N"),
        theme.tooltip("prediction", "number"),
        theme.tooltip("value", "number"),
        theme.tooltip("error_ratio", "ratio", title="error", signed=True),
    ]
    marks = points.mark_point(filled=True, size=90, color=theme.COMPUTING, opacity=1).encode(x=x, y=y, tooltip=tooltip)
    # On the side of its point that is away from the line.
    above = points.transform_filter("datum.value >= datum.prediction").mark_text(align="right", dx=-9, dy=-3, color=theme.TEXT)
    below = points.transform_filter("datum.value < datum.prediction").mark_text(align="left", dx=9, dy=3, color=theme.TEXT)
    labels = [side.encode(x=x, y=y, text=alt.Text("name:N")) for side in (above, below)]
    line = (
        alt.Chart(alt.NamedData("line"))
        .mark_line(color=theme.MUTED, strokeDash=[5, 4], strokeWidth=1.2)
        .encode(x=alt.X("prediction:Q"), y=alt.Y("value:Q"))
    )
    end = alt.Chart(alt.NamedData("end")).mark_text(align="right", dx=-30, color=theme.MUTED)
    named = end.encode(x=alt.X("prediction:Q"), y=alt.Y("value:Q"), text=alt.Text("label:N"))
    return theme.with_rows(alt.LayerChart(layer=[line, named, marks, *labels], width="container", height=260), rows)
