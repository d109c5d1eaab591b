"""Moments: a recorded step as what waits for what on hosts and devices, timed once more with some of it gone.

Where launches were recorded, what a step wins follows from its host too: a device that idles less waits for the next launch, and a
host that no longer stands still runs ahead until a call of it waits for the device. Moments are begin and end of every execution,
and of every call that launches or waits, those of a rank in one line. An execution waits for its launch, for its stream, for one
of another stream that it follows at once, and communication for what was launched before it; a call that returned as an execution
ended had waited for it; members of an operation end a fixed time after the latest has come. What nothing explains of a wait stays
with what came last, so that nothing gone changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.clock import Clock
from perfkit.core.run import Run
from perfkit.explain.diagnose._moments_order import AT_ONCE_NS, ROUNDED_NS, by_rank, follows, held_by_copies, once, waits_unseen
from perfkit.record.events.graph import UNKNOWN_NS, RankEvents, causal_graph
from perfkit.record.overlap import union

Ints = npt.NDArray[np.int64]
Edges = list[tuple[int, int]]
COPYING, WAITING = re.compile("memcpy", re.IGNORECASE), re.compile(r"synchroni[sz]e|memcpy", re.IGNORECASE)
COPY_NS, FULL_QUEUE_NS = 30_000, 100_000
"""A call that copies waits if it takes at least so long; one that launches where the queue is full, and then takes longer."""
OF_CALL = 50
"""A call that took long returned within this part of that after what it waited for."""
CALL_NS = 5_000
"""What a call takes that has nothing to wait for."""
LATENCY_NS = 30_000
"""From launch to start an execution takes some 10 us; what takes longer stood in a queue."""
MOST_HOSTS = 8
"""Ranks whose moments are timed anew: of more, a price would take seconds."""
LAUNCHED = 0.5
"""The share of a rank's executions whose launches must be known for what waits for its host to be told."""
ROUNDING_NS = 2
"""Moments of a clock that drifts are rounded, begins and lengths apart."""


@dataclass(slots=True)
class _Rank:
    """A rank on the common clock: its executions in order of start, the moments of their begins, and its line of calls.

    The end of an execution is the moment after its begin; `launching` is what the host does for it alone, in ns. `launch` is the
    moment of its call (-1: not known), `line` all moments of calls in order with `line_ns`, when they were; `returns` those of
    calls that had waited.
    """

    starts: Ints
    ends: Ints
    begins: Ints
    launch: Ints
    line: Ints
    line_ns: Ints
    returns: Ints
    returns_ns: Ints
    pace_ns: int
    launching: Ints


