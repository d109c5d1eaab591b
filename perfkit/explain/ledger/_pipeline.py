"""Pipeline: waiting for another stage told apart into filling, the load of stages, slow ranks of a stage, and sends that came late.

With p stages and m micro batches of a step, every stage waits for p-1 micro batches of a mean stage to come and go while the
pipeline fills and drains: (p-1)/m of a mean stage's work (Huang et al., GPipe, 2019; Narayanan et al., PipeDream, 2019). What it
waits beyond that is at most what the busiest stage works longer than it does: the load of that stage. Then what the rank that is
waited for works longer than its own stage does; what remains came late although nobody was busier.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.explain.ledger import causes
from perfkit.explain.stragglers import NO_STAGE


def told_apart(entries: pd.DataFrame, members: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The entries with those of the load of another stage cut by what they come from."""
    load = _for_stages(entries, stages)
    if not load.any():
        return entries
    busy = _work(entries, stages)
    by_stage = busy.groupby("stage")["ns"].median()
    if len(by_stage) < 2:
        return entries
    filling = (len(by_stage) - 1) / _micro_batches(members, stages) * float(by_stage.mean())
    late = entries[load]
    of_step = [late["rank"], late["step"]]
    # A stage that computes nothing is not among those that do.
    spare = (float(by_stage.max()) - late["rank"].map(stages).map(by_stage).fillna(0.0)).clip(lower=0.0)
    longer = late["who"].map(busy.set_index("rank")["ns"]).fillna(0.0) - late["who"].map(stages).map(by_stage).fillna(0.0)
    slow = longer.clip(lower=0.0).groupby(of_step).transform("max")
    whole = late["ns"].groupby(of_step).transform("sum")
    return pd.concat([entries[~load], *_cut(late, whole, (filling, spare, slow))], ignore_index=True)


def _for_stages(entries: pd.DataFrame, stages: Mapping[int, int]) -> np.ndarray:
    """Which entries are waiting for another stage of which nothing else says why."""
    cause = entries["cause"]
    there, here = (entries[side].map(stages).fillna(NO_STAGE).to_numpy(dtype=np.int64) for side in ("who", "rank"))
    other = (there != here) & (there != NO_STAGE) & (here != NO_STAGE)
    untold = (cause == causes.WAITING_UNTOLD).to_numpy(dtype=bool) & (entries["who"] >= 0).to_numpy(dtype=bool) & other
    found: np.ndarray = cause.isin([causes.STAGE_LOAD, causes.OTHER_STAGE]).to_numpy(dtype=bool) | untold
    return found


def _cut(rows: pd.DataFrame, whole: pd.Series, limits: tuple[float | pd.Series, ...]) -> list[pd.DataFrame]:
    """The rows cut into filling, load, slow ranks and the rest: in order up to the limits of all of their step, in proportion."""
    late = rows["cause"].replace(causes.STAGE_LOAD, causes.LATE_SENDS)
    names: tuple[pd.Series | str, ...] = (causes.FILLING, causes.STAGE_LOAD, causes.KERNELS, late)
    own, total = (amounts.to_numpy(dtype=np.int64) for amounts in (rows["ns"], whole))
    reached, before, pieces = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64), []
    for name, limit in zip(names, (*limits, np.inf), strict=True):
        reached = np.minimum(reached + np.rint(limit), total)
        until = np.minimum(np.floor(own * (reached / total)).astype(np.int64), own)
        pieces.append(rows.assign(cause=name, ns=until - before))
        before = until
    return pieces


def _work(entries: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The mean time a step that each rank computes: `rank`, `stage`, `ns`."""
    working = entries[(entries["part"] == "computing").to_numpy(dtype=bool)]
    by_step = working.groupby(["rank", "step"])["ns"].sum()
    means = by_step.groupby(level="rank").mean().rename("ns").reset_index()
    means = means.assign(stage=[stages.get(int(rank), NO_STAGE) for rank in means["rank"]])
    return means[(means["stage"] != NO_STAGE).to_numpy(dtype=bool)]


def _micro_batches(members: pd.DataFrame, stages: Mapping[int, int]) -> int:
    """Micro batches of a step: what a rank of the first or last stage receives; at least one.

    Calls that send and receive at once are one more than the micro batches: the first only receives, or the last only sends.
    """
    known = [stage for stage in stages.values() if stage != NO_STAGE]
    ends = [min(known), max(known)]
    rows = members[members["rank"].map(stages).isin(ends).to_numpy(dtype=bool) & members["step"].notna().to_numpy()]
    found = [1]
    for operation, more in (("receive", 0), ("send_receive", 1)):
        own = rows[(rows["operation"].astype("object") == operation).to_numpy(dtype=bool)]
        if len(own):
            found.append(round(float(own.groupby(["rank", "step"]).size().median())) - more)
    return max(found)
