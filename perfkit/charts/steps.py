"""Steps as pictures: step times of a log, and where the time of every rank went."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.charts import _theme as theme
from perfkit.units import NS_PER_MS

PATHS = (
    "computing",
    "computing/forward_backward",
    "computing/tail",
    "communication/exposed",
    "bubble",
    "free",
    "free/data",
    "free/other",
)
"""Parts of a measured step in the order in which they are stacked."""


def step_times(log: pd.DataFrame, *, num_warmup: int, median_ns: float, outliers: tuple[int, ...]) -> alt.LayerChart:
    """Draw the time of every step of a log: warm-up grey, outliers ringed, the median as a line.

    Data sets: "steps" (`step`, `duration_ms`, `state`, `line`) and "median" (`median_ms`).
    """
    points = alt.Chart(alt.NamedData("steps"), width="container", height=280)
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(zero=False, nice=False, padding=12))
    y = alt.Y("duration_ms:Q", title="time of a step (ms)", scale=alt.Scale(zero=True))
    tooltip = [alt.Tooltip("step:Q"), alt.Tooltip("duration_ms:Q", title="ms", format=",.4~r"), "state:N", alt.Tooltip("line:Q", title="line in the log")]
    rule = (
        alt.Chart(alt.NamedData("median"))
        .mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=theme.COMPUTING)
        .encode(y="median_ms:Q", tooltip=[alt.Tooltip("median_ms:Q", title="median (ms)", format=",.4~r")])
    )
    return (
        alt.layer(
            points.mark_line(color=theme.MUTED, strokeWidth=1).encode(x=x, y=y),
            rule,
            points.mark_point(filled=True, size=60, opacity=1).encode(
                x=x,
                y=y,
                color=alt.Color("state:N", title=None, scale=alt.Scale(domain=list(theme.STEP_STATES), range=list(theme.STEP_STATES.values()))),
                shape=alt.Shape("state:N", title=None, scale=alt.Scale(domain=list(theme.STEP_STATES), range=["circle", "cross", "diamond"])),
                tooltip=tooltip,
            ),
        )
        .properties(datasets=step_time_rows(log, num_warmup=num_warmup, median_ns=median_ns, outliers=outliers))
    )


def step_time_rows(log: pd.DataFrame, *, num_warmup: int, median_ns: float, outliers: tuple[int, ...]) -> dict[str, list[dict[str, object]]]:
    """The data sets of `step_times`; with more than 5 000 steps only the last 5 000 are drawn."""
    rows = log.reset_index(drop=True)
    state = pd.Series("measured", index=rows.index)
    state[rows["step"].isin(outliers)] = "outlier"
    state[rows.index < num_warmup] = "warm-up"
    frame = pd.DataFrame({"step": rows["step"], "duration_ms": rows["duration_ns"] / NS_PER_MS, "state": state, "line": rows["line"]})
    return {"steps": frame.tail(theme.MAX_MARKS).to_dict("records"), "median": [{"median_ms": median_ns / NS_PER_MS}]}  # type: ignore[dict-item]


def rank_bars(parts: pd.DataFrame, *, unit: str) -> alt.Chart:
    """Draw one stacked bar a rank; a click on a bar picks its rank (selection "picked").

    `parts` has `rank` (text), `path`, `amount_ms`, `share`, `order`; it is the data set "parts". `unit` is "ms" or "%".
    """
    paths = [path for path in PATHS if path in set(parts["path"])]
    field, title, axis = ("amount_ms", "time of the step (ms)", alt.Axis()) if unit == "ms" else ("share", "share of the step (%)", alt.Axis(format=".0%"))
    picked = alt.selection_point(name="picked", fields=["rank"], on="click", clear=False, toggle=False)
    return (
        alt.Chart(alt.NamedData("parts"), width="container", height=320)
        .mark_bar(cornerRadius=1, cursor="pointer")
        .encode(
            x=alt.X("rank:N", title="rank", sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True), scale=alt.Scale(paddingInner=0.25)),
            y=alt.Y(f"{field}:Q", title=title, stack="zero", axis=axis),
            color=alt.Color("path:N", title=None, sort=paths, scale=theme.path_scale(paths)),
            order=alt.Order("order:Q"),
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.55), empty=True),
            tooltip=[
                alt.Tooltip("rank:N"),
                alt.Tooltip("path:N", title="part"),
                alt.Tooltip("amount_ms:Q", title="ms", format=",.3~f"),
                alt.Tooltip("share:Q", title="share of the step", format=".2%"),
            ],
        )
        .add_params(picked)
        .properties(datasets={"parts": parts.to_dict("records")})
    )


def step_trend(parts: pd.DataFrame) -> alt.Chart:
    """Draw the parts of one rank's steps side by side; `parts` has `step`, `path`, `amount_ms`, `order` (data set "trend")."""
    paths = [path for path in PATHS if path in set(parts["path"])]
    return (
        alt.Chart(alt.NamedData("trend"), width="container", height=180)
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("step:N", title="step", sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("amount_ms:Q", title="time (ms)", stack="zero"),
            color=alt.Color("path:N", title=None, sort=paths, scale=theme.path_scale(paths)),
            order=alt.Order("order:Q"),
            tooltip=["step:N", alt.Tooltip("path:N", title="part"), alt.Tooltip("amount_ms:Q", title="ms", format=",.3~f")],
        )
        .properties(datasets={"trend": parts.to_dict("records")})
    )
