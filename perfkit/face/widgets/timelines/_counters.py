"""Counters of a timeline: numbers over time as units of their own, drawn as steps, walked sample by sample, summed over a range.

A counter has an id of its own (`c3`). To the page a sample is a slice: it begins at its moment, ends at the next, and its name is
its value. Their tiles lie on the grid of those of slices (`_timeline_tiles`), a step a bucket at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core import quantity
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run, empty
from perfkit.core.texts import say, told
from perfkit.core.units import THIN_SPACE, format_bytes, significant
from perfkit.explain import frequency
from perfkit.explain.queue_length import queue_lengths
from perfkit.face.widgets.table import Table, table_content
from perfkit.face.widgets.timelines._grid import BUCKETS, place_of, width_ns
from perfkit.record import counters
from perfkit.record.counters import Series

PACE, COUNTER, SILENT = "pace", "counter", "silent"
"""The processes of counters that say how the device was fed and clocked, of others that change, and of those that stay 0."""
_BYTES = "B"
_QUEUE = "launched, not begun: "


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterUnit:
    """A counter of a rank, its samples on the common clock."""

    id: str
    series: Series

    @property
    def rank(self) -> int:
        """The rank that it is of."""
        return self.series.rank

    @property
    def process(self) -> str:
        """Under which heading it is shown."""
        if not self.series.value.any():
            return SILENT
        return PACE if self.series.name.startswith(_QUEUE) or frequency.NAME.search(self.series.name) else COUNTER

    @property
    def range(self) -> tuple[float, float]:
        """What the lane spans: from 0, or below it, to the largest value."""
        return min(0.0, float(self.series.value.min())), max(0.0, float(self.series.value.max()))


def counter_units(run: Run, rank: int, first: int) -> list[CounterUnit]:
    """The counters of a rank, numbered from `first`."""
    shift = run.clock.get(rank, 0)
    known = [*counters.kept_series(run, rank, _queues, "-queues"), *counters.series(run, rank=rank)]
    return [
        CounterUnit(id=f"c{number}", series=replace(found, time_ns=found.time_ns + shift))
        for number, found in enumerate(known, first)
    ]


def _queues(run: Run, rank: int) -> pd.DataFrame:
    """How many executions were launched and had not begun, by stream."""
    try:
        rows = queue_lengths(run, rank)
    except NotMeasuredError:
        return empty("counters").astype({"name": "category", "unit": "category"})
    streams = ("stream " + rows["stream"].astype("object")).replace("stream ", "no stream")
    names = (_QUEUE + streams).astype("category")
    rows = rows.rename(columns={"length": "value"}).assign(name=names, unit=pd.Categorical([""] * len(rows)))
    return rows.astype({"value": "float64"}).loc[:, ["rank", "name", "unit", "time_ns", "value"]]


def is_counter(number: object) -> bool:
    """Whether the id of a unit is that of a counter."""
    return isinstance(number, str)


def counter(known: Sequence[CounterUnit], number: object) -> CounterUnit:
    """The counter of an id; raises LookupError for any other."""
    text = str(number)
    if not text.startswith("c") or not text[1:].isdecimal() or int(text[1:]) >= len(known):
        raise LookupError(f"there is no counter {number!r}")
    return known[int(text[1:])]


def described(unit: CounterUnit) -> dict[str, Any]:
    """What the page needs of a counter before it asks for its tiles."""
    low, high = unit.range
    most, least = written(high, unit.series.unit), written(low, unit.series.unit)
    span = say("up to {most}", most=most) if low == 0 else say("{least} to {most}", least=least, most=most)
    return {
        "id": unit.id,
        "rank": unit.rank,
        "process": unit.process,
        "label": told(unit.series.name),
        "depths": [0],
        "count": len(unit.series.value),
        "busy_ns": 0.0,
        "counter": {"low": low, "high": high, "unit": unit.series.unit, "text": told(span)},
    }


def written(value: float, unit: str) -> str:
    """A value with its unit; a whole number of nothing in particular is a count."""
    if unit == _BYTES:
        return format_bytes(value)
    return f"{significant(value)}{THIN_SPACE}{unit}" if unit else quantity.text("value", float(value))


def reply(known: Sequence[CounterUnit], base_ns: int, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The tiles `first` to `last` of some counters: a header and the bytes of times, values, lowest, highest and counts.

    Raises ValueError or LookupError for a request that no page of ours makes.
    """
    width, first, last = place_of(request)
    size, begin = width_ns(width), 0
    index: list[dict[str, Any]] = []
    parts: list[counters.Steps] = []
    offsets = []
    for unit in [counter(known, number) for number in request["units"]]:
        for number in range(first, last + 1):
            start_ns = base_ns + number * size
            steps = counters.window(unit.series, start_ns, start_ns + size, BUCKETS)
            before = None if math.isnan(steps.before) else steps.before
            count = len(steps.time_ns)
            index.append(
                {"unit": unit.id, "index": number, "base_ns": str(start_ns), "begin": begin, "count": count, "before": before}
            )
            parts.append(steps)
            offsets.append(steps.time_ns - start_ns)
            begin += count
    columns = [offsets, *([getattr(part, name) for part in parts] for name in ("value", "low", "high", "count"))]
    return {"width": width, "tiles": index}, [np.concatenate([np.array([]), *arrays]).astype("<f8").tobytes() for arrays in columns]


