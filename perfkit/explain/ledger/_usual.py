"""Usual: how long like messages of the same ranks take at the speed that the link has most of the time it is fast."""

from __future__ import annotations

import numpy as np
import pandas as pd

FAST = 0.2
"""The share of like messages that may be faster than the usual one: a link that is slow in most steps still shows its own speed."""
SLOW = 1.25
"""Messages that take longer than this many times the usual are slow (as `slow-link` asks for); less is noise."""
LEAST_NS = 20_000
LIKE = 4
"""As many like messages are needed to say what is usual."""


def slower_ns(members: pd.DataFrame) -> dict[int, int]:
    """By row of `collectives.members` how much longer it moved data than like messages of its group usually do, in ns."""
    moving = (members["transfer_ns"] > 0).fillna(False).to_numpy(dtype=bool)
    told = members[moving & members["bytes"].notna().to_numpy()]
    told = told[(told["basis"].astype("object") != "partial").to_numpy(dtype=bool)]
    if told.empty:
        return {}
    told = told.sort_values(["instance", "rank"], kind="stable")
    keys = [told["operation"].astype("object"), told["group_size"].fillna(-1), told["bytes"], _ranks(told)]
    moved = told["transfer_ns"].astype("float64")
    grouped = moved.groupby(keys, dropna=False)
    usual = grouped.quantile(FAST).to_numpy(dtype=np.float64)[grouped.ngroup().to_numpy()]
    enough = grouped.transform("size").to_numpy() >= LIKE
    extra = np.rint(moved.to_numpy() - usual)
    slow = enough & (moved.to_numpy() > SLOW * usual) & (extra > LEAST_NS)
    return dict(zip(told.index[slow].tolist(), extra[slow].astype(np.int64).tolist(), strict=True))


def _ranks(rows: pd.DataFrame) -> np.ndarray:
    """A number for the ranks of the operation of each row, of rows in order of operation and rank."""
    instances = rows["instance"].to_numpy(dtype=np.int64)
    cuts = np.flatnonzero(np.diff(instances)) + 1
    own = np.split(rows["rank"].to_numpy(dtype=np.int64), cuts)
    numbers = pd.factorize(np.array([ranks.tobytes() for ranks in own], dtype=object))[0]
    found: np.ndarray = np.repeat(numbers, [len(ranks) for ranks in own])
    return found
