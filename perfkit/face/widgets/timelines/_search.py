"""Search in a timeline: every event whose name matches, counted, marked and walked from one to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.texts import told as in_language
from perfkit.face.widgets.timelines.data import Timeline, Unit
from perfkit.face.widgets.timelines.events import Ints, searchable, slice_of, whole
from perfkit.record import tiles

MAX_NAMES = 2000
"""Names of hits that are told to the page, so that it lights them up."""
MAX_PATTERN = 300


@dataclass(kw_only=True)
class Search:
    """The hits so far: arrays in the order of start; `done` once all units were looked through."""

    text: str
    starts: Ints = field(default_factory=lambda: np.array([], dtype=np.int64))
    units: Ints = field(default_factory=lambda: np.array([], dtype=np.int64))
    lanes: Ints = field(default_factory=lambda: np.array([], dtype=np.int64))
    names: dict[str, None] = field(default_factory=dict)
    problem: str = ""
    done: bool = False

    def add(self, unit: Unit, rows: pd.DataFrame) -> None:
        """Take over the hits among some events."""
        self.names.update(dict.fromkeys(rows["name"].unique().tolist()))
        starts = np.concatenate([self.starts, rows["start_ns"].to_numpy()])
        order = np.argsort(starts, kind="stable")
        self.starts = starts[order]
        self.units = np.concatenate([self.units, np.full(len(rows), unit.id, dtype=np.int64)])[order]
        self.lanes = np.concatenate([self.lanes, rows["lane"].to_numpy()])[order]


def matcher(text: str) -> tuple[Callable[[str], bool], str]:
    """Whether a name matches a regular expression, or holds the text if it is none; and what is wrong with the expression."""
    lowered = text.lower()
    if len(text) > MAX_PATTERN or not re.search(r"[\\^$.|?*+()\[\]{}]", text):
        return lambda name: lowered in name.lower(), ""
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except re.error as error:
        return lambda name: lowered in name.lower(), f"no regular expression (character {error.pos}); searched as text: "
    return lambda name: pattern.search(name) is not None or lowered in name.lower(), ""


def searched(timeline: Timeline, text: str, tell: Callable[[Search], None], wanted: Callable[[], bool]) -> Search:
    """All hits; `tell` is called after every part of the events, and the search ends early when it is not `wanted` any more."""
    matches, problem = matcher(text)
    search = Search(text=text, problem=problem)
    known: dict[str, bool] = {}
    for unit in searchable(timeline):
        for rows in whole(unit, unit.lanes, *_all_of(unit)):
            if not wanted():
                return search
            codes, names = pd.factorize(rows["name"].to_numpy())
            fits = np.array([known.setdefault(name, matches(name)) if name not in known else known[name] for name in names], bool)
            hits = rows[fits[codes]]
            if len(hits):
                search.add(unit, hits)
                tell(search)
    search.done = True
    tell(search)
    return search


def _all_of(unit: Unit) -> tuple[int, int]:
    return min(lane.start_ns for lane in unit.lanes), max(lane.end_ns for lane in unit.lanes) + 1


def marks(timeline: Timeline, search: Search, message: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """The hits of a window, at most one a pixel and lane: unit, lane and start."""
    start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
    low, high = np.searchsorted(search.starts, [start_ns, end_ns])
    pixel_ns = max(1, (end_ns - start_ns) // max(1, int(message["pixels"])))
    keys = np.stack([search.units[low:high], search.lanes[low:high], search.starts[low:high] // pixel_ns])
    _, first = np.unique(keys, axis=1, return_index=True)
    at = low + np.sort(first)
    columns = search.units[at].tolist(), search.lanes[at].tolist(), search.starts[at].tolist()
    return [(unit, lane, timeline.offset(start)) for unit, lane, start in zip(*columns, strict=True)]


def following(timeline: Timeline, search: Search, message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The hit after (or before) a moment, from the other end when there is no more."""
    if not len(search.starts):
        return None
    at_ns = timeline.base_ns + round(message["at"])
    same = (search.starts == at_ns) & (search.units == int(message.get("unit", -1)))
    onward = message["direction"] >= 0
    if same.any():
        place = int(np.flatnonzero(same)[-1 if onward else 0]) + (1 if onward else -1)
    else:
        place = int(np.searchsorted(search.starts, at_ns)) - (0 if onward else 1)
    place %= len(search.starts)
    unit, lane = timeline.unit(int(search.units[place])), int(search.lanes[place])
    start_ns = int(search.starts[place])
    rows = tiles.events(unit.source, [unit.lanes[lane]], start_ns, start_ns + 1)
    row: Any = rows[(rows["start_ns"] == start_ns).to_numpy()].iloc[0].to_dict()
    return slice_of(timeline, unit, row, lane)


def told(search: Search) -> dict[str, Any]:
    """What the page learns of a search."""
    return {
        "type": "hits",
        "text": search.text,
        "total": len(search.starts),
        "names": list(search.names)[:MAX_NAMES],
        "problem": in_language(f"{search.problem}{len(search.starts)} hits") if search.problem else "",
        "done": search.done,
    }
