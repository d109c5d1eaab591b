"""Statistics: durations of equal events as count, total, mean, standard deviation and range."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def statistics(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row a group of `rows` (with `rank` and `duration_ns`), the most time first.

    Columns: those of `by`, `num_ranks`, `count`, `total_ns`, `mean_ns`, `std_ns` (of the sample, 0 for one), `min_ns`, `max_ns`.
    """
    groups = rows.groupby(list(by), observed=True, dropna=False, sort=False)
    took = groups["duration_ns"]
    table = pd.DataFrame(
        {
            "num_ranks": groups["rank"].nunique(),
            "count": took.size(),
            "total_ns": took.sum(),
            "mean_ns": took.mean().round().astype("int64"),
            "std_ns": took.std().fillna(0).round().astype("int64"),
            "min_ns": took.min(),
            "max_ns": took.max(),
        }
    ).reset_index()
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
