"""Host stretches: what the host did between two launches of a step, and what it had to wait for before.

A stretch ends with a launch, with a hand-over to another thread, or with the step. It begins where the one before it on its thread
ended; or, if that is later, where another thread handed over to it or where a call returned that had waited for the device. Only
threads that launched something in the step count: watchdogs and loaders run beside the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.record.events.threads import device_waits, handovers, working_times

Ints = npt.NDArray[np.int64]
NODE = ("rank", "name", "kind", "stream", "start_ns", "duration_ns")
_NONE = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max
_HOST = ["name", "kind", "thread", "start_ns", "duration_ns"]
_LAUNCH = ["stream", "start_ns", "kind", "call", "operator", "thread", "launch_ns", "launch_duration_ns"]


@dataclass(frozen=True, slots=True)
class _Work:
    """What the host of a rank did in a step: launches (one row a kernel), hand-overs, waits for the device, and when it began."""

    rank: int
    launches: pd.DataFrame
    given: pd.DataFrame
    waits: pd.DataFrame
    begin_ns: int


def host_stretches(
    run: Run, rank: int, step: int, kernels: pd.DataFrame, window: tuple[int, int]
) -> tuple[pd.DataFrame, tuple[Ints, Ints]]:
    """The stretches as nodes, and edges between positions in `kernels` followed by them.

    `kernels` are those of the step in order, with text in `stream`; `window` is the step on the device.
    """
    launches = _launches(run, rank, step, kernels)
    if launches["launch_ns"].isna().all():
        return pd.DataFrame({name: pd.Series(dtype="int64" if name.endswith("_ns") else "object") for name in NODE}), _edges([])
    host = run.frame("host", ranks=[rank], columns=_HOST)
    threads = [str(thread) for thread in launches["thread"].dropna().unique()]
    given = handovers(working_times(host, threads))
    begin_ns = min(window[0], int(launches["launch_ns"].min()))
    given = given[(given["given_ns"] > begin_ns) & (given["taken_ns"] <= window[1])]
    moments = _moments(launches, given, _end_of_host(host, step, kernels, launches, window))
    work = _Work(rank, launches, given, device_waits(host, launches, kernels), begin_ns)
    return _placed(work, moments)


def _launches(run: Run, rank: int, step: int, kernels: pd.DataFrame) -> pd.DataFrame:
    """One row a kernel, with the call that launched it; null where none is known."""
    columns = {"launch_ns": "Int64", "launch_duration_ns": "Int64"}
    if "launches" not in run.tables:
        return pd.DataFrame(index=kernels.index, columns=_LAUNCH, dtype="object").astype(columns)
    rows = run.frame("launches", ranks=[rank], steps=[step], columns=_LAUNCH).dropna(subset=["start_ns"])
    rows = rows.assign(stream=rows["stream"].astype("object").fillna(""), start_ns=rows["start_ns"].astype("int64"))
    rows = rows.astype({"operator": "object", "call": "object", "thread": "object"}).drop_duplicates(["stream", "start_ns"])
    return kernels[["stream", "start_ns"]].merge(rows, on=["stream", "start_ns"], how="left").astype(columns)


def _end_of_host(
    host: pd.DataFrame, step: int, kernels: pd.DataFrame, launches: pd.DataFrame, window: tuple[int, int]
) -> tuple[str, int] | None:
    """The thread that ended the step, and when; None if the device did."""
    if int((kernels["start_ns"] + kernels["duration_ns"]).max()) >= window[1]:
        return None
    marks = host[host["name"].astype(str).eq(f"ProfilerStep#{step}").to_numpy(dtype=bool)]["thread"].astype(str)
    known = marks[marks.isin(launches["thread"])]
    if len(known):
        return known.iloc[0], window[1]
    return str(launches["thread"].iloc[int(launches["launch_ns"].fillna(_NEVER).to_numpy(dtype=np.int64).argmin())]), window[1]


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


def _placed(work: _Work, moments: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Ints, Ints]]:
    """Begin each stretch where the last thing ended that it followed."""
    given, waits, launches, begin_ns = work.given, work.waits, work.launches, work.begin_ns
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
        {"rank": work.rank, "name": moments["name"].astype("object"), "kind": "host", "stream": threads, "start_ns": begins}
    ).assign(duration_ns=ends - begins)
    place = {key: first + at for at, key in enumerate(zip(threads.tolist(), ends.tolist(), strict=True))}
    own, took, stood = np.flatnonzero(same), np.flatnonzero(taken > _NONE), np.flatnonzero(waited > _NONE)
    givers = given[["giver", "given_ns"]].iloc[taken_row[took]].itertuples(index=False, name=None)
    linked = np.flatnonzero(launches["launch_ns"].notna().to_numpy(dtype=bool))
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
