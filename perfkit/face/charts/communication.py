"""Communication as pictures: what of it is hidden, who waits and who moves data, and how time grows with size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfkit.core.texts import say
from perfkit.core.units import NS_PER_MS
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

EXPOSURE = {"exposed": theme.COMMUNICATION, "hidden": theme.HIDDEN, "not told apart": theme.BUBBLE}
LEAST_SIZES = 3
SPENDING = {"waiting": theme.WAITING, "moving data": theme.COMMUNICATION, "neither": theme.BUBBLE}


def exposure_bars(rows: Rows) -> alt.Chart:
    """Draw one stacked bar an operation, a rank and step: exposed, hidden, or not told apart (data set "operations").

    `rows["operations"]` has `operation`, `part`, `ms` and `share`.
    """
    present = [part for part in EXPOSURE if any(row["part"] == part for row in rows["operations"])]
    return theme.bars(
        rows,
        "operations",
        height={"step": 30},
        x=alt.X("ms:Q", title="time per rank and step (ms)", stack="zero"),
        y=alt.Y("operation:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("part:N", title=None, scale=alt.Scale(domain=present, range=[EXPOSURE[part] for part in present])),
        tooltip=[alt.Tooltip("operation:N"), alt.Tooltip("part:N"), theme.tooltip("ms", "ns"), theme.tooltip("share", "ratio")],
    )


def wait_bars(rows: Rows, *, title: str = "time in collectives, a step (ms)") -> alt.LayerChart:
    """Draw one stacked bar a rank: waiting for others, moving data, neither; a diamond marks the rank that others wait for.

    `rows` is of `wait_rows`; a rank of "unseen" has words in place of a bar. A click picks a rank. The bars of few ranks lie.
    """
    present = [part for part in SPENDING if any(row["part"] == part for row in rows["spent"])]
    num_ranks = len({row["rank"] for row in (*rows["spent"], *rows["unseen"])})
    across = num_ranks <= theme.MAX_ACROSS
    beside: alt.X | alt.Y
    if across:
        beside = alt.Y("rank:O", title="rank")
        place = {"y": beside, "x": alt.X("ms:Q", title=title, stack="zero")}
        mark, origin = {"y": beside, "x": alt.X("ms:Q")}, {"y": beside, "x": alt.XDatum(0)}
    else:
        beside = alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap=True))
        place = {"x": beside, "y": alt.Y("ms:Q", title=title, stack="zero")}
        mark, origin = {"x": beside, "y": alt.Y("ms:Q")}, {"x": beside, "y": alt.YDatum(0)}
    layers: list[alt.Chart] = [
        alt.Chart(alt.NamedData("spent"))
        .mark_bar(cornerRadius=1, cursor="pointer")
        .encode(
            **place,
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=present, range=[SPENDING[part] for part in present])),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("rank:O"), alt.Tooltip("part:N"), theme.tooltip("ms", "ns")],
        )
    ]
    if rows["latest"]:
        legend = alt.Legend(symbolFillColor=theme.FREE, symbolStrokeColor=theme.FREE, symbolType="diamond")
        late = alt.Chart(alt.NamedData("latest")).mark_point(
            filled=True, size=110, color=theme.FREE, opacity=1, xOffset=12 * across, yOffset=-12 * (not across)
        )
        shape = alt.Shape("mark:N", title=None, scale=alt.Scale(range=["diamond"]), legend=legend)
        layers.append(
            late.encode(**mark, shape=shape, tooltip=[alt.Tooltip("rank:O"), alt.Tooltip("why:N", title="others wait for it")])
        )
    if rows["unseen"]:
        words = alt.Chart(alt.NamedData("unseen")).mark_text(align="left", angle=0 if across else 270, dx=6, color=theme.MUTED)
        layers.append(words.encode(**origin, text=alt.Text("words:N")))
    height: Any = {"step": max(30, min(54, 150 // max(1, num_ranks)))} if across else 260
    return theme.with_rows(alt.LayerChart(layer=layers, width="container", height=height), rows)


@theme.drawn_once
def size_time(rows: Rows) -> alt.LayerChart:
    """Draw every collective by its size and time, both logarithmic, with the line latency + size / bandwidth of its operation.

    `rows` has "calls" (`bytes`, `us`, `operation`, `ranks` in its group, `name`) and "model" (`bytes`, `us`, `operation`).
    """
    x = alt.X("bytes:Q", title="size (bytes)", scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(format="~s"))
    y = alt.Y("us:Q", title="time (µs)", scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(format="~s"))
    color = alt.Color("operation:N", title=None)
    points = (
        alt.Chart(alt.NamedData("calls"))
        .mark_point(filled=True, size=34, opacity=0.6)
        .encode(
            x=x,
            y=y,
            color=color,
            shape=alt.Shape("operation:N", title=None),
            tooltip=[
                alt.Tooltip("operation:N"),
                alt.Tooltip("ranks:O"),
                alt.Tooltip("name:N"),
                theme.tooltip("bytes", "count"),
                theme.tooltip("us", "ns"),
            ],
        )
    )
    lines = alt.Chart(alt.NamedData("model")).mark_line(strokeDash=[5, 4], strokeWidth=1.4).encode(x=x, y=y, color=color)
    return theme.with_rows(alt.LayerChart(layer=[points, lines], width="container", height=280), rows)


def size_rows(operations: pd.DataFrame) -> Rows:
    """The data sets of `size_time` from rows of `Run.collectives`; those without a size go."""
    known = operations[(operations["bytes"].fillna(0) > 0) & (operations["transfer_ns"].fillna(0) > 0)]
    every = max(1, -(-len(known) // (theme.MAX_MARKS - 100)))
    calls = [
        {
            "bytes": int(row["bytes"]),
            "us": int(row["transfer_ns"]) / 1e3,
            "operation": str(row["operation"]),
            "ranks": None if pd.isna(row["group_size"]) else int(row["group_size"]),
            "name": str(row["name"]),
        }
        for row in known.iloc[::every].to_dict("records")
    ]
    model = [point for name, rows in known.groupby("operation", observed=True) for point in _line(str(name), rows)]
    return {"calls": calls, "model": model}


def _line(operation: str, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Latency + size / bandwidth, fitted to relative errors; nothing with too few sizes or where time does not grow with size."""
    size = rows["bytes"].to_numpy(dtype=np.float64)
    time_us = rows["transfer_ns"].to_numpy(dtype=np.float64) / 1e3
    if len(np.unique(size)) < LEAST_SIZES:
        return []
    slope, latency = np.polyfit(size, time_us, 1, w=1 / time_us)
    if slope <= 0:
        return []
    ends = np.geomspace(size.min(), size.max(), 20)
    fitted = np.maximum(latency, 0.0) + slope * ends
    return [{"bytes": float(x), "us": float(y), "operation": operation} for x, y in zip(ends, fitted, strict=True) if y > 0]


