"""Threads: how work passes from one thread of the host to another, and where a thread waited for the device.

A thread hands over to another when it falls silent and the other one, silent until then, goes on: the main thread to the autograd
thread when the backward pass begins, and back when it ends. Nobody records that, but it shows: within the silence of the receiver
lies the last stretch of work of the giver as a whole, and it ended before the receiver went on. A silence without such a stretch is
the thread's own time, for example Python between two operators.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.events.host_steps import STEP_MARK, host_steps
from perfkit.record.overlap import Intervals, union
from perfkit.record.readers.host import parents_of

Ints = npt.NDArray[np.int64]
SYNCHRONIZING = re.compile(r"synchronize|memcpy(?!async)", re.IGNORECASE)
"""Names of calls that return when the device has finished something."""
_WORKS = ("operator", "call")
_LONG_AGO = np.iinfo(np.int64).min


class HostEvents:
    """What the host of a rank did: `rows` of the table `host`, and what follows from their order on their threads."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self.starts = rows["start_ns"].to_numpy(dtype=np.int64)
        self.ends = self.starts + rows["duration_ns"].to_numpy(dtype=np.int64)
        threads = pd.Categorical(rows["thread"])
        self.lanes = threads.codes.astype(np.int64)
        self.threads = tuple(str(thread) for thread in threads.categories.tolist())
        self._working: dict[str, Intervals] = {}

    def named(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Which rows have a name in which the pattern occurs."""
        names = pd.Categorical(self.rows["name"])
        found = np.array([pattern.search(str(name)) is not None for name in names.categories.tolist()] + [False], dtype=bool)
        chosen: npt.NDArray[np.bool_] = found[names.codes]
        return chosen

    def of_kind(self, *kinds: str) -> npt.NDArray[np.bool_]:
        """Which rows are of one of these kinds."""
        chosen: npt.NDArray[np.bool_] = self.rows["kind"].isin(kinds).to_numpy(dtype=bool)
        return chosen

    @cached_property
    def steps(self) -> pd.Series:
        """By row the step in which it began; null before and after all (`host_steps`)."""
        return host_steps(self.rows)

    @cached_property
    def parents(self) -> Ints:
        """By row the position of the innermost other one around it on its thread; -1 for none."""
        return parents_of(self.starts, self.ends, self.lanes)

    @cached_property
    def working(self) -> npt.NDArray[np.bool_]:
        """Which rows are work of their thread: operators and calls. Marks span the work of others too, and so do not count."""
        works: npt.NDArray[np.bool_] = self.of_kind(*_WORKS) & ~self.named(STEP_MARK)
        return works

    def working_times(self, threads: Collection[str]) -> dict[str, Intervals]:
        """When each of these threads worked; those that never did are left out."""
        for lane, thread in enumerate(self.threads):
            if thread in threads and thread not in self._working:
                mine = self.working & (self.lanes == lane)
                self._working[thread] = union(self.starts[mine], self.ends[mine])
        worked = [thread for thread in sorted(threads) if thread in self._working and len(self._working[thread].starts)]
        return {thread: self._working[thread] for thread in worked}


def handovers(working: Mapping[str, Intervals]) -> pd.DataFrame:
    """Who went on after whom: `giver`, `given_ns` (end of its stretch), `taker`, `taken_ns` (begin of the next one there)."""
    found = [_received(taker, working) for taker in working]
    columns = {"giver": "object", "given_ns": "int64", "taker": "object", "taken_ns": "int64"}
    frames = [frame for frame in found if len(frame)]
    return (
        pd.concat(frames, ignore_index=True)
        if frames
        else pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})
    )


def _received(taker: str, working: Mapping[str, Intervals]) -> pd.DataFrame:
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


def device_waits(host: HostEvents, launches: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """Calls that returned only when the device had finished something, in order of their return.

    `thread`, `end_ns` of the call, `call` (its row of `host`; -1: the call of the launch of `kernel`) and `kernel` that it waited
    for, a position in `device`; `launches` has a row each of those, in order. A synchronising call waited if an execution ended
    while it ran, and for the last of those; a copy whose call returned after its end was waited for by that call.
    """
    starts = device["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + device["duration_ns"].to_numpy(dtype=np.int64)
    calls = np.flatnonzero(host.of_kind("call") & host.named(SYNCHRONIZING) & (host.lanes >= 0))
    begun, returned = host.starts[calls], host.ends[calls]
    order = np.argsort(ends, kind="stable")
    at = np.searchsorted(ends[order], returned, side="right") - 1
    waited = (at >= 0) & (ends[order[at.clip(min=0)]] > begun) if len(order) else np.zeros(len(calls), dtype=bool)
    copies = (device["kind"] == "copy").to_numpy(dtype=bool) & launches["launch_ns"].notna().to_numpy(dtype=bool)
    call_ends = (launches["launch_ns"] + launches["launch_duration_ns"].fillna(0)).fillna(0).to_numpy(dtype=np.int64)
    copies &= call_ends >= ends
    names = np.array([*host.threads, None], dtype=object)
    return pd.DataFrame(
        {
            "thread": np.concatenate([names[host.lanes[calls[waited]]], launches["thread"].to_numpy(dtype=object)[copies]]),
            "end_ns": np.concatenate([returned[waited], call_ends[copies]]),
            "call": np.concatenate([calls[waited], np.full(int(copies.sum()), -1)]),
            "kernel": np.concatenate([order[at[waited]] if len(order) else [], np.flatnonzero(copies)]).astype(np.int64),
        }
    ).sort_values("end_ns", kind="stable", ignore_index=True)
