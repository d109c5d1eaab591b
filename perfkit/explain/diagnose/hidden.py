"""Hidden or not: how much of some communication of a rank runs while nothing computes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.explain.diagnose.case import Case
from perfkit.record.overlap import overlap_ns, union


def exposed_ns(case: Case, rows: pd.DataFrame) -> float:
    """The mean time a step in which the rank that waits least transfers `rows` (of `case.members`) and computes nothing."""
    known = rows[rows["start_ns"].notna() & rows["wait_ns"].notna() & rows["rank"].isin(case.detail_ranks)]
    if known.empty:
        return 0.0
    waits = known.groupby("rank")["wait_ns"].sum().astype("float64")
    rank = int(str(waits.index[int(waits.to_numpy().argmin())]))
    mine = known[known["rank"] == rank]
    begin = mine["start_ns"].to_numpy(dtype=np.int64)
    moving = union(begin + mine["wait_ns"].to_numpy(dtype=np.int64), begin + mine["duration_ns"].to_numpy(dtype=np.int64))
    kernels = case.computing[case.computing["rank"] == rank]
    starts = case.common_ns(kernels)
    computing = union(starts, starts + kernels["duration_ns"].to_numpy(dtype=np.int64))
    return (moving.total_ns - overlap_ns(moving, computing)) / case.num_kernel_steps
