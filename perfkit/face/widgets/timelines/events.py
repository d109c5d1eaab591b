"""Events of a timeline one by one: walked in order, searched and summed without ever holding more than a part of them.

A slice goes to the browser as a dict: `unit`, `lane` (its index in the unit), `start` and `end` (ns from the base), `name`, `kind`,
`count` and `busy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.core.texts import told
from perfkit.face.widgets.timelines.data import MADE, Timeline, Unit
from perfkit.record import tiles
from perfkit.record.tiles import Lane

PART = 300_000
"""Events held at a time."""
WORK = ("device", "communication")
"""Processes of the lanes on which the work of a rank is drawn."""
_FIRST_NS = 64_000

Slice = dict[str, Any]
Ints = npt.NDArray[np.int64]


def forward(unit: Unit, lanes: Sequence[Lane], start_ns: int, end_ns: int | None = None) -> Iterator[pd.DataFrame]:
    """Events that start at `start_ns` or later (before `end_ns`), in parts that grow; each part in the order of start."""
    last = max(lane.end_ns for lane in lanes) + 1 if end_ns is None else end_ns
    at, size = max(start_ns, min(lane.start_ns for lane in lanes)), _FIRST_NS
    while at < last:
        until = min(at + size, last)
        rows = tiles.events(unit.source, lanes, at, until)
        rows = rows[(rows["start_ns"] >= at).to_numpy()]
        if len(rows):
            yield rows.sort_values("start_ns", kind="stable")
        at, size = until, min(size * 4, _part_ns(lanes))


def backward(unit: Unit, lanes: Sequence[Lane], end_ns: int) -> Iterator[pd.DataFrame]:
    """Events that start before `end_ns`, in parts that grow; the last one first."""
    first = min(lane.start_ns for lane in lanes)
    until, size = min(end_ns, max(lane.end_ns for lane in lanes) + 1), _FIRST_NS
    while until > first:
        at = max(until - size, first)
        rows = tiles.events(unit.source, lanes, at, until)
        rows = rows[(rows["start_ns"] >= at).to_numpy()]
        if len(rows):
            yield rows.sort_values("start_ns", kind="stable", ascending=False)
        until, size = at, min(size * 4, _part_ns(lanes))


def whole(unit: Unit, lanes: Sequence[Lane], start_ns: int, end_ns: int) -> Iterator[pd.DataFrame]:
    """Events that touch a window, each once, in parts of about `PART`."""
    start_ns = max(start_ns, min(lane.start_ns for lane in lanes))
    end_ns = min(end_ns, max(lane.end_ns for lane in lanes) + 1)
    at, size = start_ns, _part_ns(lanes)
    while at < end_ns:
        until = min(at + size, end_ns)
        rows = tiles.events(unit.source, lanes, at, until)
        if at > start_ns:
            rows = rows[(rows["start_ns"] >= at).to_numpy()]
        if len(rows):
            yield rows
        at = until


def _part_ns(lanes: Sequence[Lane]) -> int:
    """How long a part is, so that it holds about `PART` events where they lie evenly."""
    span = max(lane.end_ns for lane in lanes) - min(lane.start_ns for lane in lanes) + 1
    return max(1, -(-span * PART // max(PART, sum(lane.count for lane in lanes))))


def slice_of(timeline: Timeline, unit: Unit, row: Mapping[str, Any], lane: int | None = None) -> Slice:
    """A row of events as the browser has it; `lane` where the events were asked for of one lane only."""
    return {
        "unit": unit.id,
        "lane": int(row["lane"]) if lane is None else lane,
        "start": timeline.offset(int(row["start_ns"])),
        "end": timeline.offset(int(row["end_ns"])),
        "name": str(row["name"]),
        "kind": str(row["kind"]),
        "count": 1,
        "busy": float(row["busy_ns"]),
    }


def walked(timeline: Timeline, message: Mapping[str, Any]) -> dict[str, Any]:
    """Where a step leads: along the lane, to the nearest slice of another lane, to the next or longest of the same name."""
    unit, mode = timeline.unit(message["unit"]), message["mode"]
    start_ns = timeline.base_ns + round(message["start"])
    onward = message["direction"] >= 0
    if mode == "longest":
        found = _longest(timeline, unit, str(message["name"]))
    elif mode == "name":
        found = _next_of_name(timeline, unit, str(message["name"]), start_ns, onward)
    else:
        found = _in_lane(timeline, unit, int(message["lane"]), start_ns, onward, nearest=mode == "nearest")
    ends = {"longest": "There is no such slice.", "name": "No other slice of this name on this lane."}
    text = ends.get(mode, "This is the last slice of the lane." if onward else "This is the first slice of the lane.")
    return {"type": "found", "slice": found, "zoom": mode in ("longest", "name"), "text": told(text)}


def _in_lane(timeline: Timeline, unit: Unit, lane: int, start_ns: int, onward: bool, *, nearest: bool) -> Slice | None:
    lanes = [unit.lanes[lane]]
    after = next(forward(unit, lanes, start_ns + (not nearest)), None) if onward or nearest else None
    before = next(backward(unit, lanes, start_ns), None) if nearest or not onward else None
    rows: list[Any] = [frame.iloc[0].to_dict() for frame in (after, before) if frame is not None]
    if not rows:
        return None
    closest = min(rows, key=lambda row: max(row["start_ns"] - start_ns, start_ns - row["end_ns"]))
    return slice_of(timeline, unit, closest, lane)


def _next_of_name(timeline: Timeline, unit: Unit, name: str, start_ns: int, onward: bool) -> Slice | None:
    parts = forward(unit, unit.lanes, start_ns + 1) if onward else backward(unit, unit.lanes, start_ns)
    for rows in parts:
        same = rows[(rows["name"] == name).to_numpy()]
        if len(same):
            row: Any = same.iloc[0].to_dict()
            return slice_of(timeline, unit, row)
    return None


def _longest(timeline: Timeline, like: Unit, name: str) -> Slice | None:
    """The longest event of a name on all open ranks; of all names if there is none."""
    best: tuple[int, Unit, Mapping[str, Any]] | None = None
    for unit in alike(timeline, like):
        for rows in whole(unit, unit.lanes, *_span(unit)):
            chosen = rows[(rows["name"] == name).to_numpy()] if name else rows
            if len(chosen):
                row: Any = chosen.iloc[int(chosen["busy_ns"].to_numpy().argmax())].to_dict()
                if best is None or row["busy_ns"] > best[0]:
                    best = (int(row["busy_ns"]), unit, row)
    return None if best is None else slice_of(timeline, best[1], best[2])


def alike(timeline: Timeline, like: Unit) -> list[Unit]:
    """The units of the same process on all open ranks."""
    return [unit for unit in timeline.units if unit.process == like.process]


def searchable(timeline: Timeline) -> list[Unit]:
    """The units that hold recorded events, not sums of them."""
    return [unit for unit in timeline.units if unit.process not in MADE]


def _span(unit: Unit) -> tuple[int, int]:
    return min(lane.start_ns for lane in unit.lanes), max(lane.end_ns for lane in unit.lanes) + 1


def placed(unit: Unit, starts_ns: Iterable[int], names: Iterable[str]) -> list[int | None]:
    """In which lane of a unit the events of some starts and names lie; None where there is none at that moment."""
    wanted = list(zip(starts_ns, names, strict=True))
    if not wanted:
        return []
    known: dict[tuple[int, str], int] = {}
    by_start: dict[int, int] = {}
    targets = np.array(sorted({start for start, _ in wanted}), dtype=np.int64)
    for rows in whole(unit, unit.lanes, int(targets[0]), int(targets[-1]) + 1):
        hits = rows[np.isin(rows["start_ns"].to_numpy(), targets)]
        for start, name, lane in zip(hits["start_ns"].tolist(), hits["name"].tolist(), hits["lane"].tolist(), strict=True):
            known[start, name] = lane
            by_start[start] = max(lane, by_start.get(start, 0))
    return [known.get((start, name), by_start.get(start)) for start, name in wanted]


def column(run: Run, table: str, rank: int, name: str) -> pd.Series:
    """One column of a table of one rank; its rows come in the same order for every column."""
    return run.frame(table, ranks=[rank], columns=[name])[name]


def cells(run: Run, table: str, rank: int, positions: Ints, names: Sequence[str]) -> pd.DataFrame:
    """Some rows of a table, read column by column so that a table of any size costs one column at a time."""
    return pd.DataFrame({name: column(run, table, rank, name).iloc[positions].to_numpy(dtype=object) for name in names})


def slice_called(timeline: Timeline, rank: int, stream: str, start_ns: int, name: str) -> Slice | None:
    """The slice of a name that starts at a moment, on whichever lane of its rank it is drawn; `stream` may be empty."""
    for unit in timeline.units if name else ():
        if unit.rank == rank and unit.process in WORK and stream in ("", unit.thread):
            lanes = placed(unit, [start_ns], [name])
            if lanes[0] is not None:
                wanted = {"mode": "nearest", "unit": unit.id, "lane": lanes[0], "start": timeline.offset(start_ns)}
                found: Slice | None = walked(timeline, {**wanted, "direction": 1, "name": ""})["slice"]
                return found
    return None
