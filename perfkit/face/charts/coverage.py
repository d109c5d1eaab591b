"""Coverage: which rank recorded what, as a map of ranks by kind of file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from perfkit.core.texts import say
from perfkit.face.charts import theme

SYMBOLS = {"present": "●", "partial": "◐", "empty": "○", "missing": "–"}
MAX_RANKS_WITH_SYMBOLS = 64
FEW_RANKS = 8
RANKS_AS_ROWS = 4


def coverage_map(coverage: pd.DataFrame, *, missing: Sequence[int] = ()) -> alt.LayerChart:
    """Draw one cell a rank and part; the state is a colour and a symbol.

    `coverage` has the columns of the table of that name; its rows are the data set "coverage". With more than 64 ranks the symbols
    are left out and the cells shrink. Few ranks are rows, which take no more of the page than they say; many are columns. Ranks
    of the job that are `missing` are one more together.
    """
    rows = coverage.astype({"rank": str, "part": str, "state": str, "file": "object"})
    if missing:
        absent = rows[["part"]].drop_duplicates().assign(rank=_together(missing), state="missing", file=None)
        rows = pd.concat([rows, absent], ignore_index=True)
    rows["file"] = rows["file"].where(rows["file"].notna(), "no file")
    rows["symbol"] = rows["state"].map(SYMBOLS)
    ranks = list(dict.fromkeys(rows["rank"]))
    parts, few = list(dict.fromkeys(rows["part"])), len(ranks) <= RANKS_AS_ROWS
    place: dict[str, Any] = {
        "x": alt.X("part:N", title=None, sort=parts, axis=_names_over_columns()),
        "y": alt.Y("rank:N", title="rank", sort=ranks),
    }
    if not few:
        axis = alt.Axis(labelAngle=0, labelOverlap=True, orient="top")
        place = {"x": alt.X("rank:N", title="rank", sort=ranks, axis=axis), "y": alt.Y("part:N", title=None, sort=parts)}
    base = alt.Chart(alt.NamedData("coverage")).encode(**place)
    states = list(theme.COVERAGE_STATES)
    cells = base.mark_rect(stroke="white", strokeWidth=1.5, cornerRadius=2).encode(
        color=alt.Color("state:N", title=None, scale=alt.Scale(domain=states, range=list(theme.COVERAGE_STATES.values()))),
        tooltip=[alt.Tooltip("rank:N"), alt.Tooltip("part:N"), alt.Tooltip("state:N"), alt.Tooltip("file:N")],
    )
    symbols = base.mark_text(fontSize=12).encode(text=alt.Text("symbol:N"), color=alt.ColorValue("#1b1b1b"))
    layers = [cells, symbols] if len(ranks) <= MAX_RANKS_WITH_SYMBOLS else [cells]
    width: Any = {"step": 64} if RANKS_AS_ROWS < len(ranks) <= FEW_RANKS else "container"
    chart = alt.LayerChart(layer=layers, width=width, height={"step": 34 if few else 26})
    return theme.with_rows(chart, {"coverage": theme.records(rows[["rank", "part", "state", "file", "symbol"]])})


def _together(ranks: Sequence[int]) -> str:
    """Ranks by their name: the first and last of those that follow one another, else how many they are."""
    first, last = min(ranks), max(ranks)
    if last - first >= len(ranks):
        return say("{num} others", num=str(len(ranks)))
    return str(first) if first == last else f"{first}–{last}"


def _names_over_columns() -> alt.Axis:
    """Names of up to three words, one below the other over their columns; upright where these are narrow."""
    narrow, by = "width < 480 ? ", alt.ExprRef
    lines = "length(split(datum.label, ' '))"
    lowered = f"({lines} == 1 ? '  ' : {lines} == 2 ? ' ' : '') + (datum.label)"  # all end at the cells
    return alt.Axis(
        orient="top",
        labelOverlap=False,
        labelAngle=by(expr=f"{narrow}-90 : 0"),
        labelAlign=by(expr=f"{narrow}'left' : 'center'"),
        labelBaseline=by(expr=f"{narrow}'middle' : 'bottom'"),
        labelPadding=by(expr=f"{narrow}3 : 34"),
        labelExpr=f"{narrow}datum.label : split({lowered}, ' ')",
    )
