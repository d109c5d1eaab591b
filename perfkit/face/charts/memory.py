"""Memory as pictures: the peak of every stage against the limit, and what single switches would do to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from perfkit.core.breakdown import Breakdown
from perfkit.core.units import GIB
from perfkit.face.charts import theme
from perfkit.face.charts.limits import limit_marks, limit_rows

Rows = dict[str, list[dict[str, Any]]]

PARTS: Mapping[str, str] = {
    "static/parameters": theme.COMPUTING,
    "static/gradients": theme.SKY,
    "static/optimizer": theme.PATH_COLORS["static/optimizer"],
    "dynamic/activations": theme.COMMUNICATION,
    "dynamic/logits": theme.PIPELINE,
    "dynamic/gathered_parameters": theme.DATA,
    "dynamic/others": theme.YELLOW,
    "reserved": theme.BUBBLE,
}
"""Parts that are told apart, in the order in which they are stacked."""
EFFECTS: Mapping[str, str] = {"saves": theme.GREEN, "costs": theme.FREE}


def stage_bars(rows: Rows) -> alt.LayerChart:
    """Draw one stacked bar a pipeline stage against the limit. Data sets "stages" and "limit" come from `stage_rows`."""
    seen = theme.words_in(rows["stages"], "part")
    return theme.with_present(_stage_bars(rows), [part for part in PARTS if part in seen])


@theme.drawn_once
def _stage_bars(rows: Rows) -> alt.LayerChart:
    bars = (
        alt.Chart(alt.NamedData("stages"))
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("gib:Q", title="peak of one device (GiB)", stack="zero"),
            y=alt.Y("stage:N", title=None, sort=None),
            color=alt.Color(
                "part:N",
                title=None,
                sort=list(PARTS),
                scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values())),
                legend=theme.present_legend(),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("stage:N"),
                alt.Tooltip("part:N"),
                theme.tooltip("gib", "bytes", title="GiB"),
                theme.tooltip("share", "ratio", title="share of the peak"),
            ],
        )
    )
    named = theme.present_param(PARTS)
    chart = alt.LayerChart(layer=[bars, *limit_marks()], width="container", height={"step": 44}, params=[named])
    return theme.with_rows(chart, rows)


def stage_rows(stages: Sequence[Breakdown], limit_bytes: float) -> Rows:
    """The data sets of `stage_bars`; of more than 24 stages the first 12 and the last 12."""
    shown = range(len(stages)) if len(stages) <= 24 else [*range(12), *range(len(stages) - 12, len(stages))]
    order = {part: index for index, part in enumerate(PARTS)}
    rows = []
    for stage in shown:
        parts = _grouped(stages[stage])
        rows += [
            {
                "stage": f"stage {stage}",
                "part": part,
                "gib": amount / GIB,
                "share": amount / stages[stage].total,
                "order": order[part],
            }
            for part, amount in parts.items()
        ]
    return {"stages": rows, "limit": limit_rows(limit_bytes)}


@theme.drawn_once
def switch_bars(rows: Rows) -> alt.LayerChart:
    """Draw a floating bar a switch, from the peak of the plan to the peak with the switch. Data from `switch_rows`."""
    base = alt.Chart(alt.NamedData("switches")).encode(
        y=alt.Y("switch:N", title=None, sort=alt.EncodingSortField(field="after", op="min", order="ascending"))
    )
    bars = base.mark_bar(cornerRadius=1).encode(
        x=alt.X("low:Q", title="peak of the fullest device (GiB)", scale=alt.Scale(zero=True)),
        x2=alt.X2("high:Q"),
        color=alt.Color(
            "effect:N", title=None, scale=alt.Scale(domain=list(EFFECTS), range=list(EFFECTS.values())), sort=list(EFFECTS)
        ),
        tooltip=[
            alt.Tooltip("switch:N"),
            theme.tooltip("after", "bytes", title="peak with it (GiB)"),
            theme.tooltip("change", "bytes", title="change (GiB)", signed=True),
            alt.Tooltip("price:N"),
        ],
    )
    ends = base.mark_tick(thickness=3, color=theme.TEXT, size=16).encode(x=alt.X("after:Q"))
    now = alt.Chart(alt.NamedData("now")).mark_rule(color=theme.MUTED, strokeWidth=1.5).encode(x=alt.X("now:Q"))
    chart = alt.LayerChart(layer=[bars, ends, now, *limit_marks()], width="container", height={"step": 32})
    return theme.with_rows(chart, rows)


def switch_rows(peak_bytes: float, found: Iterable[tuple[str, str, float]], limit_bytes: float) -> Rows:
    """The data sets of `switch_bars` for switches as (name, price, peak with it in bytes)."""
    now = peak_bytes / GIB
    rows = [
        {
            "switch": name,
            "price": price,
            "low": min(now, after / GIB),
            "high": max(now, after / GIB),
            "after": after / GIB,
            "change": after / GIB - now,
            "effect": "saves" if after <= peak_bytes else "costs",
        }
        for name, price, after in found
    ]
    return {"switches": rows, "now": [{"now": now}], "limit": limit_rows(limit_bytes)}


def _grouped(breakdown: Breakdown) -> dict[str, float]:
    found: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for path, amount in breakdown.parts.items():
        part = next((name for name in PARTS if f"{path}/".startswith(f"{name}/")), "dynamic/others")
        found[part] += amount
    return {part: amount for part, amount in found.items() if amount}
