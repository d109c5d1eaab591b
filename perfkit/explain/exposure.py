"""Exposure: of every collective, how long the device computed meanwhile (hidden) and how long it did not (exposed).

By interval arithmetic on the rank's own clock. Collectives that run side by side each count their whole duration, so that their sum
may exceed the communication of the step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from perfkit.core.run import Run
from perfkit.record.overlap import union

COLUMNS = ("rank", "step", "name", "operation", "group", "group_size", "start_ns", "duration_ns", "transit_ns", "wait_ns", "bytes")


def exposed(run: Run, *, ranks: Iterable[int] | None = None) -> pd.DataFrame:
    """The rows of `collectives` with `hidden_ns` and `exposed_ns`, which sum to `duration_ns`.

    Null on ranks without computing kernels or without starts, where there is nothing to compare with, unless the step is known to
    hide nothing: then nor does any call in it.
    """
    calls = run.frame("collectives", ranks=ranks, columns=COLUMNS).reset_index(drop=True)
    hidden = pd.Series(pd.NA, index=calls.index, dtype="Int64")
    for rank, own in calls[calls["start_ns"].notna()].groupby("rank"):
        kernels = run.frame("kernels", ranks=[int(str(rank))], columns=["rank", "kind", "start_ns", "duration_ns"])
        kernels = kernels[(kernels["kind"] == "computing").to_numpy() & kernels["start_ns"].notna().to_numpy()]
        if kernels.empty:
            continue
        start = own["start_ns"].to_numpy(dtype=np.int64)
        end = start + own["duration_ns"].to_numpy(dtype=np.int64)
        began = kernels["start_ns"].to_numpy(dtype=np.int64)
        busy = union(began, began + kernels["duration_ns"].to_numpy(dtype=np.int64))
        hidden.loc[own.index] = _before(busy.starts, busy.ends, end) - _before(busy.starts, busy.ends, start)
    hidden = hidden.mask(hidden.isna() & _in_steps_that_hide_nothing(run, calls), 0)
    return calls.assign(hidden_ns=hidden, exposed_ns=calls["duration_ns"].astype("Int64") - hidden)


def _in_steps_that_hide_nothing(run: Run, calls: pd.DataFrame) -> np.ndarray:
    """Whether each call is of a rank and step of which the recording says that computing hid no communication."""
    steps = run.frame("steps", columns=["rank", "step", "overlapped_ns"])
    nothing = steps[(steps["overlapped_ns"] == 0).fillna(False).astype(bool)]
    keys = pd.MultiIndex.from_frame(calls[["rank", "step"]].astype("Int64"))
    found: np.ndarray = keys.isin(pd.MultiIndex.from_frame(nothing[["rank", "step"]].astype("Int64")))
    return found


def by_operation(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `exposed` by operation and group size: `count`, `duration_ns`, `hidden_ns`, `exposed_ns`, `bytes`, the longest first.

    All are means a rank and step; null where any call of the operation has none.
    """
    known = rows[rows["step"].notna()]
    rows = known if len(known) else rows
    num_steps = max(1, len(rows[["rank", "step"]].drop_duplicates()))
    names = ["duration_ns", "hidden_ns", "exposed_ns", "bytes"]
    grouped = rows.astype(dict.fromkeys(names, "Int64")).groupby(["operation", "group_size"], observed=True, dropna=False)
    means = (grouped[names].sum(skipna=False).astype("Float64") / num_steps).round().astype("Int64")
    table = means.assign(count=grouped.size() / num_steps).reset_index()
    return table.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def _before(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """How much of the disjoint ascending intervals lies before each time."""
    whole = np.concatenate([[0], np.cumsum(ends - starts)])
    index = np.searchsorted(starts, times, side="right")
    into = np.where(index > 0, np.minimum(times, ends[np.maximum(index - 1, 0)]) - starts[np.maximum(index - 1, 0)], 0)
    covered: np.ndarray = whole[np.maximum(index - 1, 0)] + into
    return covered