PARTS = (("waiting", "wait_ns"), ("moving data", "transfer_ns"), ("neither", "other_ns"))


def operation_rows(operations: pd.DataFrame) -> Rows:
    """The data set of `exposure_bars` from rows of `explain.communication.operations_of`."""
    rows = []
    for row in operations.to_dict("records"):
        size = "" if pd.isna(row["group_size"]) else f" ({int(row['group_size'])} rank{'s' * (row['group_size'] != 1)})"
        told = not pd.isna(row["exposed_ns"])
        parts = {"exposed": row["exposed_ns"], "hidden": row["hidden_ns"]} if told else {"not told apart": row["duration_ns"]}
        rows += [
            {
                "operation": f"{row['operation']}{size}",
                "part": part,
                "ms": int(amount) / NS_PER_MS,
                "share": int(amount) / max(1, int(row["duration_ns"])),
            }
            for part, amount in parts.items()
        ]
    return {"operations": rows}


def wait_rows(ranks: pd.DataFrame, late: tuple[int, str] | None, *, num_steps: int, shown: Sequence[int] | None = None) -> Rows:
    """The data sets of `wait_bars` from rows of `explain.communication.waiting_by_rank`, a step; `late` is of `late_rank`.

    "spent" has `rank`, `part`, `ms` and `order`, of the ranks that are `shown` (None: all). The late one is in "latest" (`rank`,
    `ms`, `mark`, `why`) if it is one of these, in "unseen" (`rank`, `words`) if it has no row.
    """
    chosen = ranks if shown is None else ranks[ranks["rank"].isin(shown)]
    spent: list[dict[str, Any]] = [
        {"rank": int(row["rank"]), "part": part, "ms": int(row[column]) / NS_PER_MS / num_steps, "order": order}
        for row in chosen.sort_values("rank").head(theme.MAX_MARKS // len(PARTS)).to_dict("records")
        for order, (part, column) in enumerate(PARTS)
        if not pd.isna(row[column])
    ]
    rows: Rows = {"spent": spent, "latest": [], "unseen": []}
    if late is not None:
        rank, why = late
        own = [row["ms"] for row in spent if row["rank"] == rank]
        if own:
            rows["latest"].append({"rank": rank, "ms": sum(own), "mark": say("the late one"), "why": why})
        elif rank not in set(ranks["rank"]):
            rows["unseen"].append({"rank": rank, "words": say("not recorded; the others wait for it")})
    return rows
