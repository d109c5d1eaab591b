"""Pipeline: waiting for another stage told apart into filling, the load of stages, slow ranks of a stage, and sends that came late.

With p stages, m micro batches of a step and v chunks a stage, every stage waits for p-1 micro batches of a chunk of a mean stage to
come and go while the pipeline fills and drains: (p-1)/(v m) of a mean stage's work (Huang et al., GPipe, 2019; Narayanan et al.,
2021, section 2.2). What it waits beyond that is at most what the busiest stage works longer than it does: the load of that stage.
Then what the rank that is waited for works longer than its own stage does; what remains came late although nobody was busier.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import shared
from perfkit.explain.micro_batches import chunks_of, micro_batches
from perfkit.explain.stragglers import NO_STAGE


def told_apart(run: Run, entries: pd.DataFrame, members: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The entries with those of the load of another stage cut by what they come from."""
    load = _for_stages(entries, stages)
    if not load.any():
        return entries
    work = {int(str(step)): rows for step, rows in _work(entries, stages).groupby("step")}
    none = pd.DataFrame({"rank": [], "stage": [], "ns": []})
    passes = chunks_of(run) * (micro_batches(run, members, stages) or 1)
    frames = [entries[~load]]
    for (rank, step), rows in entries[load].groupby(["rank", "step"], sort=False):
        busy = work.get(int(str(step)), none)
        own, by_stage = busy.set_index("rank")["ns"], busy.groupby("stage")["ns"].median()
        if len(by_stage) < 2:
            frames.append(rows)
            continue
        filling = (len(by_stage) - 1) / passes * float(by_stage.mean())
        # A stage that computes nothing is not among those that do.
        own_stage = float(by_stage.get(stages[int(str(rank))], 0.0))
        spare = max(0.0, float(by_stage.max()) - own_stage)
        slow = {who: max(0.0, float(own.get(who, 0)) - float(by_stage.get(stages.get(who, -1), 0))) for who in rows["who"].unique()}
        frames.append(_cut(rows, filling, spare, max(slow.values(), default=0.0)))
    return pd.concat(frames, ignore_index=True)


def _for_stages(entries: pd.DataFrame, stages: Mapping[int, int]) -> np.ndarray:
    """Which entries are waiting for another stage of which nothing else says why."""
    cause = entries["cause"]
    there, here = (entries[side].map(stages).fillna(NO_STAGE).to_numpy(dtype=np.int64) for side in ("who", "rank"))
    other = (there != here) & (there != NO_STAGE) & (here != NO_STAGE)
    untold = (cause == causes.WAITING_UNTOLD).to_numpy(dtype=bool) & (entries["who"] >= 0).to_numpy(dtype=bool) & other
    found: np.ndarray = cause.isin([causes.STAGE_LOAD, causes.OTHER_STAGE]).to_numpy(dtype=bool) | untold
    return found


def _cut(rows: pd.DataFrame, filling: float, spare: float, slow: float) -> pd.DataFrame:
    whole = int(rows["ns"].sum())
    rest, parts = whole, []
    for limit in (filling, spare, slow):
        parts.append(min(rest, round(limit)))
        rest -= parts[-1]
    weights = np.array([*parts, rest], dtype=np.int64)
    late = rows["cause"].replace(causes.STAGE_LOAD, causes.LATE_SENDS)
    names: tuple[pd.Series | str, ...] = (causes.FILLING, causes.STAGE_LOAD, causes.KERNELS, late)
    cut = np.stack([shared(int(ns), weights) for ns in rows["ns"]])
    pieces: list[pd.DataFrame] = [rows.assign(cause=name, ns=cut[:, at]) for at, name in enumerate(names) if weights[at]]
    return pd.concat(pieces, ignore_index=True)


def _work(entries: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The time that each rank computes in each step: `rank`, `step`, `stage`, `ns`."""
    working = entries[(entries["part"] == "computing").to_numpy(dtype=bool)]
    sums = working.groupby(["rank", "step"])["ns"].sum().reset_index()
    sums = sums.assign(stage=[stages.get(int(rank), NO_STAGE) for rank in sums["rank"]])
    return sums[(sums["stage"] != NO_STAGE).to_numpy(dtype=bool)]
