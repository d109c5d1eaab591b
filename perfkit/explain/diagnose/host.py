"""Host: which calls of the host lie in the idle times of a device, where the host side was recorded."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Threshold
from perfkit.record.overlap import Intervals, overlap_ns, union

FEED_LEAST = Threshold(
    "feed-least", 1e6, "ns a step", "chosen: an interval of a millisecond holds the launches of a step, no wait for data"
)

LOADERS = re.compile(r"data_?loader|getnext|get_next|dataset", re.IGNORECASE)
COLLECTORS = re.compile(r"^gc\b|\bgc:|garbage", re.IGNORECASE)
SYNCHRONISERS = re.compile(r"synchronize|_local_scalar_dense|aten::item|Tensor::item|asnumpy|memcpy.*dtoh", re.IGNORECASE)
ALLOCATORS = re.compile(r"(?:cuda|hip|aclrt|acl)\w*(?:malloc|free)", re.IGNORECASE)

FRAMES = re.compile(
    r"^ProfilerStep|^## |^\[|^nn\.Module|^<built-in|DistributedDataParallel\.forward|^forward$|^PyTorch Profiler", re.IGNORECASE
)
"""Marks and frames around much of a step."""
LOADED = 0.5
"""Idle times that a data loader fills to this share are waits for data."""
LEAST_CALL = 0.1
"""Calls that last less than this share of the shortest idle time explain none of it."""

COLUMNS = ("rank", "name", "kind", "start_ns", "duration_ns")
LAUNCH_COLUMNS = ("name", "step", "kind", "start_ns", "duration_ns", "call", "launch_ns", "launch_duration_ns", "input_shapes")


def rows(case: Case, rank: int, pattern: re.Pattern[str]) -> pd.DataFrame | None:
    """What the host of a rank did under names that match, in order; None if its host side was not recorded."""
    if (table := recorded(case, rank)) is None:
        return None
    if (rank, pattern) not in case.host_named:
        names = table["name"].astype("category")
        wanted = [bool(pattern.search(str(name))) for name in names.cat.categories.tolist()]
        codes = names.cat.codes.to_numpy()
        found = table[np.asarray(wanted, dtype=bool)[codes] & (codes >= 0)] if wanted else table.iloc[:0]
        case.host_named[rank, pattern] = found.sort_values("start_ns", ignore_index=True)
    return case.host_named[rank, pattern]


def recorded(case: Case, rank: int) -> pd.DataFrame | None:
    """What the host of a rank did; None if its host side was not recorded."""
    if rank not in case.host:
        rows_of_rank = case.run.frame("host", ranks=[rank], columns=COLUMNS) if "host" in case.run.tables else None
        case.host[rank] = rows_of_rank if rows_of_rank is not None and len(rows_of_rank) else None
    return case.host[rank]


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


def shares_in(case: Case, rank: int, gaps: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray | None:
    """Of each of a rank's idle times the share in which the host ran something that matches; None if it was not recorded."""
    found = rows(case, rank, pattern)
    if found is None:
        return None
    starts = found["start_ns"].to_numpy(dtype=np.int64)
    busy = union(starts, starts + found["duration_ns"].to_numpy(dtype=np.int64))
    begin = gaps["start_ns"].to_numpy(dtype=np.int64)
    length = gaps["duration_ns"].to_numpy(dtype=np.int64)
    shares: np.ndarray = (busy_until(busy, begin + length) - busy_until(busy, begin)) / np.maximum(length, 1)
    return shares


def busy_until(busy: Intervals, times: np.ndarray) -> np.ndarray:
    """How much of `busy` lies before each time, in ns."""
    if not len(busy.starts):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(busy.ends - busy.starts)])
    at = np.searchsorted(busy.starts, times, side="right")
    running = np.where(at > 0, np.maximum(0, busy.ends[at - 1] - times), 0)
    return before[at] - running


def loading(case: Case) -> np.ndarray:
    """Of each of `case.gaps` inside steps whether a data loader fills it, as far as the host side is known."""
    gaps = case.gaps
    found = np.zeros(len(gaps), dtype=bool)
    inside = ~gaps["lead"].to_numpy(dtype=bool) & (gaps["duration_ns"] >= case.limit(FEED_LEAST)).to_numpy()
    for rank in busiest(case):
        at = np.flatnonzero(inside & (gaps["rank"] == rank).to_numpy())
        shares = shares_in(case, rank, gaps.iloc[at], LOADERS)
        if shares is not None:
            found[at[shares >= LOADED]] = True
    return found


