"""Host: which calls of the host lie in the idle times of a device, where the host side was recorded."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.diagnose._case import Case
from perfkit.trace.overlap import overlap_ns, union

LOADERS = re.compile(r"data_?loader|getnext|get_next|dataset", re.IGNORECASE)
COLLECTORS = re.compile(r"^gc\b|\bgc:|garbage", re.IGNORECASE)
SYNCHRONISERS = re.compile(r"synchronize|_local_scalar_dense|aten::item|Tensor::item|asnumpy|memcpy.*dtoh", re.IGNORECASE)
ALLOCATORS = re.compile(r"(?:cuda|hip|aclrt|acl)\w*(?:malloc|free)", re.IGNORECASE)

COLUMNS = ("rank", "name", "kind", "start_ns", "duration_ns")
LAUNCH_COLUMNS = ("name", "step", "kind", "start_ns", "call", "launch_ns", "launch_duration_ns")


def rows(case: Case, rank: int, pattern: re.Pattern[str]) -> pd.DataFrame | None:
    """What the host of a rank did under names that match, in order; None if its host side was not recorded."""
    if rank not in case.host:
        if "host" not in case.run.tables:
            case.host[rank] = None
        else:
            rows_of_rank = case.run.frame("host", ranks=[rank], columns=COLUMNS)
            case.host[rank] = rows_of_rank if len(rows_of_rank) else None
    if (table := case.host[rank]) is None:
        return None
    names = table["name"].astype("category")
    wanted = [bool(pattern.search(str(name))) for name in names.cat.categories]
    codes = names.cat.codes.to_numpy()
    found = table[np.asarray(wanted, dtype=bool)[codes] & (codes >= 0)] if wanted else table.iloc[:0]
    return found.sort_values("start_ns", ignore_index=True)


def share_in(case: Case, rank: int, gaps: pd.DataFrame, pattern: re.Pattern[str]) -> float | None:
    """The share of a rank's idle times in which the host ran something that matches; None if the host was not recorded."""
    found = rows(case, rank, pattern)
    mine = gaps[gaps["rank"] == rank]
    if found is None or mine.empty:
        return None
    idle, busy = (
        union(starts, starts + frame["duration_ns"].to_numpy(dtype=np.int64))
        for frame in (mine, found)
        for starts in (frame["start_ns"].to_numpy(dtype=np.int64),)
    )
    return overlap_ns(idle, busy) / idle.total_ns if idle.total_ns else 0.0


def busiest(case: Case) -> tuple[int, ...]:
    """The ranks whose host side is worth reading: the one whose device idles most inside steps, and the first."""
    if not case.detail_ranks:
        return ()
    if not case.run.has("kernels") or case.kernels.empty:
        return case.detail_ranks[:1]
    idle = case.gaps[~case.gaps["lead"].astype(bool)].groupby("rank")["duration_ns"].sum().sort_values(ascending=False)
    return tuple(dict.fromkeys([*(int(str(rank)) for rank in idle.index[:1]), case.detail_ranks[0]]))


def launches(case: Case, rank: int) -> pd.DataFrame | None:
    """The executions of a rank in the judged steps with what launched them; None if launches were not recorded."""
    if rank not in case.launched:
        rows = None
        if "launches" in case.run.tables:
            read = case.run.frame("launches", ranks=[rank], columns=LAUNCH_COLUMNS)
            read = read[read["launch_ns"].notna().to_numpy() & read["start_ns"].notna().to_numpy()]
            rows = read[read["step"].isin(case.step_numbers).to_numpy(dtype=bool)] if len(read) else None
        case.launched[rank] = rows
    return case.launched[rank]
