"""Blocking calls: what the host of a rank calls that waits for the device, and the idle times that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit.explain.diagnose import host, launching, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Threshold

SYNC_CALLS = Threshold(
    name="sync-calls",
    value=4.0,
    unit="calls a step that wait for the device, its end left out",
    origin="chosen: one for the loss, one for its scale, one for the gradient norm and one for a log line; bundled ones have 0.8",
)

AT_END = 0.98
"""A call that ends later in the step than this share of it belongs to its end."""
MOST_RANKS = 8
"""Of so many ranks all hosts are read; of more those whose devices idle most."""


def ranks_read(case: Case) -> tuple[int, ...]:
    """The ranks whose calls are looked at: all of a few, else the one whose device idles most and the first."""
    if len(case.detail_ranks) <= MOST_RANKS:
        return tuple(case.detail_ranks)
    return host.busiest(case)


def calls(case: Case, rank: int) -> pd.DataFrame | None:
    """The outermost waiting calls of a rank inside its steps, with `step` and `end_ns`; None if its host side was not recorded."""
    every = before_last(case, rank)
    return None if every is None else every[~every["at_end"].to_numpy(dtype=bool)].reset_index(drop=True)


def before_last(case: Case, rank: int) -> pd.DataFrame | None:
    """These, and those near the ends of steps (`at_end`) that do not wait for their last kernels."""
    if rank not in case.blocked:
        case.blocked[rank] = _outermost(case, rank)
    return case.blocked[rank]


def _outermost(case: Case, rank: int) -> pd.DataFrame | None:
    rows = host.rows(case, rank, host.SYNCHRONISERS)
    kernels = case.kernels[case.kernels["rank"] == rank]
    if rows is None or kernels.empty:
        return None
    ends = rows["start_ns"].to_numpy(dtype=np.int64) + rows["duration_ns"].to_numpy(dtype=np.int64)
    outer = np.concatenate([[True], ends[1:] > np.maximum.accumulate(ends)[:-1]]) if len(rows) else np.array([], dtype=bool)
    spans = kernels.assign(end_ns=kernels["start_ns"] + kernels["duration_ns"].astype("int64")).groupby("step")
    firsts, lasts = spans["start_ns"].min().sort_values(), spans["end_ns"].max()
    at = np.searchsorted(firsts.to_numpy(), ends, side="right") - 1
    inside = outer & (at >= 0)
    steps = firsts.index.to_numpy()[at.clip(min=0)]
    limits = firsts.to_numpy()[at.clip(min=0)] * (1 - AT_END) + lasts.loc[steps].to_numpy() * AT_END
    inside &= ends < lasts.loc[steps].to_numpy()
    found: pd.DataFrame = rows.assign(step=steps, end_ns=ends, at_end=ends >= limits)[inside].reset_index(drop=True)
    return found


def within(rows: pd.DataFrame, steps: Sequence[int]) -> pd.DataFrame:
    """The rows of some steps."""
    found: pd.DataFrame = rows[rows["step"].isin(list(steps)).to_numpy(dtype=bool)]
    return found


def by_step(case: Case, rank: int) -> pd.Series:
    """How many of these calls each step of a rank has."""
    rows = calls(case, rank)
    found = [] if rows is None else rows["step"].tolist()
    return pd.Series({step: found.count(step) for step in case.kernel_steps})


def lost_by_step(case: Case) -> dict[int, pd.Series]:
    """What `lost_ns` tells, by step: each call of a rank takes the same part of it."""
    found = {}
    for rank, amount in lost_ns(case).items():
        counts = by_step(case, rank)
        found[rank] = counts * (amount * case.num_kernel_steps / max(1, counts.sum()))
    return found


def lost_ns(case: Case) -> dict[int, float]:
    """By rank how much less its device would idle in a mean step if no rank had such calls; empty where launches do not tell.

    Not only the idle times at the calls: a host that has to wait loses its lead, and is late for what follows too. What a device
    would wait for other ranks instead is no less: where a call waits for a peer, the step wins nothing without it.
    """
    found = {rank: waiting for rank in ranks_read(case) if (waiting := calls(case, rank)) is not None}
    if (moments := case.moments) is None or not found:
        return {}
    times = moments.timed(work.EMPTY, work.EMPTY, {}, tuple(found.values()))
    lost: dict[int, float] = {}
    for rank in found:
        own, whole = (moments.idle_ns(rank, waiting=told) - moments.idle_ns(rank, times, waiting=told) for told in (False, True))
        lost[rank] = max(0, min(own, whole)) / case.num_kernel_steps
    return lost


def idle_after(case: Case, rank: int, waiting: pd.DataFrame) -> pd.DataFrame:
    """The idle times inside steps of a rank in which one of these calls ends; longer ones than launches take are pauses."""
    gaps = case.gaps[(case.gaps["rank"] == rank).to_numpy(dtype=bool) & ~case.gaps["lead"].to_numpy(dtype=bool)]
    gaps = gaps[(gaps["duration_ns"] <= launching.LONGEST_NS).to_numpy(dtype=bool)]
    starts = gaps["start_ns"].to_numpy(dtype=np.int64)
    stops = starts + gaps["duration_ns"].to_numpy(dtype=np.int64)
    ends = np.sort(waiting["end_ns"].to_numpy(dtype=np.int64))
    hit = np.searchsorted(ends, stops, side="right") > np.searchsorted(ends, starts, side="left")
    found: pd.DataFrame = gaps[hit]
    return found
