"""Operators as pictures: which cost most, which are many and short, and how near they come to what the device can do."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.demangled import demangled
from perfkit.core.shortening import shortened
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.units import NS_PER_MS, NS_PER_US
from perfkit.explain.diagnose.kernels import told
from perfkit.explain.operators import UNKNOWN
from perfkit.explain.roofline import LEAST_DRAWN, MOST_DRAWN, roof_of
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
LABEL_LENGTH = 34
RUNS = ("this run", "the other")
CORES = {
    "cube": theme.COMPUTING,
    "vector": theme.SKY,
    "mixed": theme.GREEN,
    "AI CPU": theme.FREE,
    "communication": theme.COMMUNICATION,
    "copy": theme.DATA,
    UNKNOWN: theme.BUBBLE,
}


def total_bars(rows: Rows) -> alt.LayerChart:
    """Draw the total of every operator by core, and the cumulative share as a line. Data set "operators" from `operator_rows`."""
    base = alt.Chart(alt.NamedData("operators"))
    y = alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=260))
    tooltip = _tooltip()
    bars = base.mark_bar(cornerRadius=1).encode(
        y=y, x=alt.X("total_ms:Q", title="total (ms)"), color=_core_color(rows), tooltip=tooltip
    )
    line = base.mark_line(color=theme.MUTED, point=alt.OverlayMarkDef(color=theme.MUTED, size=24)).encode(
        y=y,
        x=alt.X("cumulative:Q", title="cumulative share", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", orient="top")),
        order=alt.Order("place:Q"),
        tooltip=tooltip,
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[bars, line], width="container", height={"step": 20})
    chart = chart.resolve_scale(x="independent")
    return theme.with_rows(chart, rows)


def count_mean(rows: Rows, *, small_us: float) -> alt.LayerChart:
    """Draw every operator by its calls and mean time, both logarithmic; below the line they are small."""
    data = {**rows, "limit": [{"limit": small_us}]}
    points = (
        alt.Chart(alt.NamedData("operators"))
        .mark_point(filled=True, size=80, opacity=0.85)
        .encode(
            x=alt.X("count:Q", title="calls", scale=alt.Scale(type="log"), axis=theme.powers_axis("x")),
            y=alt.Y("mean_us:Q", title="mean (µs)", scale=alt.Scale(type="log"), axis=theme.powers_axis("y")),
            color=_core_color(rows),
            tooltip=_tooltip(),
        )
    )
    limit = alt.Chart(alt.NamedData("limit")).mark_rule(color=theme.MUTED, strokeDash=[4, 4]).encode(y=alt.Y("limit:Q"))
    return theme.with_rows(alt.LayerChart(layer=[limit, points], width="container", height=300), data)


def measured_roofline(costs: pd.DataFrame, device: HardwareSpec) -> alt.LayerChart:
    """Draw what operators reached under the roof of a device; `costs` is of `under_the_roof`.

    What reaches less than `LEAST_DRAWN` of it would stretch the axis over decades, and is not drawn, nor is more than the
    `MOST_DRAWN` that take longest. Raises InputError if the memory rate of the device is not known.
    """
    peak_flops_per_s, memory_bytes_per_s = roof_of(device)
    points = [
        {
            "name": _short(str(row["operator"])),
            "kind": row["kind"],
            "intensity": row["intensity_flops_per_byte"],
            "tflops": row["flops_per_s"] / 1e12,
            "total_ms": row["total_ns"] / NS_PER_MS,
            "shapes": str(row["input_shapes"]),
        }
        for row in costs.head(MOST_DRAWN).to_dict("records")
        if row["intensity_flops_per_byte"] > 0 and row["efficiency_ratio"] >= LEAST_DRAWN
    ]
    ridge = peak_flops_per_s / memory_bytes_per_s
    low = min([0.05, *(point["intensity"] / 2 for point in points)])
    high = max([ridge * 10, *(point["intensity"] * 2 for point in points)])
    roof = [(low, low * memory_bytes_per_s), (ridge, peak_flops_per_s), (high, peak_flops_per_s)]
    data = {"reached": points, "roof": [{"intensity": at, "tflops": rate / 1e12} for at, rate in roof]}
    x = alt.X("intensity:Q", title="FLOP per byte", scale=alt.Scale(type="log"), axis=theme.powers_axis("x"))
    y = alt.Y("tflops:Q", title="TFLOP/s", scale=alt.Scale(type="log"), axis=theme.powers_axis("y"))
    line = alt.Chart(alt.NamedData("roof")).mark_line(color=theme.MUTED, strokeWidth=2).encode(x=x, y=y)
    marks = (
        alt.Chart(alt.NamedData("reached"))
        .mark_point(filled=True, opacity=0.85)
        .encode(
            x=x,
            y=y,
            size=alt.Size("total_ms:Q", title="total (ms)", scale=alt.Scale(range=[40, 400]), legend=_sizes(points)),
            color=alt.Color("kind:N", title="kind", scale=_kind_scale(sorted({str(point["kind"]) for point in points}))),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("shapes:N"),
                theme.tooltip("tflops", "flops_per_s"),
                theme.tooltip("total_ms", "ns", title="total (ms)"),
            ],
        )
    )
    return theme.with_rows(alt.LayerChart(layer=[line, marks], width="container", height=300), data)


def _sizes(points: list[dict[str, Any]]) -> alt.Legend:
    """A legend of three sizes: the largest operator's and what it is a few times of, in as many digits as these need."""
    largest = max((point["total_ms"] for point in points), default=1.0)
    return alt.Legend(values=[_one_digit(largest * share) for share in (0.1, 0.4, 1.0)], format="~r")


