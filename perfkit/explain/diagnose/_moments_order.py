"""The order of executions on a device: which of them waits for which, read from streams, launches and recorded times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.events.graph import OTHER_STREAM, STREAM, UNKNOWN_NS, RankEvents

Ints = npt.NDArray[np.int64]
DEEP_NS = 10_000_000
"""A host that is so far ahead of its device, and goes on when that is done, has waited for it."""
AT_ONCE_NS = 20_000
"""What follows an end so soon has waited for it."""
ROUNDED_NS = 1_000
"""Starts and lengths that are told by the microsecond, or as floating-point numbers, let an end lie behind what waited for it."""


def by_rank(rows: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    """The rows of each rank."""
    return [(int(str(rank)), own) for rank, own in rows.groupby("rank")]


def follows(events: RankEvents, device: tuple[Ints, Ints], launch_ns: Ints, known: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Pairs of executions of which the second waits for the first."""
    starts, ends = device
    stream = events.edges(STREAM)
    pairs = list(zip(stream.sources.tolist(), stream.targets.tolist(), strict=True))
    other = events.edges(OTHER_STREAM)
    pairs += [(source, at) for source, at in zip(other.sources.tolist(), other.targets.tolist(), strict=True) if not known[at]]
    codes = pd.factorize(events.device["stream"])[0]
    for code in range(int(codes.max(initial=-1)) + 1):
        mine = np.flatnonzero(codes == code)
        mine = mine[np.argsort(ends[mine], kind="stable")]
        asked = np.flatnonzero((codes != code) & known)
        at = np.searchsorted(ends[mine], starts[asked] + ROUNDED_NS, side="right") - 1
        last = mine[at.clip(min=0)]
        tied = (at >= 0) & (starts[asked] - ends[last] <= AT_ONCE_NS) & (starts[last] < starts[asked])
        tied &= launch_ns[last] <= launch_ns[asked]
        pairs += zip(last[tied].tolist(), asked[tied].tolist(), strict=True)
    talks = (events.device["kind"] == "communication").to_numpy(dtype=bool)
    in_line = np.flatnonzero(known)[np.argsort(launch_ns[known], kind="stable")]
    before = np.maximum.accumulate(np.where(talks[in_line], -1, np.arange(len(in_line))))
    sent = np.flatnonzero(talks[in_line] & (before >= 0))
    pairs += zip(in_line[before[sent]].tolist(), in_line[sent].tolist(), strict=True)
    steps = events.device["step"].to_numpy(dtype=np.int64, na_value=-1)
    computes = (events.device["kind"] == "computing").to_numpy(dtype=bool)
    for step in np.unique(steps[talks]).tolist():
        # The update of the weights waits for every gradient.
        if len(last := np.flatnonzero(computes & (steps == step))):
            pairs += [(talk, int(last[-1])) for talk in np.flatnonzero(talks & (steps == step)).tolist() if talk != last[-1]]
    return pairs


def waits_unseen(events: RankEvents) -> bool:
    """Whether a host that was far ahead went on only when its device was done, at the end of every step but the last.

    Where no call of it waits, what it waited in is not on record: the time from launch to launch seems to be its own then.
    """
    rows = events.device.assign(launch=events.launches["launch_ns"], end=events.ends)
    rows = rows[rows["launch"].notna().to_numpy(dtype=bool)]
    steps = rows.groupby("step").agg(first=("launch", "min"), last=("launch", "max"), end=("end", "max")).sort_values("first")
    ends = steps["end"].to_numpy(dtype=np.int64)[:-1]
    first, last = (steps[name].to_numpy(dtype=np.int64) for name in ("first", "last"))
    return len(ends) > 0 and bool(((ends - last[:-1] >= DEEP_NS) & (first[1:] >= ends)).all())


def once(rows: pd.DataFrame) -> pd.DataFrame:
    """The times cut so that they do not overlap on a rank, with what all that name a piece remove of it, at most all."""
    frames = []
    for rank, own in rows.groupby("rank"):
        starts = own["start_ns"].to_numpy(dtype=np.int64)
        ends = starts + own["duration_ns"].to_numpy(dtype=np.int64)
        share = own["fraction"].to_numpy(dtype=np.float64)
        moments = np.concatenate([starts, ends])
        order = np.argsort(moments, kind="stable")
        running = np.cumsum(np.concatenate([share, -share])[order])[:-1]
        lengths = np.diff(moments[order])
        keep = (lengths > 0) & (running > 1e-9)
        pieces = {"rank": rank, "start_ns": moments[order][:-1][keep], "duration_ns": lengths[keep]}
        frames.append(pd.DataFrame(pieces).assign(fraction=np.minimum(running[keep], 1.0)))
    return pd.concat(frames, ignore_index=True) if frames else rows


def held_by_copies(
    events: RankEvents, launch_ns: Ints, device: tuple[Ints, Ints], calls: tuple[Ints, Ints]
) -> dict[int, tuple[int, int]]:
    """By call that copies pageable memory its copy, and when it returned after that had ended, in ns: 0, or some 10 us before.

    `device` are begins and ends of executions, `calls` begins and lengths of calls.
    """
    starts, ends = device
    pageable = events.device["name"].astype(str).str.contains("Pageable").to_numpy(dtype=bool)
    copies = {int(launch_ns[at]): int(at) for at in np.flatnonzero(pageable & (launch_ns != UNKNOWN_NS))}
    found = {}
    for call, (begin, length) in enumerate(zip(*(side.tolist() for side in calls), strict=True)):
        if (copy := copies.get(begin)) is not None and starts[copy] <= begin + length <= ends[copy] + AT_ONCE_NS:
            found[call] = (copy, min(0, int(begin + length - ends[copy])))
    return found
