"""Memory over time: the curve of a rank, what stays alive through a whole step, and what virtual memory would win.

`perfkit.record.memory` answers what is alive at a moment. Moments here are those of the recording: ns, or events of the allocator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.memory import WEIGHT, live_peak, pools

POINTS = 600
MODULE = "module "
HOW = (
    "record memory: profile_memory=True of the profiler, MS_ALLOC_CONF=memory_tracker:True of MindSpore, "
    "or MS_MEMORY_STATISTIC=1 for the peak alone"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Allocated and reserved bytes of a component over time; `frame` has time, allocated_bytes and reserved_bytes (nulls).

    At most `POINTS` rows, each the fullest of its part of the time. Peaks and their moments are those of all rows; None where the
    column is empty. `gap_bytes` is reserved minus allocated at the peak of what is allocated.
    """

    component: str
    clock: str
    frame: pd.DataFrame
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None
    peak_moment: int | None
    gap_bytes: int | None


def components(run: Run, rank: int) -> tuple[str, ...]:
    """Components with a curve, that with the largest allocation first, those with reserved memory only last."""
    return _ordered(run.frame("memory_curve", ranks=[rank], columns=["component", "allocated_bytes", "reserved_bytes"]))


def curve_of(rows: pd.DataFrame, component: str = "") -> Curve:
    """The curve of a component in rows of `memory_curve` of one rank, the one with the largest allocation unless named."""
    names = _ordered(rows)
    name = component if component in names else names[0]
    rows = rows[rows["component"].astype("object") == name].sort_values("time_ns", kind="stable")
    return _curve(name, "ns", rows.rename(columns={"time_ns": "time"})[["time", "allocated_bytes", "reserved_bytes"]])


def _ordered(rows: pd.DataFrame) -> tuple[str, ...]:
    found = {}
    for name, part in rows.groupby(rows["component"].astype("object"), sort=True):
        allocated, reserved = part["allocated_bytes"].max(), part["reserved_bytes"].max()
        found[str(name)] = (pd.isna(allocated), str(name).startswith(MODULE), -_or_zero(allocated), -_or_zero(reserved))
    return tuple(sorted(found, key=lambda name: found[name]))


def curve(run: Run, rank: int, component: str = "") -> Curve:
    """The curve of a component, the one with the largest allocation unless named; without curves that of the blocks.

    Raises NotMeasuredError if the rank has neither.
    """
    recorded = run.frame("memory_curve", ranks=[rank])
    if len(recorded):
        return curve_of(recorded, component)
    blocks = run.frame("memory_blocks", ranks=[rank])
    if blocks.empty:
        raise NotMeasuredError(f"memory of rank {rank} over time", how_to_collect=HOW)
    return _curve("blocks", str(blocks["clock"].iloc[0]), _of_blocks(blocks))


def long_lived(blocks: pd.DataFrame, start: int, end: int, share: float = 1.0) -> pd.DataFrame:
    """Blocks other than weights that are alive during `share` of the span from `start` to `end`, the largest first.

    Columns of `memory_blocks` and `alive_ratio`, the share of the span. Those that were there before the recording (no start) and
    are never released are left out: parameters and optimizer state look so where the recording states no kind.
    """
    kept = ~((blocks["kind"] == WEIGHT).fillna(False).astype(bool) | (blocks["start"].isna() & blocks["end"].isna()))
    rows = blocks[kept]
    first = rows["start"].fillna(start).clip(lower=start, upper=end)
    last = rows["end"].fillna(end).clip(lower=start, upper=end)
    alive = (last - first).astype("float64") / max(1, end - start)
    rows = rows.assign(alive_ratio=alive)
    return rows[alive >= share].sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def won_by_virtual_memory(blocks: pd.DataFrame) -> int | None:
    """Bytes of gaps between blocks that enable_vmm:True could join, over all pools; None if the allocator states no peaks."""
    gaps = [pool.fragmentation_bytes for pool in pools(blocks) if pool.fragmentation_bytes is not None]
    return sum(max(0, gap) for gap in gaps) if gaps else None


def _curve(name: str, clock: str, frame: pd.DataFrame) -> Curve:
    allocated, reserved = frame["allocated_bytes"], frame["reserved_bytes"]
    decides = allocated if allocated.notna().any() else reserved
    if not decides.notna().any():
        raise NotMeasuredError(f"memory of {name}", how_to_collect=HOW)
    at = int(decides.reset_index(drop=True).fillna(-1).to_numpy(dtype=np.int64).argmax())
    row = frame.iloc[at]
    gap = (
        None
        if pd.isna(row["allocated_bytes"]) or pd.isna(row["reserved_bytes"])
        else row["reserved_bytes"] - row["allocated_bytes"]
    )
    return Curve(
        component=name,
        clock=clock,
        frame=_thinned(frame, decides),
        allocated_peak_bytes=None if pd.isna(allocated.max()) else int(allocated.max()),
        reserved_peak_bytes=None if pd.isna(reserved.max()) else int(reserved.max()),
        peak_moment=int(row["time"]),
        gap_bytes=None if gap is None else int(gap),
    )


def _thinned(frame: pd.DataFrame, decides: pd.Series) -> pd.DataFrame:
    """The fullest row of each part of the time, and the first and last of all."""
    if len(frame) <= POINTS:
        return frame.reset_index(drop=True)
    times = frame["time"].to_numpy(dtype=np.int64)
    part = (times - times[0]) * (POINTS - 2) // max(1, int(times[-1] - times[0]))
    sizes = decides.fillna(-1).to_numpy(dtype=np.int64)
    order = np.lexsort((-sizes, part))
    fullest = order[np.concatenate([[True], np.diff(part[order]) > 0])]
    return frame.iloc[np.unique(np.concatenate([[0], fullest, [len(frame) - 1]]))].reset_index(drop=True)


def _of_blocks(blocks: pd.DataFrame) -> pd.DataFrame:
    """What the blocks add up to after every moment at which one comes or goes."""
    live_peak(blocks)  # refuses blocks of several clocks or without any moment
    rows = blocks[~(blocks["start"].isna() & blocks["end"].isna())]
    first = int(min(rows["start"].min(), rows["end"].min()) if rows["end"].notna().any() else rows["start"].min())
    ends = rows[rows["end"].notna()]
    moments = np.concatenate([rows["start"].fillna(first).to_numpy(dtype=np.int64), ends["end"].to_numpy(dtype=np.int64)])
    changes = np.concatenate([rows["bytes"].to_numpy(dtype=np.int64), -ends["bytes"].to_numpy(dtype=np.int64)])
    sums = pd.Series(changes).groupby(moments).sum().sort_index()
    frame = pd.DataFrame({"time": sums.index.to_numpy(dtype=np.int64), "allocated_bytes": sums.cumsum().to_numpy()})
    return frame.astype({"allocated_bytes": "Int64"}).assign(reserved_bytes=pd.array([pd.NA] * len(frame), dtype="Int64"))


def _or_zero(value: object) -> int:
    return 0 if pd.isna(value) else int(value)  # type: ignore[call-overload]