def _one_digit(amount: float) -> float:
    return round(amount, -math.floor(math.log10(amount))) if amount > 0 else 0.0


def _kind_scale(kinds: list[str]) -> alt.Scale:
    """Products have the colour of the core that computes them, what is done element by element that of the other."""
    cores = {"matmul": CORES["cube"], "elementwise": CORES["vector"]}
    others = iter((theme.GREEN, theme.DATA, theme.FREE, theme.BUBBLE, theme.YELLOW) * len(kinds))
    return alt.Scale(domain=kinds, range=[cores.get(kind) or next(others) for kind in kinds])


@theme.drawn_once
def share_bars(rows: Rows) -> alt.Chart:
    """Draw the share of every operator in two runs side by side. Data set "shares" from `share_rows`."""
    return theme.bars(
        rows,
        "shares",
        height={"step": 13},
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("run:N", sort=list(RUNS)),
        x=alt.X("share:Q", title="share of the computing time", axis=alt.Axis(format="%")),
        color=alt.Color("run:N", title=None, scale=alt.Scale(domain=list(RUNS), range=[theme.COMPUTING, theme.BUBBLE])),
        tooltip=[
            alt.Tooltip("operator:N"),
            alt.Tooltip("run:N"),
            theme.tooltip("share", "ratio"),
            theme.tooltip("calls", "number"),
        ],
    )


def share_rows(table: pd.DataFrame) -> Rows:
    """Rows of `share_bars` from `operator`, `a_share`, `b_share`, `count_a` and `count_b`."""
    return {
        "shares": [
            {
                "operator": str(row["operator"]),
                "label": _short(str(row["operator"])),
                "run": run,
                "share": float(row[f"{side}_share"]),
                "calls": float(row[f"count_{side}"]),
            }
            for row in table.to_dict("records")
            for run, side in zip(RUNS, "ab", strict=True)
        ]
    }


def operator_rows(table: pd.DataFrame) -> Rows:
    """The data set of `total_bars` and `count_mean` from `name`, `core`, `count`, `total_ns`, `mean_ns`, `share`; largest first."""
    rows, reached, seen = [], 0.0, set()
    for place, row in enumerate(table.to_dict("records")):
        reached += row["share"]
        label = _short(str(row["name"]))
        # Names that are alike where they were cut must not become one bar.
        label = label if label not in seen else f"{place + 1}. {label}"
        seen.add(label)
        rows.append(
            {
                "label": label,
                "name": str(row["name"])[:200],
                "core": row["core"],
                "count": row["count"],
                "total_ms": row["total_ns"] / NS_PER_MS,
                "mean_us": row["mean_ns"] / NS_PER_US,
                "share": row["share"],
                "cumulative": min(reached, 1.0),
                "place": place,
            }
        )
    return {"operators": rows}


def _core_color(rows: Rows) -> alt.Color | alt.ColorValue:
    present = [core for core in CORES if any(row["core"] == core for row in rows["operators"])]
    if present == [UNKNOWN]:  # a device of one kind of core, or a recording that tells none
        return alt.ColorValue(theme.COMPUTING)
    return alt.Color("core:N", title=None, sort=present, scale=alt.Scale(domain=present, range=[CORES[core] for core in present]))


def _tooltip() -> list[Any]:
    return [
        "name:N",
        "core:N",
        theme.tooltip("count", "count", title="calls"),
        theme.tooltip("total_ms", "ns", title="total (ms)"),
        theme.tooltip("mean_us", "ns", title="mean (µs)"),
        theme.tooltip("share", "ratio"),
        theme.tooltip("cumulative", "ratio", title="up to here"),
    ]


def _short(name: str) -> str:
    return shortened(demangled(told((name,))), LABEL_LENGTH)