def sample(unit: CounterUnit, at: int, base_ns: int) -> dict[str, Any] | None:
    """A sample as the page has slices; None if there is none of this number."""
    series = unit.series
    if not 0 <= at < len(series.value):
        return None
    start_ns = int(series.time_ns[at])
    end_ns = int(series.time_ns[at + 1]) if at + 1 < len(series.time_ns) else start_ns
    name = f"{told(series.name)}: {written(float(series.value[at]), series.unit)}"
    times = {"start": float(start_ns - base_ns), "end": float(end_ns - base_ns)}
    return {"unit": unit.id, "lane": 0, **times, "name": name, "kind": COUNTER, "count": 1, "busy": 0.0}


def walked(unit: CounterUnit, base_ns: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """Where a step leads: the sample before or after, the one that holds at a moment, the next other value, the highest."""
    times, values = unit.series.time_ns, unit.series.value
    start_ns = base_ns + round(message["start"])
    onward = message["direction"] >= 0
    here = int(np.searchsorted(times, start_ns, side="right")) - 1
    if message["mode"] == "longest":
        at = int(values.argmax())
    elif message["mode"] == "nearest":
        at = max(here, 0)
    elif message["mode"] == "name":
        held = values[here] if here >= 0 else math.nan
        others = np.flatnonzero(values != held)
        found = others[others > here] if onward else others[others < here][::-1]
        at = int(found[0]) if len(found) else -1
    else:
        at = here + 1 if onward else here - (1 if here >= 0 and times[here] == start_ns else 0)
    text = "This is the last sample." if onward else "This is the first sample."
    return {"type": "found", "slice": sample(unit, at, base_ns), "zoom": message["mode"] in ("longest", "name"), "text": told(text)}


def inside(known: Sequence[CounterUnit], start_ns: int, end_ns: int) -> dict[str, Any]:
    """The table of what some counters were in a range: lowest, mean by time, highest, and the last value."""
    rows = []
    for unit in known:
        series = unit.series
        first, last = np.searchsorted(series.time_ns, [start_ns, end_ns])
        values = series.value[max(int(first) - 1, 0) : last]
        if not len(values):
            continue
        mean = counters.mean(series, start_ns, end_ns)
        figures = {"lowest": values.min(), "mean": mean, "highest": values.max(), "at the end": values[-1]}
        shown = {name: "" if value is None else written(float(value), series.unit) for name, value in figures.items()}
        rows.append({"name": told(series.name), "rank": unit.rank, **shown, "samples": int(last - first)})
    columns = ["name", "rank", "lowest", "mean", "highest", "at the end", "samples"]
    return table_content("timeline-counters", Table(frame=pd.DataFrame(rows, columns=columns), title="Counters in the range"))
