"""Times a recording anew after pieces of it were stretched: every piece starts when the latest of what it waited for has ended.

This is a second picture of what waits for what, made for the benchmark alone; a diagnosis is judged by it and must not share it.
Moments are: start and end of every kernel, and start and end of the host's calls that launch or wait. A kernel waits for its
launch, for its stream, for a kernel of another stream where that explains its start, and a communication also for what had been
launched before it, to send it. A call that ended when a kernel did had waited for it. A collective ends a fixed time after its
latest member has come. What no predecessor explains of a wait stays, so that nothing stretched changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.diagnosis._recorded import (
    LONG_LAUNCH_NS,
    LONG_WAIT_NS,
    OF_MEMORY,
    WAITS,
    calls_of,
    copies_of_collectives,
    instances,
)
from perfkit.core import clock
from perfkit.core.run import Run

Ints = npt.NDArray[np.int64]
AT_ONCE_NS = 20_000
RUNS_ON_NS = 5_000_000
"""A longer stretch of the host between two calls is no launching: it waits for a thread or for data."""
CALL_NS = 5_000
LATENCY_NS = 30_000
"""From launch to start a kernel takes some 10 us; what takes longer stood in a queue, and starts sooner after a late launch."""


class CyclicError(ValueError):
    """Moments of a recording that would wait for one another."""


@dataclass(frozen=True, slots=True)
class Stretched:
    """What is longer: kernels and transfers by row of the table `kernels`, by how many ns.

    `pauses` are (rank, moment on its clock, ns) of the host, or of the device before its next kernel where no host was recorded;
    `host_factor` stretches what the host of some ranks does in some windows of time, but for calls that take or give back memory:
    those have a cause of their own; `waits` are kernels (rows) for
    which the host waits once they are launched; `links` are (source, target, steps, factor) in the table of links.
    """

    kernels_ns: Mapping[int, int] = field(default_factory=dict)
    pauses: Sequence[tuple[int, int, int]] = ()
    host_factor: Sequence[tuple[int, int, int, float]] = ()
    waits: Sequence[int] = ()
    links: Sequence[tuple[int, int, tuple[int, ...], float]] = ()


@dataclass(slots=True)
class _Moments:
    """Moments in order of their number, with what each waits for: (moment, least time after it)."""

    recorded: list[int] = field(default_factory=list)
    before: list[list[tuple[int, int]]] = field(default_factory=list)

    def add(self, moment_ns: int, *before: tuple[int, int]) -> int:
        self.recorded.append(moment_ns)
        self.before.append(list(before))
        return len(self.recorded) - 1

    def keep_lags(self) -> None:
        """Give what nothing explains of a wait to the predecessor that came last."""
        for at, edges in enumerate(self.before):
            if edges:
                held = [self.recorded[source] + least for source, least in edges]
                lag = self.recorded[at] - max(held)
                self.before[at] = [
                    (source, least + (lag if own == max(held) else 0)) for (source, least), own in zip(edges, held, strict=True)
                ]

    def timed(self) -> list[int]:
        """Every moment as late as the latest of its predecessors allows."""
        left = [len(edges) for edges in self.before]
        after: list[list[int]] = [[] for _ in left]
        for at, edges in enumerate(self.before):
            for source, _ in edges:
                after[source].append(at)
        ready = [(self.recorded[at], at) for at, count in enumerate(left) if not count]
        heapq.heapify(ready)
        times = list(self.recorded)
        done = 0
        while ready:
            _, at = heapq.heappop(ready)
            done += 1
            if self.before[at]:
                times[at] = max(times[source] + least for source, least in self.before[at])
            for target in after[at]:
                left[target] -= 1
                if not left[target]:
                    heapq.heappush(ready, (self.recorded[target], target))
        if done < len(left):
            raise CyclicError(f"{len(left) - done} moments wait for one another")
        return times


class Recording:
    """A run with the moments of its kernels and of its host's calls; `again` gives it with some of them longer."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.kernels = run.frame("kernels").reset_index(drop=True)
        self.clocks = clock.estimate(run) if self.kernels["rank"].nunique() > 1 and run.has("collectives") else {}
        calls = [calls_of(run, int(rank)) for rank in self.kernels["rank"].unique()] if run.has("host") else []
        self.calls = pd.concat(calls, ignore_index=True) if calls else pd.DataFrame(columns=["rank", "start", "end", "name"])
        self.launched = self._launched()
        self.instance = instances(run, self.kernels)
        self.inner = copies_of_collectives(self.kernels)

    def common(self, rank: int, moments: Ints) -> Ints:
        """Moments of a rank's clock on the common one."""
        return self.clocks[rank].common_ns(moments) if rank in self.clocks else moments

    def _launched(self) -> list[int | None]:
        """When each kernel was launched, on the common clock; None where it is not known."""
        known = self.run.frame("launches")
        keys = ["rank", "stream", "start_ns", "duration_ns"]
        known = known[known["launch_ns"].notna().to_numpy(dtype=bool)].astype({"stream": str, "launch_ns": "int64"})
        by_key = {}
        for rank, rows in known.groupby("rank"):
            moments = self.common(int(str(rank)), rows["launch_ns"].to_numpy(dtype=np.int64)).tolist()
            by_key.update(zip(rows[keys].itertuples(index=False, name=None), moments, strict=True))
        asked = self.kernels[keys].astype({"stream": str}).itertuples(index=False, name=None)
        return [by_key.get(row) for row in asked]


