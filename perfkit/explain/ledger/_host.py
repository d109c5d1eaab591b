"""Host: why the device of a rank had nothing to do, from the launches and from what the host did meanwhile.

An idle time before a kernel that was launched in time is the device's own. Else the device waits for the host until the call that
launches returns, and from there for the launch itself. What the host did until then is looked for on the threads that launch; in
this order: it fetched input, it collected garbage, it took or gave back memory, it waited for the device, it stood still, it had
waited for the device when the idle time began, it ran operators. It stands still where for long no event begins or ends on those
threads, not even inside an operator, and no other thread launches for them, and far longer than it habitually does: a host that is
slow throughout, or throughout a step, makes no pauses. How long that is goes by the step: what a step of 20 ms stops for is nothing
to one of 20 s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import NOTHING, Covered, Ints, without
from perfkit.record.overlap import Intervals, distinct, merge, union

SILENT_NS = 700_000
"""A thread that Linux takes its CPU from gets it back after a slice of 0.7 ms (`base_slice_ns` of one CPU, more of several): a host
that makes no event for less has not been stopped."""
PAUSE_SHARE = 0.015
"""The share of a step that a stop leaves a device idle for at least: three times what is worth a finding, because a single time is
no habit. Until its queue is empty it costs nothing."""
HABITS_A_STEP = 2
"""So many pauses a step may be; what comes more often, in one step or in all, is a habit of the host."""
FAR_LONGER = 4.0
"""A pause is so many times as long as the longest stretch that is a habit."""
COPY_NS = 1_000_000
"""A call that should only ask for a copy and takes this long has made it: of memory that is not pinned."""
STARTED_NS = 20_000
"""A call that ended this long before the device fell idle had waited for its last kernel."""
LAUNCHES_LEAST, EXECUTIONS_LEAST = 0.8, 20
"""Of a recording that holds all events the launches of 94 % and more of what runs in steps are known; of so few nothing follows."""
RAN_LEAST = 0.98
"""A recording that holds all events holds the kernel of every call that launches one (of 32,000 bundled calls, no exception)."""
_COLUMNS = ("name", "kind", "thread", "start_ns", "duration_ns")
_PASSES_ON = re.compile(r"^Dequeue@")
"""Calls in which a second thread launches what others have put into its queue: it compiles operators there, for a millisecond each,
and the others wait for it when they need the queue empty. The host is slow then, and does not stand still."""
_LAUNCHES = re.compile(r"^(cuda|cu|hip)(Ext|Module|Cooperative)*Launch(Cooperative)?Kernel")
_CAPTURES, _CAPTURED = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
_MARK = re.compile(r"^ProfilerStep|^## |^\[|^nn\.Module|^PyTorch Profiler|^<built-in|enqueue", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Host:
    """What the host of a rank did on the threads that launch, each moment once, and calls that block by their end.

    `returned` is when the call that launched the kernels of a start (the index) returned; `told` what the host did under names that
    tell their cause by themselves, `working` other operators and calls. Both are cut once, for all steps.
    """

    returned: pd.Series
    told: Mapping[str, Covered]
    working: Covered
    silent: Covered
    block_starts: Ints
    block_ends: Ints
    block_names: npt.NDArray[np.object_]


def host_of(run: Run, rank: int) -> tuple[Host | None, float]:
    """The host of a rank, and the share of what it launched and ran in steps of which both are on record.

    None if launches were not recorded, or of them or of what they launched no more than a sample: then what was between two events
    that are on record is not known.
    """
    if "launches" not in run.tables:
        return None, 0.0
    columns = ["step", "start_ns", "launch_ns", "launch_duration_ns", "thread"]
    every = run.frame("launches", ranks=[rank], columns=columns).dropna(subset=["start_ns"])
    inside = every.loc[every["step"].notna().to_numpy(dtype=bool), "launch_ns"]
    share = float(inside.notna().mean()) if len(inside) else 0.0
    launches = every.dropna(subset=["launch_ns"])
    if launches.empty or (share < LAUNCHES_LEAST and len(inside) >= EXECUTIONS_LEAST):
        return None, share
    starts = launches["start_ns"].to_numpy(dtype=np.int64)
    called = launches["launch_ns"].to_numpy(dtype=np.int64)
    returned = called + launches["launch_duration_ns"].fillna(0).to_numpy(dtype=np.int64)
    # Of several kernels that start together the one launched last was waited for.
    latest = pd.Series(returned, index=starts).groupby(level=0).max()
    host = run.frame("host", ranks=[rank], columns=_COLUMNS) if "host" in run.tables else pd.DataFrame()
    ran = _ran(host, called)
    if ran < RAN_LEAST:
        return None, ran
    threads = set(launches["thread"].dropna().astype(str))
    return _events(latest, host, threads, np.concatenate([called, returned])), share


def _ran(host: pd.DataFrame, called: Ints) -> float:
    """The share of calls that launch kernels of which a kernel is on record (they are in `called`); 1 without such calls.

    What is launched while a graph is captured runs with the graph, and what is launched when the recording ends had no time to run.
    """
    if host.empty:
        return 1.0
    names = host["name"].astype("category").cat
    known, codes = names.categories.tolist(), names.codes.to_numpy()
    starts = host["start_ns"].to_numpy(dtype=np.int64)

    def moments(pattern: re.Pattern[str]) -> Ints:
        found = np.array([*(pattern.search(str(name)) is not None for name in known), False], dtype=bool)
        return np.sort(starts[found[codes]])

    launched = moments(_LAUNCHES)
    captures, ended = moments(_CAPTURES), moments(_CAPTURED)
    capturing = np.searchsorted(captures, launched, side="right") > np.searchsorted(ended, launched, side="right")
    launched = launched[~capturing & (launched <= called.max())]
    return float(np.isin(launched, called).mean()) if len(launched) >= EXECUTIONS_LEAST else 1.0


def without_habits(host: Host, gaps: Intervals, begun: Ints, steps: Intervals) -> Host:
    """The host with only those stretches of silence that are pauses: in the idle times `gaps` of all of its `steps`.

    A host that has launched what comes next may be as silent as it likes: what the device waits for then is its own. `begun` are
    the starts of all kernels, ascending.
    """
    silent = host.silent
    called, _ = _called(host, gaps, begun)
    gaps = Intervals(gaps.starts, called)
    idle = Covered.of(gaps).within(silent.starts, silent.ends)
    step = np.searchsorted(steps.starts, silent.ends, side="right")
    of_step = pd.Series(idle).groupby(step).transform(lambda own: _habit(own, 1)).to_numpy()
    habit = np.maximum(of_step, _habit(idle, len(steps.starts)))
    kept = idle >= np.maximum(PAUSE_SHARE * float((steps.ends - steps.starts).mean()), FAR_LONGER * habit)
    return replace(host, silent=Covered.of(Intervals(silent.starts[kept], silent.ends[kept])))


def _habit(idle: Ints | pd.Series, num_steps: int) -> int:
    """The longest of what comes more often than pauses may."""
    longest = np.sort(np.asarray(idle))[::-1]
    habits = HABITS_A_STEP * num_steps
    return int(longest[habits]) if len(longest) > habits else 0


def _events(latest: pd.Series, host: pd.DataFrame, threads: set[str], calls: Ints) -> Host:
    """What the host did; `calls` are when it launched, and when those calls returned."""
    none = np.zeros(0, dtype=np.int64)
    if host.empty:
        nothing = Covered.of(Intervals(none, none))
        return Host(latest, {}, nothing, Covered.of(_silent(calls)), none, none, np.zeros(0, dtype=object))
    lanes = host["thread"].astype("category").cat
    own = np.array([*(str(lane) in threads for lane in lanes.categories.tolist()), "" in threads], dtype=bool)[lanes.codes]
    operators = (host["kind"] == "operator").to_numpy(dtype=bool)
    if not (own & operators).any():
        # The driver's threads launch what operators of the program's threads ask for; no flow says which of them.
        own |= np.isin(lanes.codes.to_numpy(), np.unique(lanes.codes.to_numpy()[operators]))
    names = host["name"].astype("category")
    known, codes = names.cat.categories.tolist(), names.cat.codes.to_numpy()
    starts = host["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + host["duration_ns"].to_numpy(dtype=np.int64)

    def named(pattern: re.Pattern[str], where: npt.NDArray[np.bool_] = own) -> npt.NDArray[np.bool_]:
        found = np.array([pattern.search(str(name)) is not None for name in known], dtype=bool)
        which: npt.NDArray[np.bool_] = where & (codes >= 0) & found[codes] if len(found) else np.zeros(len(codes), dtype=bool)
        return which

    everywhere = np.ones(len(codes), dtype=bool)
    feed, allocating, blocking = (named(pattern) for pattern in (causes.LOADERS, causes.ALLOCATORS, causes.BLOCKERS))
    collecting = named(causes.COLLECTORS, everywhere)  # it stops every thread of the interpreter
    blocking |= named(causes.COPIES) & (ends - starts >= COPY_NS)
    working = own & ~named(_MARK) & (host["kind"] != "python").to_numpy(dtype=bool)
    passing = named(_PASSES_ON, everywhere)
    named_so = feed | collecting | allocating | blocking | _as_usual(passing, codes, ends - starts)
    told = union(starts[named_so], ends[named_so])
    silent = without(_silent(np.concatenate([calls, starts[own | passing], ends[own | passing]])), told)
    order = np.flatnonzero(blocking)
    order = order[np.argsort(ends[order], kind="stable")]
    by_cause, taken = {}, Intervals(none, none)
    for cause, which in (
        (causes.FEED, feed),
        (causes.PAUSE, collecting),
        (causes.ALLOCATOR, allocating),
        (causes.BLOCKING, blocking),
    ):
        busy = without(union(starts[which], ends[which]), taken)
        by_cause[cause], taken = Covered.of(busy), merge(taken, busy)
    return Host(
        latest,
        by_cause,
        Covered.of(without(union(starts[working], ends[working]), taken)),
        Covered.of(silent),
        starts[order],
        ends[order],
        names.iloc[order].astype("object").to_numpy(),
    )


def _as_usual(which: npt.NDArray[np.bool_], names: npt.NDArray[np.integer], lengths: Ints) -> npt.NDArray[np.bool_]:
    """Those of the chosen calls that are not far longer than others of their name; the host has stopped in the rest."""
    # The lower one of two is the usual one: a stop makes only one of them long.
    usual = pd.Series(lengths[which]).groupby(names[which]).transform("quantile", 0.5, interpolation="lower")
    found = which.copy()
    found[which] = lengths[which] <= FAR_LONGER * usual.to_numpy()
    return found


def _silent(moments: Ints) -> Intervals:
    """Where none of these moments is for SILENT_NS and more."""
    ordered = distinct(moments)
    long = np.diff(ordered) >= SILENT_NS
    return Intervals(ordered[:-1][long], ordered[1:][long])


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle times cut by cause: `starts`, `ends`, `causes` and a `detail` (the call that blocked, else None), in order."""

    starts: Ints
    ends: Ints
    causes: npt.NDArray[np.object_]
    details: npt.NDArray[np.object_]


