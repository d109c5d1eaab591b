"""Address of a timeline, which a link carries to another browser.

A unit is "rank|process|thread", pinned ones a line each, and a slice "rank|process|thread|lane|start". What a link
from elsewhere asks to show is "rank|stream|start|name", or a rank alone, whose lanes are then pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines.data import Timeline, safely
from perfkit.face.widgets.timelines.events import WORK, Slice, slice_called, walked

_MAX_DIGITS = 10


def address_of(timeline: Timeline, chosen: Mapping[str, Any] | None) -> str:
    """The address of a slice that the page names by unit, lane and start in ns; the empty text for none."""
    if not chosen:
        return ""
    lane = 0 if counting.is_counter(chosen["unit"]) else int(chosen["lane"])
    return f"{_lane_of(timeline, chosen['unit'])}|{lane}|{int(chosen['start'])}"


def address_of_lanes(timeline: Timeline, units: Sequence[Any]) -> str:
    """The address of several lanes, a line each."""
    return "\n".join(_lane_of(timeline, unit) for unit in units)


def lanes_at(timeline: Timeline, address: str) -> list[int | str]:
    """The units that an address of lanes names, in its order; those that are not there are left out."""
    lanes = dict.fromkeys(address.split("\n"))
    safely(timeline, [rank for rank in map(rank_in, lanes) if rank in timeline.run.ranks])
    known: dict[str, int | str] = {_named(unit.rank, unit.process, unit.thread): unit.id for unit in timeline.units}
    for unit in timeline.counters:
        known[_named(unit.rank, counting.COUNTER, unit.series.name)] = unit.id
    return [known[lane] for lane in lanes if lane in known]


def _lane_of(timeline: Timeline, unit: Any) -> str:
    if counting.is_counter(unit):
        found = counting.counter(timeline.counters, unit)
        return _named(found.rank, counting.COUNTER, found.series.name)
    lane = timeline.unit(unit)
    return _named(lane.rank, lane.process, lane.thread)


def _named(rank: int, process: str, thread: str) -> str:
    return f"{rank}|{process}|{thread}"


def rank_in(address: str) -> int | None:
    """The rank of the slice or lane that an address names; None if it names none."""
    first = address.partition("|")[0]
    return int(first) if first.isdecimal() and len(first) < _MAX_DIGITS else None


def slice_at(timeline: Timeline, address: str) -> Slice | None:
    """The slice that an address names; None if there is none such."""
    parts = address.split("|")
    if len(parts) < 5 or not all(part.lstrip("-").isdecimal() for part in (parts[0], *parts[-2:])):
        return None
    rank, process, thread = int(parts[0]), parts[1], "|".join(parts[2:-2])
    safely(timeline, [rank])
    if process == counting.COUNTER:
        return _sample_at(timeline, rank, thread, int(parts[-1]))
    for unit in timeline.units:
        if (unit.rank, unit.process, unit.thread) == (rank, process, thread) and 0 <= int(parts[-2]) < len(unit.lanes):
            start = timeline.offset(int(parts[-1]))
            wanted = {"mode": "nearest", "unit": unit.id, "lane": int(parts[-2]), "start": start, "direction": 1, "name": ""}
            found: Slice | None = walked(timeline, wanted)["slice"]
            return found
    return None


def asked_for(timeline: Timeline, address: str) -> tuple[Slice | None, list[int | str]]:
    """The slice and the lanes that a link from elsewhere asks to show; none of both if the rank is not there."""
    rank, (_, *rest) = rank_in(address), address.split("|", 3)
    if rank is None:
        return None, []
    safely(timeline, [rank] if rank in timeline.run.ranks else [])
    if len(rest) == 3 and rest[1].lstrip("-").isdecimal():
        found = slice_called(timeline, rank, rest[0], int(rest[1]), rest[2])
        if found is not None:
            return found, []
    return None, [unit.id for unit in timeline.units if unit.rank == rank and unit.process in WORK]


def _sample_at(timeline: Timeline, rank: int, name: str, moment_ns: int) -> Slice | None:
    for unit in timeline.counters:
        if (unit.rank, unit.series.name) == (rank, name):
            wanted = {"mode": "nearest", "start": moment_ns - timeline.base_ns, "direction": 1}
            found: Slice | None = counting.walked(unit, timeline.base_ns, wanted)["slice"]
            return found
    return None