class Retimed:
    """A recording with some pieces stretched: its moments, what each waits for, and when each comes then (`times`)."""

    def __init__(self, recording: Recording, stretched: Stretched) -> None:
        self.recording, self.stretched, self.moments = recording, stretched, _Moments()
        kernels = recording.kernels
        self.begins, self.ends = [-1] * len(kernels), [-1] * len(kernels)
        self.starts_ns = np.zeros(len(kernels), dtype=np.int64)
        for rank, rows in kernels.groupby("rank"):
            at = rows.index.to_numpy()
            self.starts_ns[at] = recording.common(int(str(rank)), rows["start_ns"].to_numpy(dtype=np.int64))
        self.lengths_ns = kernels["duration_ns"].to_numpy(dtype=np.int64)
        self.calls: dict[int, list[tuple[int, int, int, int]]] = {}
        self.of_memory: set[int] = set()
        for number in range(len(kernels)):
            self.begins[number] = self.moments.add(int(self.starts_ns[number]))
            self.ends[number] = self.moments.add(int(self.starts_ns[number] + self.lengths_ns[number]))
        for rank in kernels["rank"].unique():
            self._host(int(rank))
        for rank, rows in kernels.groupby("rank"):
            self._device(int(str(rank)), rows)
        self._lengths()
        self.moments.keep_lags()
        self._stretch()
        self.times = self.moments.timed()

    def _host(self, rank: int) -> None:
        """The calls of a rank as one line of moments, whichever thread makes them, and what they wait for."""
        known = self.recording.calls
        rows = known[(known["rank"] == rank).to_numpy(dtype=bool)]
        starts = self.recording.common(rank, rows["start"].to_numpy(dtype=np.int64))
        lengths = (rows["end"] - rows["start"]).to_numpy(dtype=np.int64)
        mine = np.flatnonzero((self.recording.kernels["rank"] == rank).to_numpy())
        ends = self.starts_ns[mine] + self.lengths_ns[mine]
        by_end = mine[np.argsort(ends, kind="stable")]
        sorted_ends = np.sort(ends)
        pageable = self._pageable(mine)
        found = []
        for start, length, name in zip(starts.tolist(), lengths.tolist(), rows["name"], strict=True):
            begin, end = self.moments.add(start), self.moments.add(start + length)
            waited = -1
            if length >= (LONG_WAIT_NS if any(word in name for word in WAITS) else LONG_LAUNCH_NS):
                at = int(np.searchsorted(sorted_ends, start + length + 2_000, side="right")) - 1
                if at >= 0 and sorted_ends[at] > start and start + length - sorted_ends[at] <= max(AT_ONCE_NS, length // 50):
                    waited = int(by_end[at])
            if (copy := pageable.get(start, -1)) >= 0 and self.starts_ns[copy] <= start + length <= self._end_ns(copy) + AT_ONCE_NS:
                self.moments.before[end] = [(begin, CALL_NS), (self.ends[copy], start + length - self._end_ns(copy))]
            elif waited >= 0:
                self.moments.before[end] = [(begin, CALL_NS), (self.ends[waited], 0)]
            else:
                self.moments.before[end] = [(begin, length)]
            if OF_MEMORY.search(name):
                self.of_memory.add(end)
            found.append((begin, end, start, start + length))
        self.calls[rank] = found
        line = sorted([(start, begin) for begin, _, start, _ in found] + [(stop, end) for _, end, _, stop in found])
        blocked = {end for _, end, _, _ in found if len(self.moments.before[end]) > 1}
        for (before_ns, before), (now_ns, now) in pairwise(line):
            self.moments.before[now].append((before, 0 if now in blocked else now_ns - before_ns))

    def _pageable(self, mine: Ints) -> dict[int, int]:
        """By their launch the copies of pageable memory: the call returns when its copy is done, or some 10 us before."""
        copies = self.recording.kernels.iloc[mine]
        named = copies["name"].astype(str).str.contains("Pageable").to_numpy(dtype=bool)
        return {launched: int(at) for at in mine[named] if (launched := self.recording.launched[at]) is not None}

    def _device(self, rank: int, rows: pd.DataFrame) -> None:
        """What each kernel of a rank waits for."""
        moments, launched = self.moments, self.recording.launched
        order = rows.index.to_numpy()[np.argsort(self.starts_ns[rows.index.to_numpy()], kind="stable")]
        begins_of_calls = {start: begin for begin, _, start, _ in self.calls.get(rank, [])}
        shift = {number: moment for number in order.tolist() if (moment := launched[number]) is not None}
        late = sorted(int(self.starts_ns[number]) - moment for number, moment in shift.items())
        least = min(LATENCY_NS, max(0, late[len(late) // 100])) if late else 0
        streams, kinds = rows["stream"].astype(str).to_dict(), rows["kind"].astype(str).to_dict()
        last: dict[str, int] = {}
        by_end = sorted(order.tolist(), key=lambda number: int(self.starts_ns[number] + self.lengths_ns[number]))
        ended = np.array([int(self.starts_ns[number] + self.lengths_ns[number]) for number in by_end], dtype=np.int64)
        in_line = sorted(shift, key=lambda number: shift[number])
        sent = self._sent(in_line, kinds)
        for _, of_step in rows.groupby("step"):
            sent.update(self._last_of(of_step, sent))
        for number in order.tolist():
            start = int(self.starts_ns[number])
            if (whole := self.recording.inner.get(number)) is not None:
                moments.before[self.begins[number]] = [(self.ends[whole], start - self._end_ns(whole))]
                continue
            waits = []
            if (before := last.get(streams[number])) is not None:
                # Ends that are told by the microsecond may lie behind the start that waited for them.
                apart = start - int(self.starts_ns[before])
                waits.append((self.ends[before], 0) if self._end_ns(before) <= start else (self.begins[before], apart))
            if number in shift and shift[number] in begins_of_calls:
                waits.append((begins_of_calls[shift[number]], min(least, start - shift[number])))
            others = (*self._other_stream(number, by_end, ended, streams, shift), *sent.get(number, ()))
            waits += [(self.ends[other], 0) for other in others if self._end_ns(other) <= start and other != number]
            moments.before[self.begins[number]] = waits
            last[streams[number]] = number

    def _end_ns(self, number: int) -> int:
        return int(self.starts_ns[number] + self.lengths_ns[number])

    def _other_stream(
        self, number: int, by_end: list[int], ended: Ints, streams: dict[int, str], line: dict[int, int]
    ) -> list[int]:
        """The kernel of another stream that ended last before this one began, if it was not launched later.

        Without launches all that is known is the order on the device, and it is kept; else kernels that follow at once are tied.
        """
        at = int(np.searchsorted(ended, self.starts_ns[number], side="right")) - 1
        while at >= 0 and (number not in line or self.starts_ns[number] - ended[at] <= AT_ONCE_NS):
            other = by_end[at]
            later = other in line and number in line and line[other] > line[number]
            if streams[other] != streams[number] and not later and self.starts_ns[other] < self.starts_ns[number]:
                return [other]
            at -= 1
        return []

    def _sent(self, in_line: list[int], kinds: dict[int, str]) -> dict[int, list[int]]:
        """By communication what was launched before it and has to be computed first."""
        found: dict[int, list[int]] = {}
        before: int | None = None
        for number in in_line:
            if kinds[number] == "communication":
                found[number] = [] if before is None else [before]
            else:
                before = number
        return found

    def _last_of(self, rows: pd.DataFrame, sent: Mapping[int, list[int]]) -> dict[int, list[int]]:
        """The last computing kernel of a step, the update of the weights, with the communication of that step."""
        talks = (rows["kind"] == "communication").to_numpy(dtype=bool)
        computing = rows.index[(rows["kind"] == "computing").to_numpy(dtype=bool)]
        if not len(computing) or not talks.any():
            return {}
        last = int(computing[int(self.starts_ns[computing.to_numpy()].argmax())])
        return {last: [*sent.get(last, ()), *rows.index[talks].tolist()]}

    def _lengths(self) -> None:
        """Kernels last as long as they did; members of one operation end together, a fixed time after the latest came."""
        members: dict[tuple[str, str, int], list[int]] = {}
        for number, instance in enumerate(self.recording.instance):
            if instance is not None:
                members.setdefault(instance, []).append(number)
        self.members = members
        for number, length in enumerate(self.lengths_ns.tolist()):
            self.moments.before[self.ends[number]] = [(self.begins[number], length)]
        for numbers in members.values():
            latest = max(int(self.starts_ns[number]) for number in numbers)
            for number in numbers:
                transfer = max(0, self._end_ns(number) - latest)
                self.moments.before[self.ends[number]] = [(self.begins[other], transfer) for other in numbers]

    def _stretch(self) -> None:
        moments = self.moments
        for number, extra in self.stretched.kernels_ns.items():
            at = self.ends[number]
            moments.before[at] = [(source, least + extra) for source, least in moments.before[at]]
        for rank, moment, extra in self.stretched.pauses:
            self._pause(rank, moment, extra)
        for rank, first, last, factor in self.stretched.host_factor:
            line = {moment for begin, end, _, _ in self.calls.get(rank, []) for moment in (begin, end)}
            for at in line - self.of_memory:
                if first <= moments.recorded[at] < last:
                    moments.before[at] = [
                        (source, round(least * factor) if source in line and least < RUNS_ON_NS else least)
                        for source, least in moments.before[at]
                    ]
        for number in self.stretched.waits:
            self._wait_for(number)

    def _pause(self, rank: int, moment: int, extra: int) -> None:
        """Hold up the next call of the host; without a host the next kernel of every stream, from the moment of the pause."""
        calls = [begin for begin, _, start, _ in self.calls.get(rank, []) if start >= moment]
        if calls:
            at = min(calls, key=lambda one: self.moments.recorded[one])
            # The first call of all waits for the moment at which it would have been.
            before = self.moments.before[at] or [(self.moments.add(self.moments.recorded[at]), 0)]
            self.moments.before[at] = [(source, least + extra) for source, least in before]
            return
        mine = np.flatnonzero((self.recording.kernels["rank"] == rank).to_numpy())
        mine = mine[~np.isin(mine, list(self.recording.inner))]
        streams = self.recording.kernels["stream"].astype(str).to_numpy()
        held = {streams[at]: at for at in mine[np.argsort(-self.starts_ns[mine], kind="stable")] if self.starts_ns[at] >= moment}
        began = max((at for at in mine if self.starts_ns[at] < moment), key=lambda at: int(self.starts_ns[at]), default=None)
        if began is None:
            stop = self.moments.add(moment + extra)
        else:
            stop = self.moments.add(moment, (self.begins[began], moment - int(self.starts_ns[began]) + extra))
        for at in held.values():
            self.moments.before[self.begins[at]].append((stop, int(self.starts_ns[at]) - moment))

    def _wait_for(self, number: int) -> None:
        """Let the next call after the launch of a kernel begin when that kernel has ended."""
        launched = self.recording.launched[number]
        rank = int(self.recording.kernels["rank"].iloc[number])
        if launched is None:
            return
        following = [(start, begin) for begin, _, start, _ in self.calls[rank] if start > launched]
        if following:
            self.moments.before[min(following)[1]].append((self.ends[number], CALL_NS))