class Moments:
    """The moments of ranks whose launches are known, and the order in which they can be timed."""

    def __init__(self, ranks: Mapping[int, RankEvents], clocks: Mapping[int, Clock], members: pd.DataFrame) -> None:
        self._recorded: list[int] = []
        self._before: list[Edges] = []
        self._awaited: dict[int, int] = {}
        self._working: dict[int, int] = {}
        self._clocks = clocks
        self._ranks = {rank: self._placed(rank, events) for rank, events in ranks.items()}
        self._operations = self._met(members)
        self._keep_lags()
        self._order = self._ordered()

    @property
    def sound(self) -> bool:
        """Whether no moments wait for one another, as they do where clocks or launches are wrong."""
        return len(self._order) == len(self._before)

    @property
    def never_waiting(self) -> list[int]:
        """The ranks of which no call waits for the device."""
        return [rank for rank, own in self._ranks.items() if not len(own.returns)]

    def won_ns(
        self, removed: pd.DataFrame, stops: pd.DataFrame, faster_ns: Mapping[int, float], waits: Sequence[pd.DataFrame] = ()
    ) -> float:
        """How much earlier the last execution ends with some time gone; see `timed`."""
        times = self.timed(removed, stops, faster_ns, waits)
        last = max(int(rank.ends.max()) for rank in self._ranks.values())
        return float(last - max(int(times[rank.begins + 1].max()) for rank in self._ranks.values()))

    def idle_ns(self, rank: int, times: Ints | None = None, *, waiting: bool = False) -> int:
        """What the device of a rank idles between its first and its last execution; or also waits in operations for others."""
        own = self._ranks[rank]
        when = np.array(self._recorded, dtype=np.int64) if times is None else times
        starts, ends = when[own.begins], when[own.begins + 1]
        first = int(starts.min())
        if waiting:
            meets = np.isin(own.begins + 1, [at for met in self._operations.values() for at in met])
            for execution in np.flatnonzero(meets).tolist():
                starts[execution] = max(int(when[source]) for source, _ in self._before[int(own.begins[execution]) + 1])
        return int(ends.max()) - first - union(starts, ends).total_ns

    def timed(
        self, removed: pd.DataFrame, stops: pd.DataFrame, faster_ns: Mapping[int, float], waits: Sequence[pd.DataFrame] = ()
    ) -> Ints:
        """When every moment comes with some time gone.

        `removed` (`rank`, `start_ns` on the clock of the rank, `duration_ns`, `fraction`) are executions, or parts of them, and
        idle times: what follows is launched so much earlier. In the idle times `stops` the host stood still, and does not, however
        much of that its queue had hidden. Operations, by instance, are `faster_ns`; in `waits` (`rank`, `start_ns`, `end_ns`) no
        call waits for the device.
        """
        before, times = list(self._before), list(self._recorded)
        for rank, rows in (one for each in waits for one in by_rank(each)):
            own = self._ranks[rank]
            begin, end = (self._common(rank, rows[side]) for side in ("start_ns", "end_ns"))
            first, last = (np.searchsorted(own.returns_ns, side, side="right") for side in (begin, end + ROUNDING_NS))
            for at in (int(own.returns[one]) for low, high in zip(first, last, strict=True) for one in range(low, high)):
                # A host that goes on at once after a call has done in it what it usually does between two.
                working = self._working.get(at, 0)
                before[at] = [(source, working) for source, _ in before[at] if source != self._awaited[at]]
        less: dict[int, float] = {}
        earlier: dict[int, float] = {}
        for rank, rows in by_rank(removed):
            self._remove(rank, rows, less, earlier)
        for rank, rows in by_rank(stops):
            self._run_on(rank, once(rows), earlier)
        for at, amount in less.items():
            before[at] = [(source, max(0, round(least - amount))) for source, least in before[at]]
        for instance, amount in faster_ns.items():
            for at in self._operations.get(instance, ()):
                before[at] = [(source, max(0, round(least - amount))) for source, least in before[at]]
        for at, amount in earlier.items():
            if not before[at]:
                times[at] -= round(amount)
            else:
                (source, least), *rest = before[at]
                before[at] = [(source, least - round(amount)), *rest]
        for at in self._order:
            if edges := before[at]:
                times[at] = max([times[source] + least for source, least in edges])
        return np.array(times, dtype=np.int64)

    def _remove(self, rank: int, rows: pd.DataFrame, less: dict[int, float], earlier: dict[int, float]) -> None:
        """What executions take less, by the moments of their ends, and by how much calls or begins come earlier."""
        own = self._ranks[rank]
        exact = {(start, stop): at for at, (start, stop) in enumerate(zip(own.starts.tolist(), own.ends.tolist(), strict=True))}
        at = np.array([exact.get(span, -1) for span in zip(*self._spans(rank, rows), strict=True)], dtype=np.int64)
        shares = rows["fraction"].to_numpy(dtype=np.float64)
        for execution, share in zip(at[at >= 0].tolist(), shares[at >= 0].tolist(), strict=True):
            end = int(own.begins[execution]) + 1
            less[end] = less.get(end, 0.0) + share * int(own.ends[execution] - own.starts[execution])
            if share >= 1.0 and own.launching[execution]:  # What is not run is not launched.
                launch = int(own.launch[execution])
                earlier[launch] = earlier.get(launch, 0.0) + int(own.launching[execution])
        rest = once(rows[at < 0])
        begin, stop = self._spans(rank, rest)
        first = np.searchsorted(np.maximum.accumulate(own.ends), begin, side="right").tolist()
        last = np.searchsorted(own.starts, stop, side="left").tolist()
        for number, share in enumerate(rest["fraction"].tolist()):
            until = begin[number]
            for execution in range(first[number], last[number]):
                start, end = int(own.starts[execution]), int(own.ends[execution])
                if (shared := min(stop[number], end) - max(begin[number], start)) > ROUNDING_NS:
                    at_end = int(own.begins[execution]) + 1
                    less[at_end] = less.get(at_end, 0.0) + share * shared
                if start > until:
                    self._sooner(own, start, share * (start - until), earlier)
                until = max(until, end)
            if stop[number] > until:
                self._sooner(own, stop[number], share * (stop[number] - until), earlier)

    def _sooner(self, own: _Rank, stop: int, amount: float, earlier: dict[int, float]) -> None:
        if (target := self._held_by(own, stop)) is not None:
            earlier[target] = earlier.get(target, 0.0) + amount

    def _spans(self, rank: int, rows: pd.DataFrame) -> tuple[list[int], list[int]]:
        begin = self._common(rank, rows["start_ns"])
        return begin.tolist(), (begin + rows["duration_ns"].to_numpy(dtype=np.int64)).tolist()

    def _held_by(self, own: _Rank, stop: int) -> int | None:
        """The moment that held up what follows an idle time: its launch if that came last, else its begin; None without any."""
        at = int(np.searchsorted(own.starts, stop - ROUNDING_NS, side="left"))
        if at >= len(own.starts):
            return None
        begin, launch = int(own.begins[at]), int(own.launch[at])
        edges = self._before[begin]
        return launch if launch >= 0 and edges and edges[0][0] == launch else begin

    def _run_on(self, rank: int, rows: pd.DataFrame, earlier: dict[int, float]) -> None:
        """Take out of the line of calls what its longest stretch before each of these idle times ended was longer than usual."""
        own = self._ranks[rank]
        found: dict[int, float] = {}
        for start, stop, share in zip(*self._spans(rank, rows), rows["fraction"].tolist(), strict=True):
            if (target := self._held_by(own, stop)) is None:
                continue
            last = int(np.searchsorted(own.line_ns, self._recorded[target], side="right"))
            first = max(1, int(np.searchsorted(own.line_ns, start, side="right")))
            stretches = own.line_ns[first:last] - own.line_ns[first - 1 : max(first, last) - 1]
            beyond = share * (int(stretches.max(initial=0)) - own.pace_ns)
            if beyond < share * (stop - start):
                earlier[target] = earlier.get(target, 0.0) + share * (stop - start)
            else:
                longest = int(own.line[first + int(stretches.argmax())])
                found[longest] = max(found.get(longest, 0.0), beyond)
        for at, amount in found.items():
            earlier[at] = earlier.get(at, 0.0) + amount

    def _common(self, rank: int, moments: pd.Series) -> Ints:
        asked = moments.to_numpy(dtype=np.int64)
        return self._clocks[rank].common_ns(asked) if rank in self._clocks else asked

    def _add(self, moment_ns: int, edges: Edges) -> int:
        self._recorded.append(moment_ns)
        self._before.append(edges)
        return len(self._recorded) - 1

    def _placed(self, rank: int, events: RankEvents) -> _Rank:
        """The moments of a rank with all that they wait for on it."""
        clock = self._clocks.get(rank)
        launched = events.launches["launch_ns"].notna().to_numpy(dtype=bool)
        own_starts, own_ends, calls = events.starts, events.ends, events.launch_ns
        starts = own_starts if clock is None else clock.common_ns(own_starts)
        ends = starts + (own_ends - own_starts)
        launch_ns = np.where(launched, calls if clock is None else clock.common_ns(calls), UNKNOWN_NS)
        begins = len(self._recorded) + 2 * np.arange(len(starts), dtype=np.int64)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            at = self._add(start, [])
            self._add(end, [(at, end - start)])
        lasts = events.launches["launch_duration_ns"].fillna(0).to_numpy(dtype=np.int64)
        line, line_ns, launch, returns = self._line(events, clock, (starts, ends, begins), (launch_ns, lasts))
        self._wait_on_device(events, (starts, ends, begins), (launch_ns, launch))
        paces = np.diff(line_ns)
        waited = np.isin(line, returns)
        pace = int(np.median(paces)) if len(paces) else 0
        launching = self._launching(events, launch, line_ns[np.isin(line, launch)])
        return _Rank(starts, ends, begins, launch, line, line_ns, line[waited], line_ns[waited], pace, launching)

    def _launching(self, events: RankEvents, launch: Ints, calls_ns: Ints) -> Ints:
        """What the host does for each execution that computes or copies and has a call of its own: no more than is usual."""
        own = pd.Series(launch).groupby(launch).transform("size").eq(1).to_numpy() & (launch >= 0)
        own &= (events.device["kind"] != "communication").to_numpy(dtype=bool)
        since = np.diff(calls_ns, prepend=calls_ns[:1])
        usual_ns = int(np.median(since[1:])) if len(since) > 1 else 0
        when = np.array([self._recorded[at] for at in launch[own].tolist()], dtype=np.int64)
        found = np.zeros(len(launch), dtype=np.int64)
        found[own] = np.minimum(since[np.searchsorted(calls_ns, when)], usual_ns) if len(since) else 0
        return found

    def _line(
        self, events: RankEvents, clock: Clock | None, device: tuple[Ints, Ints, Ints], launches: tuple[Ints, Ints]
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The calls of a rank as one line, whichever thread makes them: its moments, when they were, the call of each execution."""
        starts, ends, begins = device
        launch_ns, lasts = launches
        host = events.host
        waiting = np.flatnonzero(host.of_kind("call") & host.named(WAITING) & (host.ends - host.starts > CALL_NS))
        least = np.where(host.named(COPYING)[waiting], COPY_NS, CALL_NS)
        begun = host.starts[waiting] if clock is None else clock.common_ns(host.starts[waiting])
        known = launch_ns != UNKNOWN_NS
        calls = pd.DataFrame(
            {
                "start": np.concatenate([launch_ns[known], begun]),
                "lasts": np.concatenate([lasts[known], (host.ends - host.starts)[waiting]]),
                "least": np.concatenate([np.full(int(known.sum()), FULL_QUEUE_NS), least]),
            }
        )
        if known.any():
            calls = calls[((calls["start"] >= launch_ns[known].min()) & (calls["start"] <= ends.max())).to_numpy()]
        calls = calls.sort_values(["start", "lasts", "least"], ascending=[True, False, True]).drop_duplicates("start")
        begin, length = calls["start"].to_numpy(dtype=np.int64), calls["lasts"].to_numpy(dtype=np.int64)
        by_end = np.argsort(ends, kind="stable")
        at = np.searchsorted(ends[by_end], begin + length, side="right") - 1
        ended = ends[by_end[at.clip(min=0)]]
        waited = (at >= 0) & (length >= calls["least"].to_numpy()) & (ended > begin)
        waited &= begin + length - ended <= np.maximum(AT_ONCE_NS, length // OF_CALL)
        first = len(self._recorded)
        for moment in np.stack([begin, begin + length], axis=1).ravel().tolist():
            self._add(moment, [])
        moments = first + np.arange(2 * len(begin), dtype=np.int64)
        when = np.array(self._recorded[first:], dtype=np.int64)
        order = np.argsort(when, kind="stable")
        line, line_ns = moments[order], when[order]
        holds = {first + 2 * one + 1: int(begins[by_end[at[one]]]) + 1 for one in np.flatnonzero(waited).tolist()}
        held = held_by_copies(events, launch_ns, (starts, ends), (begin, length))
        holds |= {first + 2 * call + 1: int(begins[copy]) + 1 for call, (copy, _) in held.items()}
        sooner = {first + 2 * call + 1: lag for call, (_, lag) in held.items()}
        for previous, now, before_ns, now_ns in zip(
            line[:-1].tolist(), line[1:].tolist(), line_ns[:-1].tolist(), line_ns[1:].tolist(), strict=True
        ):
            if (held_by := holds.get(now)) is None:
                self._before[now] = [(previous, now_ns - before_ns)]
            else:
                self._before[now] = [(held_by, sooner.get(now, 0)), (now - 1, CALL_NS), (previous, 0)]
                self._awaited[now] = held_by
        free = (line[:-1] - first) % 2 == 1  # between two calls
        between = np.diff(line_ns)[free & ~np.isin(line[:-1], [*holds])]
        usual_ns = int(np.median(between)) if len(between) else 0
        for now, next_ns, now_ns in zip(line[:-1].tolist(), line_ns[1:].tolist(), line_ns[:-1].tolist(), strict=True):
            if now in holds:
                self._working[now] = max(0, usual_ns - (next_ns - now_ns))
        places = dict(zip(begin.tolist(), moments[::2].tolist(), strict=True))
        launch = np.array([places.get(moment, -1) for moment in launch_ns.tolist()], dtype=np.int64)
        return line, line_ns, launch, np.array([*holds], dtype=np.int64)

    def _wait_on_device(self, events: RankEvents, device: tuple[Ints, Ints, Ints], launches: tuple[Ints, Ints]) -> None:
        """What executions wait for: their launch, their stream, other streams."""
        starts, ends, begins = device
        launch_ns, launch = launches
        known = launch >= 0
        latency = np.sort((starts - launch_ns)[known])
        least = int(np.clip(latency[len(latency) // 100], 0, LATENCY_NS)) if len(latency) else 0
        for at in np.flatnonzero(known & (launch_ns <= starts)).tolist():
            self._before[int(begins[at])].append((int(launch[at]), min(least, int(starts[at] - launch_ns[at]))))
        for source, target in follows(events, (starts, ends), launch_ns, known):
            if ends[source] <= starts[target] + ROUNDED_NS:
                self._before[int(begins[target])].append((int(begins[source]) + 1, min(0, int(starts[target] - ends[source]))))
            elif starts[source] < starts[target]:
                self._before[int(begins[target])].append((int(begins[source]), int(starts[target] - starts[source])))

    def _met(self, members: pd.DataFrame) -> dict[int, list[int]]:
        """The moments at which the members of each operation of several ranks end, by instance."""
        if members.empty:
            return {}
        rows = members[members["start_ns"].notna().to_numpy(dtype=bool)]
        at_of = {
            (rank, start, end - start): int(at)
            for rank, own in self._ranks.items()
            for start, end, at in zip(own.starts.tolist(), own.ends.tolist(), own.begins.tolist(), strict=True)
        }
        meets: dict[int, list[int]] = {}
        sends: set[int] = set()
        columns = ["rank", "start_ns", "duration_ns", "instance", "operation"]
        for rank, start, lasts, instance, operation in rows[columns].itertuples(index=False, name=None):
            if (at := at_of.get((int(rank), int(start), int(lasts)))) is not None:
                meets.setdefault(int(instance), []).append(at)
                if str(operation) == "send":
                    sends.add(at)
        found = {}
        for instance, begins in meets.items():
            latest = max(self._recorded[at] for at in begins)
            ends = [at + 1 for at in begins if at not in sends]  # a send waits for nobody
            if len(begins) > 1 and all(self._recorded[at] >= latest for at in ends):
                found[instance] = ends
                for at in ends:
                    self._before[at] = [(begin, self._recorded[at] - latest) for begin in begins]
        return found

    def _keep_lags(self) -> None:
        """Put first what came last of what each moment waits for, with what nothing explains of the wait."""
        recorded = self._recorded
        for at, edges in enumerate(self._before):
            if edges:
                now = recorded[at]
                # A call may return just before its copy ends.
                kept = [(one, min(least, now - recorded[one])) for one, least in edges if recorded[one] + min(least, 0) <= now]
                kept.sort(key=lambda edge: recorded[edge[0]] + edge[1], reverse=True)
                if kept:
                    kept[0] = (kept[0][0], now - recorded[kept[0][0]])
                self._before[at] = kept

    def _ordered(self) -> list[int]:
        """The moments, each after all that it waits for; those that wait for one another are left out."""
        left = [len(edges) for edges in self._before]
        after: list[list[int]] = [[] for _ in left]
        for at, edges in enumerate(self._before):
            for source, _ in edges:
                after[source].append(at)
        order = [at for at, count in enumerate(left) if not count]
        for at in order:
            for target in after[at]:
                left[target] -= 1
                if not left[target]:
                    order.append(target)
        return order


def moments_of(run: Run, steps: Sequence[int], clocks: Mapping[int, Clock], members: pd.DataFrame) -> Moments | None:
    """The moments of all ranks in some steps; None unless the launches of all are known, of not too many, and where hosts wait."""
    ranks = run.ranks
    if "launches" not in run.tables or len(ranks) > MOST_HOSTS or (len(ranks) > 1 and not set(ranks) <= set(clocks)):
        return None
    events = {}
    for rank in ranks:
        whole = causal_graph(run).rank(rank)
        part = whole.part(np.flatnonzero(whole.device["step"].isin(steps).fillna(False).to_numpy(dtype=bool)))
        if part.launches["launch_ns"].notna().mean() < LAUNCHED:
            return None
        events[rank] = part
    found = Moments(events, clocks, members)
    return found if found.sound and not any(waits_unseen(events[rank]) for rank in found.never_waiting) else None
