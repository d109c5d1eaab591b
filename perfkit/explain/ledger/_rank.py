"""Rank: the timeline of one rank cut into pieces, each with its own cause; waiting is told apart but not yet explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.clock import Clock
from perfkit.core.run import Run
from perfkit.explain import module_tree, recomputed
from perfkit.explain.ledger import _head, _host, causes
from perfkit.explain.ledger._paint import NOTHING, Ints, Layer, Pieces, layer, paint
from perfkit.explain.operator_names import operators
from perfkit.record.overlap import Intervals, union

Objects = npt.NDArray[np.object_]
COMPUTING, MOVING, WAITING, NEITHER, TALKING, COPYING = range(6)
"""The layers of a timeline, in the order in which they have a moment."""
BEFORE, INSIDE, AFTER, BEHIND = "before", "inside", "after", "behind the optimizer"
"""Where in the step a piece is: before its first kernel, after its last, or between; computing also behind the optimizer's last."""
WAITS = "waiting"
"""The cause of a piece of waiting that is not explained yet."""
_COLUMNS = ("rank", "step", "name", "type", "core", "kind", "stream", "start_ns", "duration_ns", "input_shapes")
LEAST_IDLE = 0.002
"""The share of the steps that a device must idle for its host to be worth reading."""


@dataclass(frozen=True, slots=True)
class Window:
    """A step of a rank on its own clock; `start_ns` None: where its kernels begin."""

    step: int
    start_ns: int | None
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Pieces of one rank in order of step and time, on its own clock.

    `members` is the row of the collective that a piece of communication belongs to (NOTHING: none); `host_read` says whether what
    the host did is known, and `launched` the share of its executions whose launch is.
    """

    steps: Ints
    starts: Ints
    ends: Ints
    causes: Objects
    details: Objects
    places: Objects
    members: Ints
    parts: Objects
    host_read: bool
    launched: float


@dataclass(frozen=True, slots=True)
class Talk:
    """The communication of a rank: its rows of `collectives.members`, its clock, and by row what it moved longer than usual.

    `cut_groups` are the groups with members that were not read.
    """

    members: pd.DataFrame
    clock: Clock | None
    slow: Mapping[int, int]
    cut_groups: frozenset[str]


_Told = tuple[Ints, Ints, Ints, Objects, Objects, Objects, Ints, Objects]


@dataclass(frozen=True, slots=True)
class _Device:
    """The executions of a rank in order of their start."""

    steps: pd.Series
    starts: Ints
    ends: Ints
    kinds: Objects
    work: Objects
    fetches: npt.NDArray[np.bool_]
    modules: Objects | None


def timeline(run: Run, rank: int, windows: Sequence[Window], talk: Talk, *, host: bool, stacks: bool) -> Timeline | None:
    """The timeline of a rank in its windows; None without kernels that have a start.

    `host` says whether what the host did may be read, `stacks` whether it may for the modules alone, of a device that hardly idles.
    """
    device = _device(run, rank)
    if device is None:
        return None
    layers = [
        _of_kind(device, "computing"),
        *_talk(talk.members, talk.clock),
        _of_kind(device, "communication"),
        _of_kind(device, "copy"),
    ]
    placed = [(window.step, at) for window in windows if (at := _placed(window, device)) is not None]
    if not placed:
        return None
    cut = [paint(layers, at) for _, at in placed]
    read, launched = _host.host_of(run, rank) if host and _idles(cut) else (None, 0.0)
    device = replace(device, modules=module_tree.modules_of(run, rank, host=stacks or read is not None))
    if read is not None:
        bounds = np.array(sorted(at for _, at in placed), dtype=np.int64)
        read = _host.without_habits(read, _idle(cut), device.starts, Intervals(bounds[:, 0], bounds[:, 1]))
    parts = [_told(step, pieces, device, talk, read) for (step, _), pieces in zip(placed, cut, strict=True)]
    whole = tuple(zip(*parts, strict=True))
    steps, starts, ends, members = (np.concatenate(whole[field]) for field in (0, 1, 2, 6))
    because, details, places, kinds = (np.concatenate(whole[field]) for field in (3, 4, 5, 7))
    return Timeline(steps, starts, ends, because, details, places, members, kinds, host_read=read is not None, launched=launched)


def _device(run: Run, rank: int) -> _Device | None:
    kernels = run.frame("kernels", ranks=[rank], columns=_COLUMNS)
    kernels = kernels[kernels["start_ns"].notna().to_numpy()].sort_values("start_ns", kind="stable", ignore_index=True)
    if kernels.empty:
        return None
    starts = kernels["start_ns"].to_numpy(dtype=np.int64)
    names = kernels["name"].astype("category")
    fetching = np.array(
        [*(bool(causes.FEED_KERNELS.search(str(name))) for name in names.cat.categories.tolist()), False], dtype=bool
    )
    return _Device(
        kernels["step"],
        starts,
        starts + kernels["duration_ns"].to_numpy(dtype=np.int64),
        kernels["kind"].astype("object").to_numpy(),
        _work(kernels),
        fetching[names.cat.codes.to_numpy()],
        None,
    )


def _of_kind(device: _Device, kind: str) -> Layer:
    at = np.flatnonzero(device.kinds == kind)
    return layer(device.starts[at], device.ends[at], at)


def _idle(cut: Sequence[Pieces]) -> Intervals:
    starts, ends = (
        np.concatenate([getattr(pieces, side)[pieces.layers == NOTHING] for pieces in cut]) for side in ("starts", "ends")
    )
    return union(starts, ends)


def _idles(cut: Sequence[Pieces]) -> bool:
    idle = sum(int((pieces.ends - pieces.starts)[pieces.layers == NOTHING].sum()) for pieces in cut)
    return idle > LEAST_IDLE * sum(int((pieces.ends - pieces.starts).sum()) for pieces in cut)


def _placed(window: Window, device: _Device) -> tuple[int, int] | None:
    if window.start_ns is not None:
        return window.start_ns, window.start_ns + window.duration_ns
    own = device.steps.eq(window.step).fillna(False).to_numpy(dtype=bool)
    return (int(device.starts[own].min()), int(device.ends[own].max())) if own.any() else None


def _work(kernels: pd.DataFrame) -> Objects:
    """The cause of each kernel as work, by what it computes: by its type, or by its name where the type says nothing."""
    types = operators(kernels)
    found = _kinds(types.astype("category"))
    vague = found == causes.ELEMENT_WISE
    # Some programs give every kernel a name of its own: only those are looked at that nothing else tells.
    found[vague] = _kinds(kernels["name"][vague].astype("category").cat.remove_unused_categories())
    cores = kernels["core"].astype("category")
    cpu = np.array(
        [*("AI_CPU" in str(core).upper() or "AICPU" in str(core).upper() for core in cores.cat.categories.tolist()), False]
    )
    found[cpu[cores.cat.codes.to_numpy()]] = causes.AI_CPU
    found[_head.of_head(types, kernels["input_shapes"], found)] = _head.HEAD
    computing = np.flatnonzero((kernels["kind"] == "computing").to_numpy(dtype=bool))
    again = recomputed.again(types.iloc[computing], kernels["step"].iloc[computing])
    if again is not None:
        found[computing[again.mask(len(computing))]] = causes.AGAIN
    return found


def _kinds(names: pd.Series) -> Objects:
    of_name = [*(causes.kind_of(str(name)) for name in names.cat.categories.tolist()), causes.ELEMENT_WISE]
    found: Objects = np.array(of_name, dtype=object)[names.cat.codes.to_numpy()]
    return found


def _talk(members: pd.DataFrame, clock: Clock | None) -> list[Layer]:
    """Moving, waiting and what is neither of the collectives of a rank, on its own clock.

    Where only some members were read, nothing says whether the rest of an operation is waiting for others.
    """
    rows = members[members["start_ns"].notna().to_numpy() & members["wait_ns"].notna().to_numpy()]
    at = rows.index.to_numpy(dtype=np.int64)
    begin = own_moments(rows["start_ns"].to_numpy(dtype=np.int64), clock)
    end = begin + rows["duration_ns"].to_numpy(dtype=np.int64)
    arrived = begin + rows["wait_ns"].to_numpy(dtype=np.int64)
    partial = (rows["basis"].astype("object") == "partial").to_numpy(dtype=bool)
    moved = np.where(partial, arrived, np.minimum(arrived + rows["transfer_ns"].fillna(0).to_numpy(dtype=np.int64), end))
    return [layer(arrived, moved, at), layer(begin, arrived, at), layer(moved, end, at)]


def own_moments(common_ns: Ints, clock: Clock | None) -> Ints:
    """Moments of the common clock on that of a rank; they are as recorded for a rank whose clock is not known."""
    if clock is None:
        return common_ns
    near = common_ns + clock.offset_ns
    own: Ints = near + (common_ns - replace(clock, jump=None).common_ns(near))
    if clock.jump is None or clock.jump.at_ns is None:
        return own
    return np.where(own + clock.jump.jump_ns >= clock.jump.at_ns, own + clock.jump.jump_ns, own)


def _told(step: int, pieces: Pieces, device: _Device, talk: Talk, host: _host.Host | None) -> _Told:
    """The pieces of a step with their causes."""
    idle = pieces.layers == NOTHING
    told = _host.explain(host, Intervals(pieces.starts[idle], pieces.ends[idle]), (device.starts, device.fetches))
    busy = ~idle
    starts, ends = pieces.starts[busy], pieces.ends[busy]
    layers, rows = pieces.layers[busy], pieces.rows[busy]
    cause = np.full(len(starts), causes.UNEXPLAINED, dtype=object)
    detail = np.full(len(starts), None, dtype=object)
    member = np.where((layers >= MOVING) & (layers <= NEITHER), rows, NOTHING)
    computing = layers == COMPUTING
    part = np.where(computing, "computing", np.where(layers == COPYING, "free", "communication")).astype(object)
    cause[computing] = np.where(device.fetches[rows[computing]], causes.FEED, device.work[rows[computing]])
    if device.modules is not None:
        works = computing & (cause != causes.FEED)
        detail[works] = device.modules[rows[works]]
    cause[layers == MOVING] = causes.TRANSFER
    cause[layers == WAITING] = WAITS
    cause[layers == COPYING] = causes.COPY
    neither = layers == NEITHER
    if neither.any():
        cause[neither] = np.where(_all_seen(talk, rows[neither]), causes.NEITHER, causes.UNEXPLAINED)
    detail[(neither & (cause == causes.UNEXPLAINED)) | (layers == TALKING)] = "communication"
    starts, ends, cause, detail, member, part = _slow((starts, ends, cause, detail, member, part), talk.slow)
    begin = np.concatenate([starts, told.starts])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.concatenate([ends, told.ends])[order]
    because: Objects = np.concatenate([cause, told.causes])[order]
    which: Objects = np.concatenate([detail, told.details])[order]
    which[(because == causes.UNEXPLAINED) & pd.isna(which)] = "idle"
    numbers = np.concatenate([member, np.full(len(told.starts), NOTHING, dtype=np.int64)])[order]
    parts: Objects = np.concatenate([part, np.full(len(told.starts), "free", dtype=object)])[order]
    first, last = (int(starts.min()), int(ends.max())) if len(starts) else (0, 0)
    places: Objects = np.where(begin < first, BEFORE, np.where(begin >= last, AFTER, INSIDE)).astype(object)
    places[_behind(begin, end, because, parts)] = BEHIND
    return np.full(len(begin), step, dtype=np.int64), begin, end, because, which, places, numbers, parts


def _behind(begin: Ints, end: Ints, because: Objects, parts: Objects) -> npt.NDArray[np.bool_]:
    """Computing behind the last kernel of the optimizer; none where layers are computed there: then the step begins elsewhere."""
    updates = because == causes.OPTIMIZER
    behind: npt.NDArray[np.bool_] = (parts == "computing") & (begin >= end[updates].max(initial=0)) & updates.any()
    return behind & ~np.isin(because[behind], causes.OF_LAYERS).any()


def _all_seen(talk: Talk, rows: Ints) -> npt.NDArray[np.bool_]:
    """Whether all members of each operation were read, or its tasks say whom it waited for: then it waits for nobody else."""
    own = talk.members.loc[rows]
    whole = (own["num_seen"] >= own["group_size"].fillna(own["num_seen"])) & (own["num_seen"] > 1)
    whole = (whole.fillna(False) & ~own["group"].isin(talk.cut_groups)) | own["waits_for"].notna()
    found: npt.NDArray[np.bool_] = whole.to_numpy(dtype=bool) & (own["basis"].astype("object") == "recorded").to_numpy()
    return found


_Columns = tuple[Ints, Ints, Objects, Objects, Ints, Objects]


def _slow(columns: _Columns, slow: Mapping[int, int]) -> _Columns:
    """Moving data cut in two where it takes longer than usual: the last part of it is slow."""
    starts, ends, cause, detail, member, part = columns
    moving = np.flatnonzero(cause == causes.TRANSFER)
    extra = np.zeros(len(starts), dtype=np.int64)
    left: dict[int, int] = {}
    for at in moving[::-1].tolist() if slow else []:
        row = int(member[at])
        rest = left.get(row, slow.get(row, 0))
        extra[at] = min(rest, int(ends[at] - starts[at]))
        left[row] = rest - int(extra[at])
    cut = np.flatnonzero(extra)
    late = (ends - extra, ends, np.full(len(starts), causes.SLOW_TRANSFER, dtype=object), detail, member, part)
    early = (starts, ends - extra, cause, detail, member, part)
    keep = early[0] < early[1]
    joined = [np.concatenate([first[keep], second[cut]]) for first, second in zip(early, late, strict=True)]
    return joined[0], joined[1], joined[2], joined[3], joined[4], joined[5]
