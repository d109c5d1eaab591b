"""Gaps: when the device of a rank did nothing at all, and what came before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit.record.overlap import union

COLUMNS = ("rank", "step", "start_ns", "duration_ns", "lead", "after", "before")


def idle_gaps(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The gaps of every rank and step, in order.

    `kernels` are in the order of their start, all kinds. `lead` marks the gap before the first kernel of the step, whose length is
    what the step lasts beyond its kernels where the recording does not say when it began. `after` and `before` are the kinds of
    kernels around a gap ("" at the start of a step).
    """
    frames = [_of_step(rank, step, rows) for (rank, step), rows in kernels.groupby(["rank", "step"], sort=True)]
    inside = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({name: [] for name in COLUMNS})
    return pd.concat([inside, _leads(kernels, steps)], ignore_index=True).sort_values(["rank", "start_ns"], ignore_index=True)


def _of_step(rank: Any, step: Any, rows: pd.DataFrame) -> pd.DataFrame:
    starts = rows["start_ns"].to_numpy()
    ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    busy = union(starts, ends)
    kinds = rows["kind"].astype("object").to_numpy()
    by_end = np.argsort(ends, kind="stable")
    before = kinds[np.searchsorted(starts, busy.starts[1:], side="left").clip(max=len(kinds) - 1)]
    after = kinds[by_end[np.searchsorted(ends[by_end], busy.ends[:-1], side="right") - 1]]
    return pd.DataFrame(
        {
            "rank": int(rank),
            "step": int(step),
            "start_ns": busy.ends[:-1],
            "duration_ns": busy.starts[1:] - busy.ends[:-1],
            "lead": False,
            "after": after,
            "before": before,
        }
    )


def _leads(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The time before the first kernel of each step: from the start of the step, or what its length leaves."""
    ends = kernels["start_ns"] + kernels["duration_ns"].astype("int64")
    spans = kernels.assign(end_ns=ends).groupby(["rank", "step"]).agg(first=("start_ns", "min"), last=("end_ns", "max"))
    kinds = kernels.drop_duplicates(["rank", "step"]).set_index(["rank", "step"])["kind"].astype("object")
    rows = spans.join(kinds).reset_index().merge(steps[["rank", "step", "start_ns", "duration_ns"]], on=["rank", "step"])
    marked = (rows["start_ns"].notna() & (rows["start_ns"] < rows["first"])).fillna(False).to_numpy(dtype=bool)
    by_start = rows["first"] - rows["start_ns"].fillna(0).astype("int64")
    by_length = rows["duration_ns"].astype("int64") - (rows["last"] - rows["first"])
    lead_ns = np.where(marked, by_start, by_length).clip(min=0)
    return pd.DataFrame(
        {
            "rank": rows["rank"],
            "step": rows["step"],
            "start_ns": rows["first"] - lead_ns,
            "duration_ns": lead_ns,
            "lead": True,
            "after": "",
            "before": rows["kind"],
        }
    )
