"""Copies: what moved between the memories of host and device, how fast, and when.

A copy's kind is told by its name, as profilers of CUDA and HIP write it (`Memcpy HtoD (Pinned -> Device)`). Its rate is its bytes
over its duration; where copies of one kind run at the same time their rates add up, as in Holistic Trace Analysis
(get_memory_bw_time_series in hta/analyzers/trace_counters.py). Over all time the rates sum to the bytes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_S
from perfkit.record.events.graph import RankEvents, causal_graph
from perfkit.record.overlap import distinct

HOW_TO_COLLECT = "record activities CPU and CUDA with torch.profiler, or `nsys profile --trace=cuda`"
COLUMNS = ("rank", "kind", "name", "count", "bytes", "total_ns", "bytes_per_s", "least_bytes_per_s", "most_bytes_per_s")
OVER_TIME = ("rank", "kind", "time_ns", "duration_ns", "bytes_per_s")


def copies(run: Run, ranks: list[int], *, steps: list[int] | None = None) -> pd.DataFrame:
    """Sums over the copies of each rank and name with the columns of `Run.copies`, the longest first."""
    rows = _recorded(run, ranks, steps)
    rows = rows.assign(rate=_rates(rows))
    groups = rows.groupby(["rank", "kind", "name"], sort=False)
    table = pd.DataFrame(
        {
            "count": groups.size(),
            "bytes": groups["bytes"].sum(min_count=1),
            "total_ns": groups["duration_ns"].sum(),
            "least_bytes_per_s": groups["rate"].min(),
            "most_bytes_per_s": groups["rate"].max(),
        }
    ).reset_index()
    timed = rows.assign(duration_ns=rows["duration_ns"].where(rows["bytes"].notna(), 0)).groupby(
        ["rank", "kind", "name"], sort=False
    )
    known_ns = timed["duration_ns"].sum().reset_index(drop=True)
    table["bytes_per_s"] = table["bytes"].astype("float64") / known_ns.where(known_ns > 0) * NS_PER_S
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True).loc[:, list(COLUMNS)]


def copy_bandwidth(run: Run, ranks: list[int], *, steps: list[int] | None = None) -> pd.DataFrame:
    """The rate of each kind of copy from one change to the next, with the columns of `Run.copy_bandwidth`, in order of time.

    Copies without a size or a duration have no rate and are left out; `copies` counts them.
    """
    rows = _recorded(run, ranks, steps).dropna(subset=["start_ns", "bytes"])
    rows = rows[(rows["duration_ns"] > 0).to_numpy(dtype=bool)]
    found = [_over_time(int(str(rank)), str(kind), own) for (rank, kind), own in rows.groupby(["rank", "kind"])]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame({name: [] for name in OVER_TIME})


def kind_of(name: str) -> str:
    """HtoD, DtoH, DtoD, PtoP, HtoH or Memset; "copy" where the name tells nothing."""
    if name.lower().startswith("memset"):
        return "Memset"
    words = name.replace("-", "").lower()
    for kind, told in (
        ("HtoD", ("htod", "hosttodevice")), ("DtoH", ("dtoh", "devicetohost")), ("DtoD", ("dtod", "devicetodevice")),
        ("PtoP", ("ptop", "peertopeer")), ("HtoH", ("htoh", "hosttohost")),
    ):  # fmt: skip
        if any(word in words.replace(" ", "") for word in told):
            return kind
    return "copy"


def _recorded(run: Run, ranks: list[int], steps: list[int] | None) -> pd.DataFrame:
    found = [_of_rank(causal_graph(run).rank(rank)) for rank in ranks]
    rows = pd.concat([each for each in found if len(each)] or found[:1] or [pd.DataFrame()], ignore_index=True)
    rows = rows if steps is None or rows.empty else rows[rows["step"].isin(steps).to_numpy(dtype=bool)]
    if rows.empty:
        raise NotMeasuredError(f"copies between memories in {run.name}", how_to_collect=HOW_TO_COLLECT)
    kinds = {name: kind_of(str(name)) for name in rows["name"].unique()}
    return rows.assign(kind=rows["name"].map(kinds))


def _of_rank(events: RankEvents) -> pd.DataFrame:
    """The executions of a rank that are copies."""
    copies = np.flatnonzero((events.device["kind"] == "copy").to_numpy(dtype=bool))
    rows = events.device.iloc[copies].astype({"name": "object"}).drop(columns=["kind", "stream"]).reset_index(drop=True)
    return rows.assign(bytes=events.launches["bytes"].iloc[copies].array) if len(copies) else rows


def _rates(rows: pd.DataFrame) -> pd.Series:
    took_ns = rows["duration_ns"].astype("float64")
    return rows["bytes"].astype("float64") / took_ns.where(took_ns > 0) * NS_PER_S


def _over_time(rank: int, kind: str, rows: pd.DataFrame) -> pd.DataFrame:
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    moments = distinct(np.concatenate([starts, starts + rows["duration_ns"].to_numpy(dtype=np.int64)]))
    first = np.searchsorted(moments, starts)
    last = np.searchsorted(moments, starts + rows["duration_ns"].to_numpy(dtype=np.int64))
    rates, running = _rates(rows).to_numpy(dtype=np.float64), np.zeros(len(moments), dtype=np.float64)
    for begin, end, rate in zip(first.tolist(), last.tolist(), rates.tolist(), strict=True):
        running[begin:end] += rate  # a running sum of changes would leave tiny rates where nothing is copied
    spans = np.append(np.diff(moments), 0)
    changed = np.append(True, running[1:] != running[:-1])
    lengths = np.add.reduceat(spans, np.flatnonzero(changed))
    columns = {"rank": rank, "kind": kind, "time_ns": moments[changed], "duration_ns": lengths, "bytes_per_s": running[changed]}
    return pd.DataFrame(columns)
