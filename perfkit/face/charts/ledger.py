"""The ledger as a waterfall: the mean step of a rank by cause, down to what is unexplained."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.units import NS_PER_MS, format_ns, format_ratio
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

KINDS = {
    "work": theme.COMPUTING,
    "transfer": theme.COMMUNICATION,
    "waiting": theme.WAITING,
    "feed": theme.DATA,
    "host": theme.FREE,
    "copy": theme.SKY,
    "device": theme.EXPERT,
    "unexplained": theme.BUBBLE,
}
"""By the beginning of a cause its colour."""
LEAST = 0.002
"""Causes that take a smaller share of the step are drawn as one."""


@theme.drawn_once
def waterfall(rows: Rows) -> alt.LayerChart:
    """Draw one bar a cause, each beginning where the one above it ends, so that the last one ends with the step.

    `rows` has the data set "ledger" as `waterfall_rows` makes it.
    """
    base = alt.Chart(alt.NamedData("ledger"))
    y = alt.Y("cause:N", sort=alt.EncodingSortField("order", op="min"), title=None, axis=alt.Axis(labelLimit=320))
    scale = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))  # without a legend: each cause says its kind
    bars = base.mark_bar(cornerRadius=1).encode(
        x=alt.X("from_ms:Q", title="mean step of a rank (ms)", scale=theme.labelled_scale()),
        x2=alt.X2("to_ms:Q"),
        y=y,
        color=alt.Color("kind:N", scale=scale, legend=None),
        tooltip=[alt.Tooltip("cause:N"), alt.Tooltip("label:N", title="of a step")],
    )
    labels = base.mark_text(align="left", dx=6, color=theme.TEXT).encode(x=alt.X("to_ms:Q"), y=y, text=alt.Text("label:N"))
    return theme.with_rows(alt.LayerChart(layer=[bars, labels], width="container", height={"step": 22}), rows)


def waterfall_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows that `waterfall` draws, of a table of `Ledger.waterfall`: small causes as one before what is unexplained."""
    unexplained = table["cause"].str.startswith("unexplained")
    large = ((table["share"] >= LEAST) | (unexplained & ~unexplained.duplicated())).to_numpy(dtype=bool)
    shown = table[large]
    small = int(table.loc[~large, "ns"].sum())
    entries = [
        (str(row["words"]) + (f" (rank {row['who']})" if row["who"] >= 0 else ""), str(row["cause"]).split("/")[0], int(row["ns"]))
        for row in shown.to_dict("records")
    ]
    if small:
        place = next((at for at, (_, kind, _) in enumerate(entries) if kind == "unexplained"), len(entries))
        entries.insert(place, (f"{int((~large).sum())} smaller causes", "device", small))
    whole = max(1, int(table["ns"].sum()))
    rows, begin = [], 0
    for order, (cause, kind, ns) in enumerate(entries):
        rows.append(
            {
                "cause": cause,
                "kind": kind,
                "from_ms": begin / NS_PER_MS,
                "to_ms": (begin + ns) / NS_PER_MS,
                "share": ns / whole,
                "label": f"{format_ns(ns)}, {format_ratio(ns / whole)}",
                "order": order,
            }
        )
        begin += ns
    return rows
