"""Launching: how long devices wait for their hosts to launch, as recorded, and as it would be if no rank waited for another.

A rank that waits for others gives its host time to run ahead: of ranks with equally slow hosts only those idle that are just then
the latest. Where launches were recorded, the kernels of each rank are put one behind the other, each not before its launch, with
operations among ranks as long as they move data; what such a device idles is what its own host makes it wait.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.explain.diagnose import host
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Threshold
from perfkit.explain.ledger import FAR_LONGER, causes
from perfkit.record.overlap import Intervals

GAP_LEAST = Threshold("gap-least", 2e3, "ns", "chosen: below this a queue feeds the device as fast as it can")

COLUMNS = ["rank", "step", "start_ns", "duration_ns"]
SPREAD = 0.1
"""A host that is late with every launch has some stretches that are long: this share of its lateness is no cause of its own."""
Ints = npt.NDArray[np.int64]
Moving = Callable[[Ints], npt.NDArray[np.float64]]
LONGEST_NS = 1_000_000
"""A launch takes microseconds: what lasts a hundred of them is a pause, which `host-pause` names."""
DEEP_NS = 10_000_000
"""What started this long after its launch stood in a full queue: its launch may have waited for the device."""
_LONG_AGO = np.iinfo(np.int64).min // 4


def waits(case: Case) -> pd.DataFrame:
    """Times inside steps (`rank`, `step`, `start_ns`, `duration_ns`) in which a device waits for launches, one a kernel waited for.

    Where the host was recorded, what the ledger holds as late launches; else the gaps that are as short as a launch.
    """
    gaps = case.gaps[~case.gaps["lead"].to_numpy(dtype=bool)]
    unknown = gaps[~gaps["rank"].isin(list(case.ledger.hosts)).to_numpy(dtype=bool)]
    unknown = unknown[(unknown["duration_ns"] <= LONGEST_NS).to_numpy(dtype=bool)]
    idle = case.ledger.idle
    brief = idle["cause"].isin([causes.BLOCKING, causes.LATENCY]) & (idle["duration_ns"] <= LONGEST_NS)
    late = ((idle["cause"] == causes.LAUNCHING) | brief).to_numpy(dtype=bool) & ~_after_stops(idle)
    # Copies cut idle times that are one to the ledger: what follows each has a launch of its own.
    idle = idle.assign(copies=(idle["cause"] == causes.COPY).cumsum())
    own = idle[late & (idle["place"] == "inside").to_numpy(dtype=bool)]
    once = own.groupby(["rank", "gap", "copies"], sort=False).agg(
        step=("step", "first"), start_ns=("start_ns", "first"), duration_ns=("duration_ns", "sum")
    )
    found = pd.concat([once.reset_index()[COLUMNS], unknown[COLUMNS]], ignore_index=True).astype("int64")
    return found[(found["duration_ns"] >= case.limit(GAP_LEAST)).to_numpy(dtype=bool)].reset_index(drop=True)


def late_beside(case: Case, rank: int, moving: Intervals, computing: Intervals, shift: int = 0) -> Intervals:
    """When data move alone because the next kernel of their rank was launched late, while they still moved; none without launches.

    That kernel had waited for its host and not for the data. `shift` is from the clock of the rank to that of the intervals.
    """
    rows = host.launches(case, rank)
    none = Intervals(moving.starts[:0], moving.ends[:0])
    if rows is None or rows.empty or not len(moving.starts):
        return none
    rows = rows[(rows["kind"] == "computing").fillna(False).to_numpy(dtype=bool)]
    returned = rows["launch_ns"].astype("int64") + rows["launch_duration_ns"].fillna(0).astype("int64") + shift
    latest = returned.groupby(rows["start_ns"].to_numpy(dtype=np.int64) + shift).max()
    ends, next_starts = computing.ends[:-1], computing.starts[1:]
    called = latest.reindex(next_starts).fillna(_LONG_AGO).to_numpy(dtype=np.int64)
    at = np.searchsorted(moving.starts, called, side="right") - 1
    late = (called > ends) & (called <= next_starts) & (at >= 0) & (called < moving.ends[at.clip(min=0)])
    return Intervals(np.maximum(ends, moving.starts[at.clip(min=0)])[late], called[late])


def stopped_steps(case: Case) -> pd.MultiIndex:
    """The steps of ranks (`rank`, `step`) in which launches are late for stops of the host, which hide how late they else are."""
    idle = case.ledger.idle
    return pd.MultiIndex.from_frame(idle.loc[_longer(idle, "step", FAR_LONGER), ["rank", "step"]].drop_duplicates())


def _after_stops(idle: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether each piece follows from a stop of the host: most of its idle time, or far more of its step than launches are late.

    The queue has run empty in such a step: what follows at the pace of the host follows from the stop.
    """
    return _longer(idle, "gap", 1.0) | _longer(idle, "step", FAR_LONGER)


