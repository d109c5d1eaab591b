"""A limit of memory as a picture has it: a dashed line across its bars, with its size at the end."""

from __future__ import annotations

from typing import Any

import altair as alt

from perfkit.core.texts import say
from perfkit.core.units import GIB
from perfkit.face.charts import theme

_ROOM = 100
"""Pixels of the label: nearer to the right edge it stands to the left of its line."""


def limit_marks() -> list[alt.Chart]:
    """The layers over horizontal bars in GiB that draw the data set "limit", see `limit_rows`."""
    data = alt.Chart(alt.NamedData("limit"))
    tooltip = [theme.tooltip("limit", "bytes", title="limit (GiB)")]
    rule = data.mark_rule(color=theme.LIMIT, strokeWidth=1.5, strokeDash=[6, 4]).encode(x=alt.X("limit:Q"), tooltip=tooltip)
    align = alt.ExprRef(f"scale('x', datum.limit) > width - {_ROOM} ? 'right' : 'left'")
    label = data.mark_text(align=align, baseline="bottom", fontSize=11, color=theme.LIMIT).encode(
        x=alt.X("limit:Q"),
        y=alt.YValue(-2),  # type: ignore[no-untyped-call]
        text=alt.Text("label:N"),
    )
    return [rule, label]


def limit_rows(limit_bytes: float | None) -> list[dict[str, Any]]:
    """The data set of `limit_marks`: one row, none without a limit."""
    if limit_bytes is None:
        return []
    return [{"limit": limit_bytes / GIB, "label": say("limit {limit_bytes}", limit_bytes=limit_bytes)}]
