"""Threads: how work passes from one thread of the host to another, and where a thread waited for the device.

A thread hands over to another when it falls silent and the other one, silent until then, goes on: the main thread to the autograd
thread when the backward pass begins, and back when it ends. Nobody records that, but it shows: within the silence of the receiver
lies the last stretch of work of the giver as a whole, and it ended before the receiver went on. A silence without such a stretch is
the thread's own time, for example Python between two operators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.overlap import Intervals, union

Ints = npt.NDArray[np.int64]
SYNCHRONIZING = re.compile(r"synchronize|memcpy(?!async)", re.IGNORECASE)
"""Names of calls that return when the device has finished something."""
_STEP = re.compile(r"ProfilerStep#\d+$")
_WORKS = ("operator", "call")
_LONG_AGO = np.iinfo(np.int64).min


def working_times(host: pd.DataFrame, threads: Sequence[str]) -> dict[str, Intervals]:
    """When each thread ran an operator or a call; marks span the work of others too, and so do not count."""
    rows = host[host["kind"].isin(_WORKS).to_numpy(dtype=bool) & host["thread"].isin(threads).to_numpy(dtype=bool)]
    marks = {name for name in rows["name"].unique() if _STEP.match(str(name))}
    rows = rows[~rows["name"].isin(marks).to_numpy(dtype=bool)]
    found = {}
    for thread, own in rows.groupby(rows["thread"].astype("object")):
        starts = own["start_ns"].to_numpy(dtype=np.int64)
        found[str(thread)] = union(starts, starts + own["duration_ns"].to_numpy(dtype=np.int64))
    return found


def handovers(working: dict[str, Intervals]) -> pd.DataFrame:
    """Who went on after whom: `giver`, `given_ns` (end of its stretch), `taker`, `taken_ns` (begin of the next one there)."""
    found = [_received(taker, working) for taker in working]
    columns = {"giver": "object", "given_ns": "int64", "taker": "object", "taken_ns": "int64"}
    frames = [frame for frame in found if len(frame)]
    return (
        pd.concat(frames, ignore_index=True)
        if frames
        else pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})
    )


def _received(taker: str, working: dict[str, Intervals]) -> pd.DataFrame:
    own = working[taker]
    silent_since = np.concatenate([[_LONG_AGO], own.ends[:-1]])
    given = np.full(len(own.starts), _LONG_AGO, dtype=np.int64)
    givers = np.full(len(own.starts), None, dtype=object)
    for giver, times in working.items():
        if giver == taker or not len(times.ends):
            continue
        at = np.searchsorted(times.ends, own.starts, side="right") - 1
        whole = (at >= 0) & (times.starts[at] >= silent_since)
        later = whole & (times.ends[at] > given)
        given[later], givers[later] = times.ends[at[later]], giver
    known = given > _LONG_AGO
    return pd.DataFrame({"giver": givers[known], "given_ns": given[known], "taker": taker, "taken_ns": own.starts[known]})


def device_waits(host: pd.DataFrame, launches: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Calls that returned only when the device had finished something: `thread`, `end_ns` of the call, `kernel` that it waited for.

    A synchronising call waited if an execution ended while it ran, and for the last of those; a copy whose call returned after
    its end was waited for by that call. `kernel` is a position in `kernels`; `launches` has a row each of them, in order.
    """
    starts = kernels["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + kernels["duration_ns"].to_numpy(dtype=np.int64)
    names = {name for name in host["name"].unique() if SYNCHRONIZING.search(str(name))}
    calls = host[(host["kind"] == "call").to_numpy(dtype=bool) & host["name"].isin(names).to_numpy(dtype=bool)]
    begun = calls["start_ns"].to_numpy(dtype=np.int64)
    returned = begun + calls["duration_ns"].to_numpy(dtype=np.int64)
    order = np.argsort(ends, kind="stable")
    at = np.searchsorted(ends[order], returned, side="right") - 1
    waited = (at >= 0) & (ends[order[at.clip(min=0)]] > begun) if len(order) else np.zeros(len(calls), dtype=bool)
    copies = (launches["kind"] == "copy").to_numpy(dtype=bool) & launches["launch_ns"].notna().to_numpy(dtype=bool)
    call_ends = (launches["launch_ns"] + launches["launch_duration_ns"].fillna(0)).fillna(0).to_numpy(dtype=np.int64)
    copies &= call_ends >= ends
    return pd.DataFrame(
        {
            "thread": np.concatenate(
                [calls["thread"].astype("object").to_numpy()[waited], launches["thread"].astype("object").to_numpy()[copies]]
            ),
            "end_ns": np.concatenate([returned[waited], call_ends[copies]]),
            "kernel": np.concatenate([order[at[waited]] if len(order) else [], np.flatnonzero(copies)]).astype(np.int64),
        }
    ).sort_values("end_ns", kind="stable", ignore_index=True)