def explain(host: Host | None, gaps: Intervals, kernels: tuple[Ints, npt.NDArray[np.bool_]]) -> Idle:
    """The idle times with their causes. `kernels` are the starts of all kernels, ascending, and whether each fetches input."""
    starts, ends = gaps.starts, gaps.ends
    if host is None:
        return _untold(starts, ends, *kernels)
    begun, fetches = kernels
    after = np.searchsorted(begun, ends, side="left")
    follows = after < len(begun)
    called, known = _called(host, gaps, begun)
    blocked, names = _blocked(host, starts, called)
    amounts = {cause: covered.within(starts, called) for cause, covered in host.told.items()}
    free = called - starts - sum(amounts.values())
    rows: list[tuple[str, Ints, npt.NDArray[np.object_] | None]] = [(cause, amount, None) for cause, amount in amounts.items()]
    still = np.minimum(free, host.silent.within(starts, called))
    rows += [(causes.PAUSE, still, None), (causes.BLOCKING, np.where(blocked, free - still, 0), names)]
    told = known | (host.working.within(starts, called) > 0)
    late = np.where(blocked, 0, free - still)
    rows += [(causes.LAUNCHING, np.where(told, late, 0), None), (causes.UNEXPLAINED, np.where(told, 0, late), None)]
    fetched = follows & (fetches[after.clip(max=len(fetches) - 1)] if len(fetches) else False)
    wait = ends - called
    own = np.where(called > starts, causes.LATENCY, causes.DEVICE).astype(object)
    own[fetched] = causes.FEED
    return _laid(starts, ends, rows, (wait, own))


