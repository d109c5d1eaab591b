"""The data feed as pictures: the interval before every step, the size of queues by step, and how full operators' queues are."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfkit.core.units import NS_PER_MS
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
MOST = 1_000
EMPTY, FILLED = "empty", "filled"
PARTS = {"waits to begin": theme.DATA, "the rest of the step": theme.COMPUTING}


@theme.drawn_once
def interval_bars(rows: Rows) -> alt.Chart:
    """Draw what every step waits before it begins, below the rest of it. Data set "intervals" from `interval_rows`."""
    return theme.bars(
        rows,
        "intervals",
        height=220,
        x=alt.X("step:O", title="step", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
        y=alt.Y("ms:Q", title="time of the step (ms)", stack="zero"),
        color=alt.Color("part:N", title=None, sort=list(PARTS), scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values()))),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("step:O"), alt.Tooltip("part:N"), theme.tooltip("ms", "ns"), theme.tooltip("share", "ratio")],
    )


def interval_rows(intervals: pd.DataFrame) -> Rows:
    """The data set of `interval_bars`; of more than 1,000 steps evenly chosen ones."""
    chosen = intervals.iloc[np.unique(np.linspace(0, len(intervals) - 1, min(MOST, len(intervals))).astype(int))]
    spent = [(row, (row["interval_ns"], max(0, row["duration_ns"] - row["interval_ns"]))) for row in chosen.to_dict("records")]
    return {
        "intervals": [
            {
                "step": int(row["step"]),
                "part": part,
                "order": order,
                "ms": part_ns / NS_PER_MS,
                "share": part_ns / max(1, row["duration_ns"]),
            }
            for row, parts_ns in spent
            for order, (part, part_ns) in enumerate(zip(PARTS, parts_ns, strict=True))
        ]
    }


@theme.drawn_once
def queue_points(rows: Rows) -> alt.Chart:
    """Draw the size of each queue by step; steps that found it empty stand out. Data set "queues" from `queue_rows`."""
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("queues"), width="container", height=170)
        .mark_point(filled=True, size=45, opacity=1)
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("size:Q", title="entries in the queue", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("state:N", title=None, scale=alt.Scale(domain=[FILLED, EMPTY], range=[theme.COMPUTING, theme.FREE])),
            shape=alt.Shape("queue:N", title="queue"),
            tooltip=[alt.Tooltip("queue:N"), alt.Tooltip("step:Q"), alt.Tooltip("size:Q"), alt.Tooltip("capacity:Q")],
        )
    )
    return theme.with_rows(chart, rows)


def queue_rows(queues: pd.DataFrame) -> Rows:
    """The data set of `queue_points` from the table queues: the host's and the device's, at most 1,000 steps each."""
    rows = queues[queues["queue"].astype("object").isin(("host", "device"))].head(2 * MOST)
    return {
        "queues": [
            {
                "queue": str(row["queue"]),
                "step": int(row["step"]),
                "size": int(row["size"]),
                "capacity": None if pd.isna(row["capacity"]) else int(row["capacity"]),
                "state": EMPTY if row["size"] == 0 else FILLED,
            }
            for row in rows.to_dict("records")
        ]
    }


@theme.drawn_once
def usage_bars(rows: Rows) -> alt.Chart:
    """Draw how full the queue behind every dataset operator is. Data set "usage" from `usage_rows`."""
    return theme.bars(
        rows,
        "usage",
        height={"step": 26},
        x=alt.X("usage:Q", title="mean filling of its queue", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("operator:N", title=None, sort=None),
        color=alt.Color(
            "role:N", title=None, scale=alt.Scale(domain=["dataset operator", "slow one"], range=[theme.SKY, theme.FREE])
        ),
        tooltip=[alt.Tooltip("operator:N"), theme.tooltip("usage", "ratio"), theme.tooltip("empty", "ratio", title="found empty")],
    )


def usage_rows(operators: pd.DataFrame, suspect: str) -> Rows:
    """The data set of `usage_bars` from `Feed.operators`."""
    known = operators.dropna(subset=["usage_ratio"])
    return {
        "usage": [
            {
                "operator": str(row["operator"]),
                "usage": row["usage_ratio"],
                "empty": row["empty_ratio"],
                "role": "slow one" if row["operator"] == suspect else "dataset operator",
            }
            for row in known.to_dict("records")
        ]
    }
