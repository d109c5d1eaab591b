"""Operators: which kernels and collectives of a rank cost most, and their share of its computing or communication."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from perfkit.core.run import Run

Grouping = Literal["name", "type", "core"]


def largest_kernels(run: Run, *, rank: int, step: int | None = None, by: Grouping = "name", top: int = 20) -> pd.DataFrame:
    """The kernels that compute longest on a rank, in one step or in all.

    One row a group: `by`'s column, `type`, `core`, `count`, `total_ns`, `mean_ns`, `max_ns`, `share` (0 to 1 of the summed time
    of all computing kernels, which is more than the computing time where kernels run side by side). Largest first.
    """
    kernels = run.frame("kernels", ranks=[rank], steps=None if step is None else [step])
    return _totals(kernels[kernels["kind"] == "computing"], [by], {"type": "first", "core": "first"}, top)


def largest_collectives(run: Run, *, rank: int, step: int | None = None, top: int = 20) -> pd.DataFrame:
    """The communication of a rank that takes longest, in one step or in all.

    One row an operation and group: `operation`, `group`, `group_size`, `count`, `total_ns`, `mean_ns`, `max_ns`, `share`,
    `wait_ns` and `bytes` (null unless every call has them). Largest first.
    """
    calls = run.frame("collectives", ranks=[rank], steps=None if step is None else [step])
    keys = ["operation", "group", "group_size"]
    totals = _totals(calls, keys, {}, top)
    sums = calls.groupby(keys, observed=True, dropna=False)[["wait_ns", "bytes"]].sum(skipna=False)
    return totals.merge(sums.reset_index(), on=keys, how="left")


def _totals(rows: pd.DataFrame, keys: list[str], firsts: dict[str, str], top: int) -> pd.DataFrame:
    groups = rows.groupby(keys, observed=True, dropna=False)
    totals = groups.agg(
        **{name: (name, how) for name, how in firsts.items() if name not in keys},
        count=("duration_ns", "size"),
        total_ns=("duration_ns", "sum"),
        max_ns=("duration_ns", "max"),
    )
    totals = totals.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    whole = totals["total_ns"].sum()
    totals["mean_ns"] = (totals["total_ns"] / totals["count"]).round().astype("int64")
    totals["share"] = totals["total_ns"] / whole if whole else 0.0
    return totals.head(top)