def _called(host: Host, gaps: Intervals, begun: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Until when each idle time lasts that the host has not launched what ends it, and whether its launch is on record.

    Without one what the host did in all of the idle time is looked at.
    """
    after = np.searchsorted(begun, gaps.ends, side="left")
    next_start = begun[after.clip(max=max(len(begun) - 1, 0))] if len(begun) else gaps.ends
    launch = np.where(after < len(begun), host.returned.index.get_indexer(pd.Index(next_start)), NOTHING)
    known = launch != NOTHING
    return np.clip(np.where(known, host.returned.to_numpy(dtype=np.int64)[launch], gaps.ends), gaps.starts, gaps.ends), known


def _untold(starts: Ints, ends: Ints, begun: Ints, fetches: npt.NDArray[np.bool_]) -> Idle:
    """Without launches: what a kernel that fetches input is waited for is told, the rest is not."""
    found = np.full(len(starts), causes.UNEXPLAINED, dtype=object)
    if len(begun):
        after = np.searchsorted(begun, ends, side="left")
        found[(after < len(begun)) & fetches[after.clip(max=len(begun) - 1)]] = causes.FEED
    return Idle(starts, ends, found, np.full(len(starts), None, dtype=object))


def at_work_ns(run: Run, rank: int, times: Intervals) -> Ints:
    """How much of each of these times the host of a rank ran operators or calls that launch, in ns; 0 where that is not known."""
    host, _ = host_of(run, rank)
    return np.zeros(len(times.starts), dtype=np.int64) if host is None else host.working.within(times.starts, times.ends)


def _blocked(host: Host, starts: Ints, called: Ints) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.object_]]:
    """Whether the host had waited for the device when each idle time began, and the call in which it did."""
    names = np.full(len(starts), None, dtype=object)
    if not len(host.block_ends):
        return np.zeros(len(starts), dtype=bool), names
    at = np.searchsorted(host.block_ends, called, side="right") - 1
    last = at.clip(min=0)
    found = (at >= 0) & (host.block_ends[last] >= starts - STARTED_NS) & (host.block_starts[last] < starts)
    names[found] = host.block_names[last[found]]
    return found, names


def _laid(
    starts: Ints,
    ends: Ints,
    parts: list[tuple[str, Ints, npt.NDArray[np.object_] | None]],
    last: tuple[Ints, npt.NDArray[np.object_]],
) -> Idle:
    """The parts of each idle time one after another, the last of them up to its end."""
    none = np.full(len(starts), None, dtype=object)
    at = starts.copy()
    columns: list[tuple[Ints, Ints, npt.NDArray[np.object_], npt.NDArray[np.object_]]] = []
    for cause, amount, names in parts:
        columns.append((at, at + amount, np.full(len(starts), cause, dtype=object), none if names is None else names))
        at = at + amount
    columns.append((at, ends, last[1], none))
    begin, end, cause_of, detail = (np.concatenate([column[field] for column in columns]) for field in range(4))
    keep = np.flatnonzero(begin < end)
    keep = keep[np.argsort(begin[keep], kind="stable")]
    return Idle(begin[keep], end[keep], cause_of[keep], detail[keep])
