"""Breakdowns as bars: one horizontal bar a breakdown, all on one axis."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from perfkit.breakdown import Breakdown, one_unit
from perfkit.charts import _theme as theme


def bars(breakdowns: Mapping[str, Breakdown], *, depth: int = 2) -> alt.Chart:
    """Draw one bar a breakdown, split at `depth` path levels.

    All must have one unit. Rows are in the data set "parts" (`name`, `path`, `amount`, `share`, `order`), so that a panel can
    replace them without building the chart again. Unmeasured paths are not drawn as zero; `unmeasured_text` names them.
    """
    rows = bar_rows(breakdowns, depth=depth)
    unit = one_unit(breakdowns.values())
    paths = list(dict.fromkeys(rows["path"]))
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("parts"), height={"step": 34}, width="container")
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X("amount:Q", title=f"amount ({unit})", stack="zero", axis=alt.Axis(format="~s")),
            y=alt.Y("name:N", title=None, sort=list(breakdowns)),
            color=alt.Color("path:N", scale=theme.path_scale(paths), title=None, sort=paths, legend=alt.Legend(columns=3)),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("path:N", title="part"),
                alt.Tooltip("amount:Q", format=".3s", title=f"amount ({unit})"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return theme.with_rows(chart, {"parts": theme.records(rows)})


def bar_rows(breakdowns: Mapping[str, Breakdown], *, depth: int = 2) -> pd.DataFrame:
    """The rows that `bars` draws: one a breakdown and path, in the order of the paths."""
    frames = [breakdown.collapse(depth).to_frame().assign(name=name) for name, breakdown in breakdowns.items()]
    rows = pd.concat(frames, ignore_index=True)
    order = {path: index for index, path in enumerate(dict.fromkeys(rows["path"]))}
    return rows.assign(order=rows["path"].map(order))


def unmeasured_text(breakdown: Breakdown) -> str:
    """A sentence on the parts that were not told apart; empty if there are none."""
    if breakdown.complete:
        return ""
    return f"Not told apart by this recording: {', '.join(sorted(breakdown.unmeasured))}."
