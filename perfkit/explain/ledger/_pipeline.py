"""Pipeline: waiting for another stage told apart into filling, the load of stages, slow ranks of a stage, and sends that came late.

With p stages, m micro batches of a step and v chunks a stage, every stage waits for p-1 micro batches of a chunk of a mean stage to
come and go while the pipeline fills and drains: (p-1)/(v m) of a mean stage's work (Huang et al., GPipe, 2019; Narayanan et al.,
2021, section 2.2). What it waits beyond that is at most what the busiest stage works longer than it does: the load of that stage.
Then what the rank that is waited for works longer than its own stage does; what remains came late although nobody was busier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import shared
from perfkit.explain.micro_batches import chunks_of, micro_batches
from perfkit.explain.stragglers import NO_STAGE

_TOLD = (causes.FILLING, causes.STAGE_LOAD, causes.KERNELS)
_Places: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Busy:
    """What the ranks compute in one step (ns), and the middle one of each stage."""

    own: Mapping[int, int]
    by_stage: Mapping[int, float]

    def limits(self, stage: int, waited_for: Iterable[int], stages: Mapping[int, int], passes: int) -> tuple[float, float, float]:
        """How much (ns) of what a rank of `stage` waits for others is filling, the load of the busiest stage, and a slow rank."""
        middle = self.by_stage
        filling = (len(middle) - 1) / passes * float(np.mean(list(middle.values())))
        # A stage that computes nothing is not among those that do.
        spare = max(0.0, max(middle.values()) - middle.get(stage, 0.0))
        slower = (self.own.get(who, 0) - middle.get(stages.get(who, NO_STAGE), 0.0) for who in waited_for)
        return filling, spare, max(0.0, *slower)


def told_apart(run: Run, entries: pd.DataFrame, members: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The entries with those of the load of another stage cut by what they come from."""
    load = _for_stages(entries, stages)
    if not load.any():
        return entries
    busy = _busy(entries, stages)
    passes = chunks_of(run) * (micro_batches(run, members, stages) or 1)
    loads = entries[load].reset_index(drop=True)
    ns, who = (loads[name].to_numpy(dtype=np.int64) for name in ("ns", "who"))
    cause = loads["cause"].to_numpy(dtype=object)
    late = np.where(cause == causes.STAGE_LOAD, causes.LATE_SENDS, cause)
    pieces: list[tuple[_Places, npt.NDArray[Any], npt.NDArray[np.int64]]] = []
    for (rank, step), places in _places(loads):
        work = busy.get(step)
        if work is None or len(work.by_stage) < 2:
            pieces.append((places, cause[places], ns[places]))
            continue
        parts = _parts(int(ns[places].sum()), work.limits(stages[rank], np.unique(who[places]).tolist(), stages, passes))
        cut = np.stack([shared(total, parts) for total in ns[places].tolist()])
        names = (*(np.full(len(places), name, dtype=object) for name in _TOLD), late[places])
        pieces += [(places, names[at], cut[:, at]) for at in np.flatnonzero(parts).tolist()]
    at, told, share = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return pd.concat([entries[~load], loads.iloc[at].assign(cause=told, ns=share)], ignore_index=True)


def _places(loads: pd.DataFrame) -> Iterator[tuple[tuple[int, int], _Places]]:
    """The places of the rows of each rank and step, in the order in which these come; a frame each would cost most of a ledger."""
    which = loads.groupby(["rank", "step"], sort=False).ngroup().to_numpy(dtype=np.int64)
    ordered = np.argsort(which, kind="stable")
    begins = np.flatnonzero(np.diff(which[ordered], prepend=-1))
    keys = loads[["rank", "step"]].to_numpy(dtype=np.int64)[ordered[begins]].tolist()
    return zip(map(tuple, keys), np.split(ordered, begins[1:]), strict=True)


def _busy(entries: pd.DataFrame, stages: Mapping[int, int]) -> dict[int, _Busy]:
    """What the ranks compute, by step."""
    return {
        int(str(step)): _Busy(
            dict(zip(rows["rank"].tolist(), rows["ns"].tolist(), strict=True)),
            {int(str(stage)): float(ns) for stage, ns in rows.groupby("stage")["ns"].median().items()},
        )
        for step, rows in _work(entries, stages).groupby("step")
    }


def _parts(whole: int, limits: Iterable[float]) -> npt.NDArray[np.int64]:
    """`whole` (ns) by what it comes from: as much as the limits allow one after the other, then what came late."""
    rest, parts = whole, []
    for limit in limits:
        parts.append(min(rest, round(limit)))
        rest -= parts[-1]
    return np.array([*parts, rest], dtype=np.int64)


def _for_stages(entries: pd.DataFrame, stages: Mapping[int, int]) -> np.ndarray:
    """Which entries are waiting for another stage of which nothing else says why."""
    cause = entries["cause"]
    there, here = (entries[side].map(stages).fillna(NO_STAGE).to_numpy(dtype=np.int64) for side in ("who", "rank"))
    other = (there != here) & (there != NO_STAGE) & (here != NO_STAGE)
    untold = (cause == causes.WAITING_UNTOLD).to_numpy(dtype=bool) & (entries["who"] >= 0).to_numpy(dtype=bool) & other
    found: np.ndarray = cause.isin([causes.STAGE_LOAD, causes.OTHER_STAGE]).to_numpy(dtype=bool) | untold
    return found


def _work(entries: pd.DataFrame, stages: Mapping[int, int]) -> pd.DataFrame:
    """The time that each rank computes in each step: `rank`, `step`, `stage`, `ns`."""
    working = entries[(entries["part"] == "computing").to_numpy(dtype=bool)]
    sums = working.groupby(["rank", "step"])["ns"].sum().reset_index()
    sums = sums.assign(stage=[stages.get(int(rank), NO_STAGE) for rank in sums["rank"]])
    return sums[(sums["stage"] != NO_STAGE).to_numpy(dtype=bool)]