def idle_at(case: Case, rank: int, calls: pd.DataFrame) -> pd.DataFrame:
    """The idle times inside steps of a rank in which any of these calls ends."""
    gaps = case.gaps[(case.gaps["rank"] == rank).to_numpy() & ~case.gaps["lead"].to_numpy(dtype=bool)]
    ends = np.sort((calls["start_ns"] + calls["duration_ns"]).to_numpy(dtype=np.int64))
    begin = gaps["start_ns"].to_numpy(dtype=np.int64)
    stop = begin + gaps["duration_ns"].to_numpy(dtype=np.int64)
    found: pd.DataFrame = gaps[np.searchsorted(ends, stop, side="right") > np.searchsorted(ends, begin, side="left")]
    return found


def longest_in(case: Case, rank: int, gaps: pd.DataFrame) -> str | None:
    """The call of the host that fills most of a rank's idle times, the innermost of those that fill at least half of what it fills.

    Marks around whole steps or passes say nothing and do not count. None if no call fills a quarter of the idle times.
    """
    if (table := recorded(case, rank)) is None:
        return None
    mine = gaps[gaps["rank"] == rank].sort_values("start_ns")
    lasts = mine["duration_ns"].sum()
    known = table[(table["duration_ns"] >= LEAST_CALL * mine["duration_ns"].min()).to_numpy(dtype=bool)]
    names = known["name"].astype("object").astype(str)
    known = known[~names.str.contains(FRAMES).to_numpy(dtype=bool)]
    begin = known["start_ns"].to_numpy(dtype=np.int64)
    end = begin + known["duration_ns"].to_numpy(dtype=np.int64)
    filled = np.zeros(len(known), dtype=np.int64)
    for start, length in zip(mine["start_ns"].to_numpy(dtype=np.int64), mine["duration_ns"].to_numpy(dtype=np.int64), strict=True):
        filled += np.maximum(0, np.minimum(end, start + length) - np.maximum(begin, start))
    sums = pd.DataFrame({"name": known["name"].astype(str).to_numpy(), "filled": filled, "own": end - begin})
    by_name = sums[sums["filled"] > 0].groupby("name").sum()
    by_name = by_name[by_name["filled"] >= max(0.25 * lasts, 0.5 * by_name["filled"].max() if len(by_name) else 0.0)]
    if by_name.empty:
        return None
    # Calls hold one another: the innermost takes least of its own time elsewhere.
    return str(by_name.sort_values(["own", "filled"], kind="stable").index[0])


def busiest(case: Case) -> tuple[int, ...]:
    """The ranks whose host side is worth reading: the one whose device idles most inside steps, and the first."""
    if not case.detail_ranks:
        return ()
    if not case.run.has("kernels") or not case.idle_known:
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


def with_shapes(case: Case, rows: pd.DataFrame, ranks: tuple[int, ...]) -> pd.DataFrame:
    """Kernels of `ranks` with the input shapes of the operators that launched them, where kernels state none themselves."""
    rows = rows[rows["rank"].isin(ranks).to_numpy(dtype=bool)]
    if rows["input_shapes"].notna().any():
        return rows
    frames = []
    for rank, mine in rows.groupby("rank"):
        known = launches(case, int(str(rank)))
        if known is None or known["input_shapes"].isna().all():
            frames.append(mine)
            continue
        first = known.drop_duplicates(["start_ns", "name"])
        shapes = pd.Series(
            first["input_shapes"].astype("object").to_numpy(),
            index=pd.MultiIndex.from_arrays([first["start_ns"].to_numpy(dtype=np.int64), first["name"].astype("object")]),
        )
        wanted = pd.MultiIndex.from_arrays([mine["start_ns"].to_numpy(dtype=np.int64), mine["name"].astype("object")])
        frames.append(mine.assign(input_shapes=shapes.reindex(wanted).to_numpy()))
    return pd.concat(frames) if frames else rows
