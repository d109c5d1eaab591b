"""Host stretches: what the host did between two launches of a step, and what it had to wait for before.

A stretch ends with a launch, with a hand-over to another thread, or with the step. It begins where the one before it on its thread
ended; or, if that is later, where another thread handed over to it or where a call returned that had waited for the device. Only
threads that launched something in the step count: watchdogs and loaders run beside the step.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.events.graph import UNKNOWN_NS, RankEvents

Ints = npt.NDArray[np.int64]
NODE = ("rank", "name", "kind", "stream", "start_ns", "duration_ns")
_NONE = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max


def host_stretches(events: RankEvents, step: int, window: tuple[int, int]) -> tuple[pd.DataFrame, tuple[Ints, Ints]]:
    """The stretches as nodes, and edges between positions in `events.device` followed by them.

    `events` are those of the step; `window` is the step on the device.
    """
    launched = events.launch_ns[events.launch_ns != UNKNOWN_NS]
    if not len(launched):
        return pd.DataFrame({name: pd.Series(dtype="int64" if name.endswith("_ns") else "object") for name in NODE}), _edges([])
    begin_ns = min(window[0], int(launched.min()))
    given = events.handovers
    given = given[(given["given_ns"] > begin_ns) & (given["taken_ns"] <= window[1])]
    moments = _moments(events.launches, given, _end_of_host(events, step, window))
    return _placed(events, given, moments, begin_ns)


def _end_of_host(events: RankEvents, step: int, window: tuple[int, int]) -> tuple[str, int] | None:
    """The thread that ended the step, and when; None if the device did."""
    if int(events.ends.max()) >= window[1]:
        return None
    marks = events.host.rows["thread"][events.host.named(re.compile(f"^ProfilerStep#{step}$"))].astype(str)
    known = marks[marks.isin(events.threads)]
    if len(known):
        return known.iloc[0], window[1]
    launched = np.where(events.launch_ns == UNKNOWN_NS, _NEVER, events.launch_ns)
    return str(events.launches["thread"].iloc[int(launched.argmin())]), window[1]


def _moments(launches: pd.DataFrame, given: pd.DataFrame, end: tuple[str, int] | None) -> pd.DataFrame:
    """The ends of all stretches: `thread`, `moment_ns`, `name`; in order of thread and time, a launch where several coincide."""
    called = launches.dropna(subset=["launch_ns", "thread"])
    frames = [
        pd.DataFrame(
            {"thread": called["thread"], "moment_ns": called["launch_ns"], "name": called["operator"].fillna(called["call"])}
        ),
        pd.DataFrame({"thread": given["giver"], "moment_ns": given["given_ns"], "name": "hand over to another thread"}),
    ]
    if end is not None:
        frames.append(pd.DataFrame({"thread": [end[0]], "moment_ns": [end[1]], "name": ["end of the step"]}))
    every = pd.concat([frame.astype({"moment_ns": "int64"}) for frame in frames if len(frame)], ignore_index=True)
    ordered = every.sort_values(["thread", "moment_ns"], kind="stable").drop_duplicates(["thread", "moment_ns"])
    return ordered.reset_index(drop=True)


def _placed(
    events: RankEvents, given: pd.DataFrame, moments: pd.DataFrame, begin_ns: int
) -> tuple[pd.DataFrame, tuple[Ints, Ints]]:
    """Begin each stretch where the last thing ended that it followed."""
    waits, launches = events.device_waits, events.launches
    first = len(launches)
    ends = moments["moment_ns"].to_numpy(dtype=np.int64)
    threads = moments["thread"].to_numpy(dtype=object)
    same = np.append(False, threads[1:] == threads[:-1])
    main = threads == threads[np.argmin(np.where(ends >= begin_ns, ends, _NEVER))]
    before = np.where(same, np.append(_NONE, ends[:-1]), np.where(main, begin_ns, _NONE))
    taken, taken_row = _last(threads, before, ends, given["taker"], given["given_ns"])
    waited, waited_row = _last(threads, before, ends, waits["thread"], waits["end_ns"])
    begins = np.maximum(np.maximum(before, taken), waited)
    begins = np.where(begins == _NONE, ends, np.minimum(begins, ends))
    nodes = pd.DataFrame(
        {"rank": events.rank, "name": moments["name"].astype("object"), "kind": "host", "stream": threads, "start_ns": begins}
    ).assign(duration_ns=ends - begins)
    place = {key: first + at for at, key in enumerate(zip(threads.tolist(), ends.tolist(), strict=True))}
    own, took, stood = np.flatnonzero(same), np.flatnonzero(taken > _NONE), np.flatnonzero(waited > _NONE)
    givers = given[["giver", "given_ns"]].iloc[taken_row[took]].itertuples(index=False, name=None)
    linked = np.flatnonzero(events.launch_ns != UNKNOWN_NS)
    calls = launches[["thread", "launch_ns"]].iloc[linked].astype("object").itertuples(index=False, name=None)
    edges: list[tuple[npt.ArrayLike, npt.ArrayLike]] = [
        (own - 1 + first, own + first),
        ([place[giver, int(moment)] for giver, moment in givers], took + first),
        (waits["kernel"].to_numpy(dtype=np.int64)[waited_row[stood]], stood + first),
        ([place[thread, int(moment)] for thread, moment in calls], linked),
    ]
    return nodes, _edges(edges)


def _last(threads: npt.NDArray[np.object_], after: Ints, until: Ints, of: pd.Series, times: pd.Series) -> tuple[Ints, Ints]:
    """The last of the times on each stretch's own thread after one moment and until another, and its row; none is `_NONE`."""
    found, rows = np.full(len(until), _NONE, dtype=np.int64), np.full(len(until), -1, dtype=np.int64)
    values, owners = times.to_numpy(dtype=np.int64), of.to_numpy(dtype=object)
    for thread in dict.fromkeys(owners.tolist()):
        mine = np.flatnonzero(owners == thread)
        mine = mine[np.argsort(values[mine], kind="stable")]
        wanted = np.flatnonzero(threads == thread)
        at = np.searchsorted(values[mine], until[wanted], side="right") - 1
        last = mine[at.clip(min=0)]
        inside = (at >= 0) & (values[last] > after[wanted])
        found[wanted[inside]], rows[wanted[inside]] = values[last[inside]], last[inside]
    return found, rows


def _edges(pairs: list[tuple[npt.ArrayLike, npt.ArrayLike]]) -> tuple[Ints, Ints]:
    none = np.zeros(0, dtype=np.int64)
    sources, targets = (np.concatenate([none, *(np.asarray(pair[side], dtype=np.int64) for pair in pairs)]) for side in (0, 1))
    return sources, targets
