"""The cost of a model: its FLOPs and parameters by part, and the roofline of its products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]


def flops_bars(passes: Mapping[str, Breakdown]) -> alt.Chart:
    """Draw FLOP per token by part of the model, stacked by pass (forward, backward, recompute).

    `passes` maps a pass to its breakdown in FLOP. Data set "flops": `part`, `pass`, `gflop`.
    """
    rows = flops_rows(passes)
    seen = theme.words_in((row for row in rows if row["gflop"]), "pass")
    return theme.with_present(_flops_bars({"flops": rows}), [name for name in theme.PASSES if name in seen])


@theme.drawn_once
def _flops_bars(rows: Rows) -> alt.Chart:
    return theme.bars(
        rows,
        "flops",
        height={"step": 30},
        x=alt.X("gflop:Q", title="GFLOP per token", stack="zero"),
        y=alt.Y("part:N", title=None, sort=None),
        params=[theme.present_param(theme.PASSES)],
        color=alt.Color(
            "pass:N",
            title=None,
            sort=list(theme.PASSES),
            scale=alt.Scale(domain=list(theme.PASSES), range=list(theme.PASSES.values())),
            legend=theme.present_legend(),
        ),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("part:N"), alt.Tooltip("pass:N"), theme.tooltip("gflop", "flops", title="GFLOP per token")],
    )


def flops_rows(passes: Mapping[str, Breakdown]) -> list[dict[str, Any]]:
    """The rows of `flops_bars`."""
    order = {name: index for index, name in enumerate(theme.PASSES)}
    return [
        {"part": part, "pass": name, "gflop": amount / 1e9, "order": order[name]}
        for name, breakdown in passes.items()
        for part, amount in breakdown.parts.items()
    ]


def parameter_bars(parameters: Breakdown) -> alt.Chart:
    """Draw the parameters by part. Data set "parameters": `part`, `billions`, `share`."""
    return _parameter_bars({"parameters": parameter_rows(parameters)})


@theme.drawn_once
def _parameter_bars(rows: Rows) -> alt.Chart:
    return theme.bars(
        rows,
        "parameters",
        height={"step": 26},
        mark={"color": theme.COMPUTING},
        x=alt.X("billions:Q", title="parameters (10⁹)"),
        y=alt.Y("part:N", title=None, sort=None),
        tooltip=[alt.Tooltip("part:N"), theme.tooltip("billions", "number", title="10⁹"), theme.tooltip("share", "ratio")],
    )


def parameter_rows(parameters: Breakdown) -> list[dict[str, Any]]:
    """The rows of `parameter_bars`."""
    total = parameters.total
    return [
        {"part": path, "billions": amount / 1e9, "share": amount / total if total else 0.0}
        for path, amount in parameters.parts.items()
    ]


def roofline(products: pd.DataFrame, *, peak_flops_per_s: float, memory_bytes_per_s: float) -> alt.LayerChart:
    """Draw the products of a layer under the roof of a device; both axes are logarithmic.

    `products` comes from `calc.roofline.layer_matmuls`. Data sets: "products" and "roof".
    """
    data = roofline_rows(products, peak_flops_per_s=peak_flops_per_s, memory_bytes_per_s=memory_bytes_per_s)
    return _roofline(data, parts=tuple(row["part"] for row in data["products"]))


@theme.drawn_once
def _roofline(rows: Rows, *, parts: tuple[str, ...]) -> alt.LayerChart:
    x = alt.X("intensity:Q", title="FLOP per byte moved", scale=alt.Scale(type="log"), axis=theme.powers_axis("x"))
    y = alt.Y("tflops:Q", title="attainable TFLOP/s", scale=alt.Scale(type="log"), axis=theme.powers_axis("y"))
    roof = alt.Chart(alt.NamedData("roof")).mark_line(color=theme.MUTED, strokeWidth=2).encode(x=x, y=y)
    marks = (
        alt.Chart(alt.NamedData("products"))
        .mark_point(filled=True, size=110, opacity=0.9)
        .encode(
            x=x,
            y=y,
            color=alt.Color("part:N", title=None, sort=list(parts), scale=theme.path_scale(parts)),
            shape=alt.Shape(
                "bound:N", title="bound by", scale=alt.Scale(domain=["compute", "memory"], range=["circle", "triangle-up"])
            ),
            tooltip=[
                alt.Tooltip("part:N"),
                alt.Tooltip("bound:N", title="bound by"),
                theme.tooltip("intensity", "number", title="FLOP/byte"),
                theme.tooltip("tflops", "flops_per_s", title="TFLOP/s"),
            ],
        )
    )
    chart = alt.LayerChart(layer=[roof, marks], width="container", height=280)
    return theme.with_rows(chart, rows)


def roofline_rows(products: pd.DataFrame, *, peak_flops_per_s: float, memory_bytes_per_s: float) -> dict[str, list[dict[str, Any]]]:
    """The data sets of `roofline`."""
    ridge = peak_flops_per_s / memory_bytes_per_s
    low = min(1.0, float(products["intensity_flop_per_byte"].min()) / 2)
    high = max(ridge * 10, float(products["intensity_flop_per_byte"].max()) * 2)
    roof = [(low, low * memory_bytes_per_s), (ridge, peak_flops_per_s), (high, peak_flops_per_s)]
    return {
        "roof": [{"intensity": intensity, "tflops": rate / 1e12} for intensity, rate in roof],
        "products": [
            {
                "part": row["part"],
                "intensity": row["intensity_flop_per_byte"],
                "tflops": row["attainable_flops_per_s"] / 1e12,
                "bound": row["bound"],
            }
            for row in products.to_dict("records")
        ],
    }
