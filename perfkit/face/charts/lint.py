"""What checks found as a picture: how often each rule fired, by level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import altair as alt

from perfkit.face.charts import theme

Rows = dict[str, list[dict[str, Any]]]
LEVELS = {"error": theme.FREE, "warning": theme.COMMUNICATION, "information": theme.SKY}


@theme.drawn_once
def problem_bars(rows: Rows) -> alt.Chart:
    """Draw one bar a rule, errors first. Data set "rules" from `problem_rows`."""
    return theme.bars(
        rows,
        "rules",
        height={"step": 22},
        x=alt.X("count:Q", title="places", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("rule:N", title=None, sort=alt.EncodingSortField(field="order", op="min")),
        color=alt.Color(
            "level:N", title=None, sort=list(LEVELS), scale=alt.Scale(domain=list(LEVELS), range=list(LEVELS.values()))
        ),
        tooltip=[alt.Tooltip("rule:N"), alt.Tooltip("level:N"), alt.Tooltip("count:Q", title="places")],
    )


def problem_rows(found: Iterable[tuple[str, str]]) -> Rows:
    """The data set of `problem_bars` for problems as (rule, level)."""
    counts = Counter(found)
    order = sorted(counts, key=lambda item: (list(LEVELS).index(item[1]), -counts[item], item[0]))
    return {
        "rules": [{"rule": rule, "level": level, "count": counts[rule, level], "order": n} for n, (rule, level) in enumerate(order)]
    }
