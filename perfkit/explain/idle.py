"""Idle: the gaps of a rank's device timeline, each with its cause, summing to `free` of the step.

A gap is a time in the step in which the device neither computed nor communicated. Its cause follows from what the host did:

- copying: the device only copied memory.
- data: the host was fetching input (a data loader, an iterator, `getnext`) while the device had nothing to do.
- host: the next kernel was launched only after the device had become idle; a call in progress, if any, is named in `detail`.
- collective: the next kernel was launched in time, but is communication or follows it: it waited for peers or a stream of theirs.
- device: the next kernel was launched in time; the device took the time between two kernels.
- unknown: nothing says it, usually because launches were not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.source import Source
from perfkit.record.events.graph import UNKNOWN_NS, RankEvents, causal_graph
from perfkit.record.events.threads import HostEvents
from perfkit.record.overlap import Intervals, Timeline, distinct, merge

Ints = npt.NDArray[np.int64]

CAUSES = ("copying", "data", "host", "collective", "device", "unknown")
DATA_NAMES = re.compile(
    r"data_?loader|dataloader|getnext|get_next|dequeue_?data|initdataset|_next_data|enumerate\(DataLoader\)|data_?iterator|"
    r"fetch_?(?:data|batch)|deviceque|minddata|collate",
    re.IGNORECASE,
)
"""Names of host events and device operators that fetch input."""
BLOCKING_NAMES = re.compile(r"synchronize|StreamWait|EventQuery|\.item|_local_scalar_dense|memcpy(?!async)", re.IGNORECASE)
HOW_TO_COLLECT = "record kernels with their start times; page 10 writes the configuration"


def idle_gaps(run: Run, *, rank: int, step: int) -> pd.DataFrame:
    """The gaps of one step of one rank in order: `rank`, `step`, `start_ns`, `duration_ns`, `cause`, `detail`, `next_kernel`.

    Raises NotMeasuredError if the run has no kernels with times for that step.
    """
    return idle_gaps_of(run, rank=rank, steps=[step])


def idle_gaps_of(run: Run, *, rank: int, steps: Sequence[int]) -> pd.DataFrame:
    """The gaps of some steps of one rank, step by step, as of one; what they share of the rank is made once."""
    events = timed_events(run, rank)
    timeline = Timeline(events.device)
    working, copies = merge(timeline.of("computing"), timeline.of("communication")), timeline.of("copy")
    recorded = _recorded(run, rank, steps)
    pieces: list[pd.DataFrame] = []
    for step in steps:
        start_ns, end_ns = _window(recorded, rank, step, events.device)
        gaps = _gaps(working.clip(start_ns, end_ns), start_ns, end_ns)
        pieces.append(_cut(gaps, copies.clip(start_ns, end_ns)).assign(step=step))
    rows = _with_next(pd.concat(pieces, ignore_index=True), events)
    return rows.assign(rank=rank)[["rank", "step", "start_ns", "duration_ns", "cause", "detail", "next_kernel"]]


def idle_breakdown(run: Run, *, rank: int, step: int) -> Breakdown:
    """Idle time of one step of one rank by cause, in ns; the leaves sum to `free` of the step.

    Where the vendor's summary tells less or more than the kernels (its times are rounded), the difference is in `unknown`, or taken
    from the largest cause.
    """
    gaps = idle_gaps(run, rank=rank, step=step)
    sums = gaps.groupby("cause")["duration_ns"].sum()
    parts = {cause: int(sums[cause]) for cause in CAUSES if cause in sums.index}
    free = run.frame("steps", ranks=[rank], steps=[step])["free_ns"].dropna()
    if len(free):
        parts = _summing_to(parts, int(free.iloc[0]))
    return Breakdown("ns", parts, Source("measured", run.name, f"idle gaps of rank {rank}, step {step}"))


def _summing_to(parts: dict[str, int], total: int) -> dict[str, int]:
    short = total - sum(parts.values())
    parts = dict(parts)
    if short > 0:
        parts["unknown"] = parts.get("unknown", 0) + short
    for cause in sorted(parts, key=lambda name: (name != "unknown", -parts[name])):
        taken = min(parts[cause], max(0, sum(parts.values()) - total))
        parts[cause] -= taken
    return {cause: amount for cause, amount in parts.items() if amount}


def step_window(run: Run, rank: int, step: int, kernels: pd.DataFrame) -> tuple[int, int]:
    """Start and end of a step on the device; from its first to its last kernel where the run only tells how long it took.

    `kernels` are those of the rank with times, of all steps.
    """
    return _window(_recorded(run, rank, [step]), rank, step, kernels)


def _recorded(run: Run, rank: int, steps: Sequence[int]) -> pd.DataFrame:
    rows = run.frame("steps", ranks=[rank], steps=steps, columns=["step", "start_ns", "duration_ns"])
    return rows.drop_duplicates("step").set_index("step")


def _window(recorded: pd.DataFrame, rank: int, step: int, kernels: pd.DataFrame) -> tuple[int, int]:
    """As `step_window`; `recorded` has the steps by their number."""
    if step in recorded.index and pd.notna(recorded["start_ns"].loc[step]):
        start_ns = int(recorded["start_ns"].loc[step])
        return start_ns, start_ns + int(recorded["duration_ns"].loc[step])
    own = kernels[(kernels["step"] == step).fillna(False).to_numpy(dtype=bool)]
    if own.empty:
        raise NotMeasuredError(f"where step {step} of rank {rank} lies on the device timeline", how_to_collect=HOW_TO_COLLECT)
    return int(own["start_ns"].min()), int((own["start_ns"] + own["duration_ns"]).max())


def timed_events(run: Run, rank: int) -> RankEvents:
    """The events of a rank, in the graph of the run; NotMeasuredError if no execution has a start."""
    events = causal_graph(run).rank(rank)
    if events.device.empty:
        raise NotMeasuredError(f"the device timeline of rank {rank}", how_to_collect=HOW_TO_COLLECT)
    return events


def _gaps(busy: Intervals, start_ns: int, end_ns: int) -> Intervals:
    starts = np.concatenate([[start_ns], busy.ends])
    ends = np.concatenate([busy.starts, [end_ns]])
    keep = starts < ends
    return Intervals(starts[keep], ends[keep])


def _cut(gaps: Intervals, copies: Intervals) -> pd.DataFrame:
    """The gaps cut where copies begin and end; `copying` says which pieces are copies."""
    edges = distinct(np.concatenate([gaps.starts, gaps.ends, copies.starts, copies.ends]))
    starts, ends = edges[:-1], edges[1:]
    inside = _covers(gaps, starts)
    frame = pd.DataFrame({"start_ns": starts, "duration_ns": ends - starts, "copying": _covers(copies, starts)})
    return frame[inside].reset_index(drop=True)


def _covers(intervals: Intervals, moments: Ints) -> npt.NDArray[np.bool_]:
    index = np.searchsorted(intervals.starts, moments, side="right") - 1
    if not len(intervals.starts):
        return np.zeros(len(moments), dtype=bool)
    covered: npt.NDArray[np.bool_] = (index >= 0) & (moments < intervals.ends[index])
    return covered


def _with_next(pieces: pd.DataFrame, events: RankEvents) -> pd.DataFrame:
    """The pieces with the kernel that ends each, and the cause that follows from its launch."""
    places = np.flatnonzero((events.device["kind"] != "copy").to_numpy(dtype=bool))
    work, starts = events.device.iloc[places], events.starts[places]
    begins = pieces["start_ns"].to_numpy(dtype=np.int64)
    ends = begins + pieces["duration_ns"].to_numpy(dtype=np.int64)
    after = np.searchsorted(starts, ends, side="left")
    exists = after < len(work)
    following = work.iloc[np.minimum(after, len(work) - 1)] if len(work) else work
    kinds = following["kind"].astype(str).to_numpy() if len(work) else np.full(len(pieces), "")
    before_kind = _kind_before(work, begins)
    launched_ns = events.launch_ns[places[np.minimum(after, len(work) - 1)]] if len(work) else begins
    known = exists & (launched_ns != UNKNOWN_NS)
    communicates = (kinds == "communication") | (before_kind == "communication")
    cause = np.select(
        [pieces["copying"].to_numpy(), known & (launched_ns > begins), known & communicates, known],
        ["copying", "host", "collective", "device"],
        "unknown",
    ).astype(object)
    detail = np.full(len(pieces), None, dtype=object)
    names: npt.NDArray[Any] = following["name"].astype("object").to_numpy() if len(work) else detail.copy()
    _look_at_host(events.host, (begins, ends), cause, detail)
    fetches = {name: DATA_NAMES.search(str(name)) is not None for name in set(names.tolist())}
    fetched = exists & np.array([fetches[name] for name in names.tolist()], dtype=bool)
    cause[fetched & (cause != "copying")] = "data"
    return pieces.assign(cause=cause, detail=detail, next_kernel=pd.Series(names, dtype="object").where(exists))


def _kind_before(work: pd.DataFrame, begins: Ints) -> npt.NDArray[np.str_]:
    """The kind of the kernel that ended last before each gap."""
    ends = (work["start_ns"] + work["duration_ns"]).to_numpy(dtype=np.int64)
    order = np.argsort(ends, kind="stable")
    index = np.searchsorted(ends[order], begins, side="right") - 1
    kinds_of = work["kind"].astype(str).to_numpy()
    return np.where(index >= 0, kinds_of[order[np.maximum(index, 0)]], "") if len(work) else np.full(len(begins), "")


def _look_at_host(host: HostEvents, gaps: tuple[Ints, Ints], cause: npt.NDArray[Any], detail: npt.NDArray[Any]) -> None:
    """Name what the host did in most of each gap that it caused or that nothing explains; input makes it a data gap."""
    begins, ends = gaps
    for kind, pattern in (("data", DATA_NAMES), ("host", BLOCKING_NAMES)):
        chosen = np.flatnonzero(host.named(pattern))
        if not len(chosen):
            continue
        chosen = chosen[np.argsort(host.starts[chosen], kind="stable")]
        starts, stops = host.starts[chosen], host.ends[chosen]
        first = np.searchsorted(np.maximum.accumulate(stops), begins, side="right")
        last = np.searchsorted(starts, ends, side="left")
        for at in np.flatnonzero(((cause == "host") | (cause == "unknown")) & (first < last)).tolist():
            near = chosen[first[at] : last[at]]
            shared = np.minimum(host.ends[near], ends[at]) - np.maximum(host.starts[near], begins[at])
            if shared.max() * 2 >= ends[at] - begins[at]:
                longest = int(near[shared == shared.max()].min())
                cause[at], detail[at] = kind, str(host.rows["name"].iloc[longest])
