"""Findings as a picture: what each of them costs a step, the costliest first."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.texts import told
from perfkit.core.units import NS_PER_MS, format_ns, format_ratio
from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]

SEVERITIES = {"high": theme.TEXT, "medium": theme.MUTED, "low": "#7D8FA0"}
"""Shades of the text: the colours are those of what takes the time."""


def cost_bars(rows: Rows) -> alt.LayerChart:
    """Draw one bar a finding, as long as what it costs a step; a click picks its finding.

    `rows` has the data set "findings" with `finding`, `severity`, `cost_ms`, `label`, `title` and `order`. Findings that cost no
    time have no bar.
    """
    return _cost_bars(rows, severities=theme.words_in(rows["findings"], "severity"))


@theme.drawn_once
def _cost_bars(rows: Rows, *, severities: frozenset[str]) -> alt.LayerChart:
    base = alt.Chart(alt.NamedData("findings"))
    y = alt.Y("finding:N", sort=alt.EncodingSortField("order", op="min"), title=None, axis=alt.Axis(labelLimit=260))
    x = alt.X("cost_ms:Q", title="cost of a step (ms)", scale=theme.labelled_scale())
    bars = base.mark_bar(cornerRadius=1, cursor="pointer").encode(
        x=x,
        y=y,
        color=alt.Color("severity:N", title=None, scale=theme.present_scale(SEVERITIES, severities), sort=list(SEVERITIES)),
        tooltip=[alt.Tooltip("title:N"), alt.Tooltip("severity:N"), theme.tooltip("cost_ms", "ns", title="ms a step")],
    )
    labels = base.mark_text(align="left", dx=6, color=theme.TEXT).encode(x=x, y=y, text=alt.Text("label:N"))
    return theme.with_rows(alt.LayerChart(layer=[bars, labels], width="container", height={"step": 30}), rows)


def cost_rows(listed: pd.DataFrame) -> Rows:
    """The rows that `cost_bars` draws, of findings with `finding`, `severity`, `title`, `cost_ns` and `share_of_step`."""
    rows = [
        {
            "finding": row["finding"],
            "severity": row["severity"] or "low",
            "cost_ms": None if pd.isna(row["cost_ns"]) else row["cost_ns"] / NS_PER_MS,
            "label": "" if pd.isna(row["cost_ns"]) else f"{format_ns(int(row['cost_ns']))}, {format_ratio(row['share_of_step'])}",
            "title": told(row["title"]),
            "order": order,
        }
        for order, row in enumerate(listed.to_dict("records"))
    ]
    return {"findings": rows}
