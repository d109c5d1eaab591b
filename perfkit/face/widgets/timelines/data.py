"""Units of a timeline: the tree rank, process, stream or thread, with what the page needs to draw its lanes.

All moments are int64 ns on the common clock. What goes to a browser are differences from `Timeline.base_ns` as float64, which
hold 1 ns over 104 days; the base itself goes as text, because a float64 of an epoch time cannot hold 1 ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from perfkit.core import clock
from perfkit.core.errors import NotMeasuredError, PerfkitError
from perfkit.core.run import Run
from perfkit.core.texts import joined, say, t, told
from perfkit.core.units import format_count
from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines import _ranks as by_rank
from perfkit.face.widgets.timelines._modules import module_run
from perfkit.face.widgets.timelines._overlap import COMPUTING, EXPOSED, FREE, HIDDEN, STATES, overlap_run
from perfkit.record import tiles
from perfkit.record.events.graph import causal_graph
from perfkit.record.tiles import Lane

OVERLAP, MODULES = "overlap", "modules"
MADE = (OVERLAP, MODULES)
"""The processes that are made of recorded events and are none themselves."""
PROCESSES = {
    "device": "Device",
    "communication": "Communication",
    OVERLAP: "Overlap analysis",
    MODULES: "Modules",
    "host": "Host",
    counting.PACE: "Launch queue and frequency",
    counting.COUNTER: "Counters",
    counting.SILENT: "Counters that stay 0",
}
"""The processes of a rank in the order in which they are shown, with their headings."""
MAX_FIRST_RANKS = 4
MAX_STEPS = 5000
_PIXELS = 1000
"""Columns in which the longest slice is looked for: one that is worth a word is wider than one of them."""
_WORTH_A_WORD = 0.1
"""Share of the time of its kind from which the longest slice is one to look at; below it there are many like it."""
GRID_NS = 512_000 << 30
"""The base lies on the grid of the widest tiles, so that tiles of every width begin at a multiple of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A stream, a thread or a state of the overlap analysis, with a lane for each depth; `source` is the run that has its tiles."""

    id: int
    rank: int
    process: str
    thread: str
    lanes: tuple[Lane, ...]
    source: Run

    @property
    def label(self) -> str:
        """How the unit is called in the tree."""
        if self.process in MADE:
            return self.thread
        word = {"device": "stream", "host": "thread", "communication": "group"}[self.process]
        return f"{word} {self.thread}" if self.thread else f"no {word} recorded"


@dataclass(kw_only=True)
class Timeline:
    """The units of a run that are open so far; ranks are opened when somebody looks at them."""

    run: Run
    base_ns: int
    units: list[Unit] = field(default_factory=list)
    counters: list[counting.CounterUnit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    opened: set[int] = field(default_factory=set)
    clocks: dict[int, clock.Clock] = field(default_factory=dict)
    made: Mapping[str, Run] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)

    def open_ranks(self, ranks: Iterable[int]) -> None:
        """Add the units of some ranks; making tiles that are not there yet takes about 1 s a million events."""
        with self.lock:
            for rank in [rank for rank in ranks if rank in self.run.ranks and rank not in self.opened]:
                self.opened.add(rank)
                for process, thread, lanes, source in self._threads(rank):
                    self.units.append(
                        Unit(id=len(self.units), rank=rank, process=process, thread=thread, lanes=tuple(lanes), source=source)
                    )
                self._open_counters(rank)

    def _open_counters(self, rank: int) -> None:
        try:
            self.counters += counting.counter_units(self.run, rank, len(self.counters))
        except PerfkitError as error:  # the lanes are worth showing without them
            self.problems.append(f"The counters of rank {rank} cannot be read: {error}")

    def _threads(self, rank: int) -> list[tuple[str, str, list[Lane], Run]]:
        found: dict[tuple[str, str], tuple[list[Lane], Run]] = {}
        for lane in tiles.lanes(self.run, ranks=[rank]):
            found.setdefault((lane.process, lane.thread), ([], self.run))[0].append(lane)
        for process, source in self.made.items():
            if process == MODULES or any(known == "device" for known, _ in found):
                for lane in tiles.lanes(source, ranks=[rank]):
                    found.setdefault((process, lane.thread), ([], source))[0].append(lane)
        order = list(PROCESSES)
        states = {(OVERLAP, state): place for place, state in enumerate(STATES)}
        ordered = sorted(found.items(), key=lambda item: (order.index(item[0][0]), states.get(item[0], 0)))
        return [(process, thread, lanes, source) for (process, thread), (lanes, source) in ordered]

    def unit(self, number: object) -> Unit:
        """The unit of a number; raises LookupError for any other."""
        if not isinstance(number, int) or not 0 <= number < len(self.units):
            raise LookupError(f"there is no unit {number!r}")
        return self.units[number]

    def recorded_ns(self, rank: int, moment_ns: int) -> int:
        """The moment on the lanes of a rank that is a common one: they are aligned by an offset, and its clock may drift."""
        return by_rank.recorded_ns(self.run, rank, self.clocks.get(rank), moment_ns)

    def offset(self, moment_ns: int) -> float:
        """A moment as the browser has it."""
        return float(moment_ns - self.base_ns)

    @property
    def span_ns(self) -> tuple[int, int]:
        """From the first start to the last end of all that is open."""
        lanes = [lane for unit in self.units for lane in unit.lanes]
        return min(lane.start_ns for lane in lanes), max(lane.end_ns for lane in lanes)


def open_timeline(run: Run, ranks: Sequence[int] = ()) -> Timeline:
    """The timeline of a run with some ranks open, the first four by default. Raises NotMeasuredError if it holds no times."""
    timeline = Timeline(run=run, base_ns=0, made=made_runs(run), clocks=_clocks(run))
    chosen = [rank for rank in ranks if rank in run.ranks]
    for rank in chosen or run.ranks:
        timeline.open_ranks([rank])
        if timeline.units and not chosen and len(timeline.opened) >= MAX_FIRST_RANKS:
            break
    if not timeline.units:
        raise NotMeasuredError(
            say("when anything ran: {run} holds no event with a start time", run=run.name),
            how_to_collect="record a profile of two to four steps; page 10 writes the lines for your framework",
        )
    timeline.base_ns = timeline.span_ns[0] // GRID_NS * GRID_NS
    return timeline


def made_runs(run: Run) -> dict[str, Run]:
    """The runs whose lanes are made of those of a run, by process."""
    found = {OVERLAP: overlap_run(run), MODULES: module_run(run)}
    return {process: made for process, made in found.items() if made is not None}


def _clocks(run: Run) -> dict[int, clock.Clock]:
    if len(run.clock) < 2:
        return {}
    return dict(causal_graph(run).clocks)


def described(timeline: Timeline) -> dict[str, Any]:
    """What the page needs before it asks for tiles: ranks, units, steps, what was lost; moments as offsets from `base_ns`."""
    start_ns, end_ns = timeline.span_ns
    run, (first, *more) = timeline.run, sentences(timeline)
    return {
        "base_ns": str(timeline.base_ns),
        "start": timeline.offset(start_ns),
        "end": timeline.offset(max(end_ns, start_ns + 1)),
        "ranks": by_rank.described(
            run,
            timeline.clocks,
            _ends_ns(timeline),
            opened=timeline.opened,
            base_ns=timeline.base_ns,
            span_ns=end_ns - start_ns,
        ),
        "processes": {process: t(heading) for process, heading in PROCESSES.items()},
        "units": [*(_unit(unit) for unit in timeline.units), *map(counting.described, timeline.counters)],
        "steps": _steps(timeline),
        "dropped": [{"what": told(lost.what), "count": lost.count, "file": lost.file} for lost in run.dropped],
        "lost": by_rank.num_events(_lost(run)),
        "sentence": first,
        "notes": [*more, *map(told, _notes(timeline))],
    }


def _lost(run: Run) -> dict[str, int]:
    lost: dict[str, int] = {}
    for dropped in run.dropped:
        lost[dropped.what] = lost.get(dropped.what, 0) + dropped.count
    return lost


def _ends_ns(timeline: Timeline) -> dict[int, int]:
    """Where the events of each open rank end."""
    ends: dict[int, int] = {}
    for unit in timeline.units:
        ends[unit.rank] = max(ends.get(unit.rank, unit.lanes[0].end_ns), *(lane.end_ns for lane in unit.lanes))
    return ends


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "id": unit.id,
        "rank": unit.rank,
        "process": unit.process,
        "label": told(unit.label),
        "depths": [lane.depth for lane in unit.lanes],
        "count": sum(lane.count for lane in unit.lanes),
        "busy_ns": float(sum(lane.busy_ns for lane in unit.lanes)),
    }


def _steps(timeline: Timeline) -> list[dict[str, Any]]:
    """The steps of the first open rank that states when its steps began."""
    for rank in sorted(timeline.opened):
        rows = timeline.run.frame("steps", ranks=[rank])
        rows = rows[rows["start_ns"].notna()].sort_values("start_ns").head(MAX_STEPS)
        if len(rows):
            shift = timeline.run.clock.get(rank, 0)
            starts, lengths = rows["start_ns"].astype("int64") + shift, rows["duration_ns"].astype("int64")
            return [
                {"step": int(step), "rank": rank, "start": timeline.offset(start), "end": timeline.offset(start + length)}
                for step, start, length in zip(rows["step"].tolist(), starts.tolist(), lengths.tolist(), strict=True)
            ]
    return []


_SPENT = {
    COMPUTING: "Rank {rank} spends {share} of its time computing without communication, {ns} of {total_ns}.",
    HIDDEN: "Rank {rank} spends {share} of its time in communication behind computing, {ns} of {total_ns}.",
    EXPOSED: "Rank {rank} spends {share} of its time in exposed communication, {ns} of {total_ns}.",
    FREE: "Rank {rank} is free for {share} of its time, {ns} of {total_ns}.",
}
"""What is said of a rank by the state of its device that lasts longest; its time is that from its first to its last kernel."""


def sentences(timeline: Timeline) -> tuple[str, ...]:
    """The answer of the page in words: what the device of the first rank did most, what else, and how much is shown."""
    start_ns, end_ns = timeline.span_ns
    num_events = sum(lane.count for unit in timeline.units if unit.process not in MADE for lane in unit.lanes)
    opened = sorted(timeline.opened)
    shown = {"count": format_count(num_events), "opened": str(len(opened)), "ranks": str(len(timeline.run.ranks))}
    recorded = say("{count} events of {opened} of {ranks} ranks over {span_ns}.", **shown, span_ns=end_ns - start_ns)
    of_first = [unit for unit in timeline.units if unit.process == OVERLAP and unit.rank == opened[0]]
    parts = [(sum(lane.busy_ns for lane in unit.lanes), unit.label) for unit in of_first]
    total = sum(amount for amount, _ in parts)
    if not total:
        return (told(recorded),)
    (most_ns, most), *others = sorted(parts, reverse=True)
    first = say(_SPENT[most], rank=str(opened[0]), share=most_ns / total, ns=most_ns, total_ns=total)
    listed = joined((say("{part} {ns} ({share})", part=part, ns=amount, share=amount / total) for amount, part in others), ", ")
    rest = [say("The rest: {others}.", others=listed)] if others else []
    if most != COMPUTING and (longest := _longest(timeline, next(unit for unit in of_first if unit.label == most))):
        recorded = say("The longest, {longest_ns}, begins {from_ns} into step {step}. {recorded}", recorded=recorded, **longest)
        return told(first), told(recorded), *map(told, rest)  # next to what it is the longest of
    return told(first), *map(told, rest), told(recorded)


def _longest(timeline: Timeline, unit: Unit) -> dict[str, Any]:
    """The longest slice of a unit and where in which step it begins, as a sentence names them; empty where no step has it."""
    rows = tiles.window(unit.source, unit.lanes, *timeline.span_ns, _PIXELS)
    single = rows[rows["count"] == 1]
    if single.empty:
        return {}
    row = single.iloc[int((single["end_ns"] - single["start_ns"]).to_numpy().argmax())]
    at = timeline.offset(int(row["start_ns"]))
    step = next((step for step in _steps(timeline) if step["rank"] == unit.rank and step["start"] <= at < step["end"]), None)
    longest_ns = int(row["end_ns"] - row["start_ns"])
    if step is None or longest_ns < _WORTH_A_WORD * sum(lane.busy_ns for lane in unit.lanes):
        return {}
    return {"longest_ns": longest_ns, "from_ns": round(at - step["start"]), "step": str(step["step"])}


def _notes(timeline: Timeline) -> tuple[str, ...]:
    run, notes = timeline.run, []
    silent = sorted(timeline.opened - {unit.rank for unit in timeline.units})
    if silent:
        notes.append(f"No event of rank {', '.join(map(str, silent))} has a start time.")
    unaligned = [rank for rank in timeline.opened if rank not in run.clock]
    if len(timeline.opened) > 1 and unaligned:
        notes.append(
            "The clocks of the ranks could not be aligned: no collectives that they ran together were recorded with times."
        )
    if run.dropped:
        num_lost = by_rank.num_events(_lost(run))
        lost = {0: "Parts", 1: "1 item"}.get(num_lost, f"{format_count(num_lost)} items")
        notes.append(f"{lost} of this recording could not be read; page 10 says what. Gaps below may come from that.")
    return (*notes, *timeline.problems)


def safely(timeline: Timeline, ranks: Sequence[int]) -> str:
    """Open more ranks; the sentence that says why it did not work, or the empty text."""
    try:
        timeline.open_ranks(ranks)
    except PerfkitError as error:
        return str(error)
    return ""
