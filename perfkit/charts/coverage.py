"""Coverage: which rank recorded what, as a map of ranks by kind of file."""

from __future__ import annotations

import altair as alt
import pandas as pd

from perfkit.charts import _theme as theme

SYMBOLS = {"present": "●", "partial": "◐", "empty": "○", "missing": "–"}


def coverage_map(coverage: pd.DataFrame) -> alt.LayerChart:
    """Draw one cell a rank and part; the state is a colour and a symbol.

    `coverage` has the columns of the table of that name; its rows are the data set "coverage". With more than 64 ranks the symbols
    are left out and the cells shrink.
    """
    rows = coverage.assign(
        rank=coverage["rank"].astype(str),
        part=coverage["part"].astype(str),
        state=coverage["state"].astype(str),
        file=coverage["file"].astype("object").where(coverage["file"].notna(), "no file"),
        symbol=coverage["state"].astype(str).map(SYMBOLS),
    )[["rank", "part", "state", "file", "symbol"]]
    ranks = list(dict.fromkeys(rows["rank"]))
    base = alt.Chart(alt.NamedData("coverage"), height={"step": 26}).encode(
        x=alt.X("rank:N", title="rank", sort=ranks, axis=alt.Axis(labelAngle=0, labelOverlap=True, orient="top")),
        y=alt.Y("part:N", title=None, sort=list(dict.fromkeys(rows["part"]))),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=1.5, cornerRadius=2).encode(
        color=alt.Color(
            "state:N",
            title=None,
            scale=alt.Scale(domain=list(theme.COVERAGE_STATES), range=list(theme.COVERAGE_STATES.values())),
        ),
        tooltip=["rank:N", alt.Tooltip("part:N"), "state:N", "file:N"],
    )
    symbols = base.mark_text(fontSize=12).encode(text="symbol:N", color=alt.value("#1b1b1b"))
    layers = [cells, symbols] if len(ranks) <= 64 else [cells]
    width = max(120, min(900, 44 * len(ranks)))
    return alt.layer(*layers).properties(datasets={"coverage": rows.to_dict("records")}, width=width)