def _longer(idle: pd.DataFrame, column: str, times: float) -> npt.NDArray[np.bool_]:
    """Whether stops are so many times as long as late launches, of all that is equal in a column."""
    stops = idle["duration_ns"].where(idle["cause"].isin([causes.PAUSE, causes.FEED, causes.ALLOCATOR]), 0)
    launches = idle["duration_ns"].where(idle["cause"].isin([causes.LAUNCHING, causes.LATENCY, causes.BLOCKING]), 0)
    stopped, late = (amounts.groupby([idle["rank"], idle[column]]).transform("sum").to_numpy() for amounts in (stops, launches))
    found: npt.NDArray[np.bool_] = stopped > times * late
    return found


def leads_after_loading(case: Case, ranks: tuple[int, ...]) -> pd.DataFrame:
    """What of the times before the first kernels of steps lies behind the data loader, where its calls were recorded."""
    leads = case.gaps[case.gaps["lead"].astype(bool) & case.gaps["rank"].isin(ranks)]
    frames = [leads.iloc[:0]]
    for rank, mine in leads.groupby("rank"):
        calls = host.rows(case, int(str(rank)), host.LOADERS)
        if calls is None or calls.empty:
            continue
        ends = np.sort((calls["start_ns"] + calls["duration_ns"]).to_numpy(dtype=np.int64))
        begin = mine["start_ns"].to_numpy(dtype=np.int64)
        kernel = begin + mine["duration_ns"].to_numpy(dtype=np.int64)
        at = np.searchsorted(ends, kernel, side="right") - 1
        loaded = ends[at.clip(min=0)]
        kept = (at >= 0) & (loaded >= begin) & (kernel - loaded <= LONGEST_NS)
        frames.append(mine.assign(start_ns=loaded, duration_ns=kernel - loaded)[kept])
    return pd.concat(frames, ignore_index=True)


def own_idle_ns(case: Case, rank: int) -> float | None:
    """What the device of a rank idles in a step for its own host, if others kept it waiting nowhere; None without launches."""
    rows = host.launches(case, rank)
    if rows is None or rows.empty or rows["duration_ns"].isna().all():
        return None
    rows = rows[rows["duration_ns"].notna().to_numpy()].sort_values("start_ns", kind="stable")
    idle = [_idle_ns(one, _moving_ns(case, rank)) for _, one in rows.groupby("step")]
    return float(np.mean(idle))


def pace_ns(case: Case, rank: int) -> float:
    """The median time in ns from one launch of a rank to the next: slow hosts are slow all the time, waiting ones now and then."""
    rows = host.launches(case, rank)
    if rows is None or rows.empty:
        return 0.0
    launches = np.sort(rows["launch_ns"].dropna().to_numpy(dtype=np.int64))
    return float(np.median(np.diff(launches))) if len(launches) > 1 else 0.0


def _moving_ns(case: Case, rank: int) -> Moving:
    """How long the operations with others move data that begin at moments on the clock of a rank; NaN at others."""
    if not case.run.has("collectives"):
        return lambda starts: np.full(len(starts), np.nan)
    mine = case.members[(case.members["rank"] == rank) & case.members["transfer_ns"].notna() & case.members["start_ns"].notna()]
    found = pd.Series(mine["transfer_ns"].to_numpy(dtype=np.int64), index=mine["start_ns"].to_numpy(dtype=np.int64))
    found, own = found[~found.index.duplicated()], case.clocks.get(rank)
    return lambda starts: found.reindex(starts if own is None else own.common_ns(starts)).to_numpy(dtype=np.float64)


def _idle_ns(rows: pd.DataFrame, moving: Moving) -> int:
    """The idle time of one step whose executions are `rows`, in the order of their starts."""
    starts, lengths = rows["start_ns"].to_numpy(dtype=np.int64), rows["duration_ns"].to_numpy(dtype=np.int64)
    launched = (rows["launch_ns"] + rows["launch_duration_ns"].fillna(0)).to_numpy(dtype=np.int64)
    computes = (rows["kind"].astype("object") != "communication").to_numpy(dtype=bool)
    in_line = computes | ~_beside(starts, starts + lengths, np.sort(starts[computes]))
    moved = moving(starts)
    lengths = np.where(computes | np.isnan(moved), lengths, np.nan_to_num(moved)).astype(np.int64)[in_line]
    if not len(lengths):
        return 0
    between = _between(starts[in_line], starts[in_line] + lengths, launched[in_line])
    possible = np.where(starts - launched > DEEP_NS, _LONG_AGO, launched)[in_line]
    possible[0] = starts[in_line][0]
    before = np.cumsum(lengths + between) - lengths
    end = int(before[-1] + lengths[-1] + (possible - before).max())
    return end - int(possible[0]) - int((lengths + between).sum())


def _between(starts: Ints, ends: Ints, launched: Ints) -> Ints:
    """What of the time before each execution the device takes itself: as long as it does before those that stood in its queue."""
    free = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    gaps = np.maximum(starts - free, 0)
    queued = gaps[(launched < free) & (gaps > 0)]
    return np.minimum(gaps, round(float(np.median(queued)))) if len(queued) else np.zeros(len(gaps), dtype=np.int64)


def _beside(starts: Ints, ends: Ints, kernels: Ints) -> npt.NDArray[np.bool_]:
    """By execution whether a kernel started while it ran."""
    inside: npt.NDArray[np.bool_] = np.searchsorted(kernels, ends, side="left") > np.searchsorted(kernels, starts, side="right")
    return inside
