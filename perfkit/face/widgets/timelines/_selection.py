"""Details of a timeline: all that is recorded of one slice, and the statistics and list of a selected range."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core import quantity
from perfkit.core.demangled import demangled
from perfkit.core.schema import TABLES
from perfkit.core.shortening import shortened
from perfkit.core.spreadsheet import safe_cell
from perfkit.core.texts import say, t
from perfkit.core.texts import told as in_language
from perfkit.core.units import NS_PER_US, format_count, format_ns
from perfkit.face.widgets.graph_place import graph_link
from perfkit.face.widgets.table import Table, table_content
from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines._flame import Flame
from perfkit.face.widgets.timelines.data import PROCESSES, Timeline, Unit
from perfkit.face.widgets.timelines.events import WORK, cells, column, slice_of, walked, whole
from perfkit.record import tiles

MAX_LIST = 500
MAX_CSV = 200_000
_HIDDEN = {"rank", "name", "kind", "start_ns", "duration_ns", "stream", "thread"}
_FRAME = re.compile(r"^(?P<file>[^()]+\.py)\(\d+\): ")
"""A call of Python as the profilers write it: file(line): function."""
_FRAMEWORK = re.compile(r"^<|^(torch\w*|mindspore)/|(^|/)(site|dist)-packages/|/lib/python3")
MAX_FRAMES = 8
_TABLES = {"device": ("kernels", "launches", "collectives"), "communication": ("collectives",), "host": ("host",)}


def detailed(timeline: Timeline, message: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of one event and where else it is shown, or what a merged slice stands for."""
    start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
    if counting.is_counter(message["unit"]):
        return _of_counter(timeline, counting.counter(timeline.counters, message["unit"]), start_ns, end_ns)
    unit = timeline.unit(message["unit"])
    where = [("Rank", str(unit.rank)), ("Process", t(PROCESSES[unit.process])), ("Lane", in_language(unit.label))]
    times = [("Start", _begun(timeline, start_ns)), ("Length", _exact(end_ns - start_ns))]
    if int(message["count"]) > 1:
        busy = ("Busy", in_language(say("{busy_ns} in all; zoom in to tell them apart", busy_ns=float(message["busy"]))))
        return {"type": "detail", "title": in_language(tiles.slices_text(int(message["count"]))), "fields": [*times, busy, *where]}
    lane = unit.lanes[int(message["lane"])]
    rows = tiles.events(unit.source, [lane], start_ns, max(end_ns, start_ns + 1))
    rows = rows[(rows["start_ns"] == start_ns).to_numpy()]
    name, kind = (str(rows[text].iloc[0]) if len(rows) else "" for text in ("name", "kind"))
    fields = [("Name", name), ("Kind", in_language(kind)), *times, *where, *_recorded(timeline, unit, start_ns, name)]
    graph = graph_link(name) if unit.process in WORK else ""
    links = [(t("Operator in the graph"), graph)] if graph else []
    return {"type": "detail", "title": shortened(demangled(name), 90), "fields": fields, "links": links}


def walked_to(timeline: Timeline, message: Mapping[str, Any]) -> dict[str, Any]:
    """The slice or sample to which a step leads from another one."""
    if counting.is_counter(message["unit"]):
        return counting.walked(counting.counter(timeline.counters, message["unit"]), timeline.base_ns, message)
    return walked(timeline, message)


def slice_named(timeline: Timeline, message: Mapping[str, Any]) -> str:
    """The name of the event that a message is about; "" for a merged slice."""
    if int(message["count"]) > 1:
        return ""
    unit, start_ns = timeline.unit(message["unit"]), timeline.base_ns + round(message["start"])
    rows = tiles.events(unit.source, [unit.lanes[int(message["lane"])]], start_ns, start_ns + 1)
    names = rows.loc[(rows["start_ns"] == start_ns).to_numpy(dtype=bool), "name"]
    return str(names.iloc[0]) if len(names) else ""


def _of_counter(timeline: Timeline, unit: counting.CounterUnit, start_ns: int, end_ns: int) -> dict[str, Any]:
    """The sample that holds from a moment on."""
    found = counting.walked(unit, timeline.base_ns, {"mode": "nearest", "start": start_ns - timeline.base_ns, "direction": 1})[
        "slice"
    ]
    until = say("{length} until the next sample", length=_exact(end_ns - start_ns))
    fields = [
        ("Name", str(found["name"])),
        ("Kind", in_language("counter")),
        ("Start", _begun(timeline, start_ns)),
        ("Length", in_language(until if end_ns > start_ns else "the last sample")),
        ("Range", counting.described(unit)["counter"]["text"]),
        ("Samples", str(len(unit.series.value))),
        ("Rank", str(unit.rank)),
    ]
    return {"type": "detail", "title": found["name"], "fields": fields}


def _recorded(timeline: Timeline, unit: Unit, start_ns: int, name: str) -> Iterator[tuple[str, str]]:
    run, rank = timeline.run, unit.rank
    told: set[str] = set()
    here_ns = start_ns - run.clock.get(rank, 0)
    if unit.process == "host":
        yield from _code(unit, start_ns)
    for table in _TABLES.get(unit.process, ()):
        if table not in run.tables:
            continue
        positions = np.flatnonzero((column(run, table, rank, "start_ns") == here_ns).fillna(False).to_numpy(bool))
        if not len(positions):
            continue
        names = [known.name for known in TABLES[table].columns if known.name not in _HIDDEN]
        thread = ("thread",) if table == "launches" else ()
        found = cells(run, table, rank, positions[:50], ["name", *names, *thread]).to_dict("records")
        row = next((row for row in found if row["name"] == name), found[0])
        if table == "launches" and not pd.isna(row["launch_ns"]):
            launched_from = "" if pd.isna(row["thread"]) else str(row["thread"])
            for host in timeline.units:
                if (host.rank, host.process, host.thread) == (rank, "host", launched_from):
                    yield from _code(host, int(row["launch_ns"]) + run.clock.get(rank, 0))
        for key in names:
            if key != "step" and not pd.isna(row[key]):
                label = quantity.label(key)
                word = in_language(label)
                yield (f"{word} ({in_language(table)})" if label in told else word), in_language(_written(key, row[key]))
                told.add(label)


def _code(host: Unit, moment_ns: int) -> Iterator[tuple[str, str]]:
    """The line of code that a thread was in, the innermost one outside of the framework, and through what it came there."""
    rows = tiles.events(host.source, host.lanes, moment_ns, moment_ns + 1).sort_values("lane", ascending=False)
    frames = [str(name) for name in rows["name"] if _FRAME.match(str(name))]
    if not frames:
        return
    own = next((at for at, frame in enumerate(frames) if not _FRAMEWORK.search(frame)), 0)
    yield "Code", frames[own]
    if own:
        yield "Through", " \u2190 ".join(frames[: min(own, MAX_FRAMES)])
    if outer := frames[own + 1 : own + 1 + MAX_FRAMES]:
        yield "From", " \u2190 ".join(outer)


def _written(name: str, value: Any) -> str:
    if name == "launch_ns":
        return say("{moment} ns on the clock of the rank", moment=str(int(value)))
    return quantity.text(name, value)


def _begun(timeline: Timeline, start_ns: int) -> str:
    """When something began, since the first event and on the common clock."""
    since = _exact(start_ns - timeline.span_ns[0])
    return in_language(say("{since} after the first event; {moment} ns on the common clock", since=since, moment=str(start_ns)))


def _exact(ns: int) -> str:
    """A duration to the last ns."""
    if ns < NS_PER_US:
        return f"{ns} ns"
    return in_language(say("{rounded} ({all_of_it} ns)", rounded=format_ns(ns, 4), all_of_it=format_count(ns)))


def selected(timeline: Timeline, message: Mapping[str, Any]) -> dict[str, Any]:
    """What ran in a range: by name and, up to `MAX_LIST`, one by one, the longest first; all times are parts inside of it."""
    start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
    units = [timeline.unit(number) for number in dict.fromkeys(message["units"]) if not counting.is_counter(number)]
    counted = [
        counting.counter(timeline.counters, number) for number in dict.fromkeys(message["units"]) if counting.is_counter(number)
    ]
    sums: dict[tuple[str, str], list[int]] = {}
    longest: list[dict[str, Any]] = []
    nested = Flame()
    for unit, rows in inside(timeline, units, start_ns, end_ns):
        for (name, kind), inner in rows.groupby(["name", "kind"], sort=False, observed=True)["inside_ns"]:
            have = sums.setdefault((str(name), str(kind)), [0, 0, inner.iloc[0], 0])
            have[0] += len(inner)
            have[1] += int(inner.sum())
            have[2], have[3] = min(have[2], int(inner.min())), max(have[3], int(inner.max()))
        nested.add(unit, rows)
        best: list[Any] = rows.nlargest(MAX_LIST, "inside_ns").to_dict("records")
        longest += [{**row, "slice": slice_of(timeline, unit, row), "owner": unit} for row in best]
        longest = sorted(longest, key=lambda row: -row["inside_ns"])[:MAX_LIST]
    count, total = sum(have[0] for have in sums.values()), sum(have[1] for have in sums.values())
    text = say(
        "{count} of {lanes} lanes in {span_ns}, {total_ns} in all; "
        "slices that reach out of the range count with their part inside of it.",
        count=tiles.slices_text(count),
        lanes=str(len(units)),
        span_ns=end_ns - start_ns,
        total_ns=total,
    )
    tables = [_statistics(sums, total, end_ns - start_ns), _list(timeline, longest, count)]
    if counted:
        tables.append(counting.inside(counted, start_ns, end_ns))
    asked = {"start": message["start"], "end": message["end"], "units": list(message["units"])}
    return {
        "type": "selection",
        "text": in_language(text),
        "tables": tables,
        "slices": [row["slice"] for row in longest],
        "flame": nested.boxes(),
        "asked": asked,
    }


def inside(timeline: Timeline, units: Sequence[Unit], start_ns: int, end_ns: int) -> Iterator[tuple[Unit, pd.DataFrame]]:
    """The events of a range of the common clock in parts, with the part of each that lies in it: `inside_ns`, up to `until_ns`."""
    for unit in units:
        first_ns, last_ns = (timeline.recorded_ns(unit.rank, moment_ns) for moment_ns in (start_ns, end_ns))
        for rows in whole(unit, unit.lanes, first_ns, last_ns):
            ends, starts = np.minimum(rows["end_ns"], last_ns), np.maximum(rows["start_ns"], first_ns)
            yield unit, rows.assign(inside_ns=ends - starts, until_ns=ends)


def _statistics(sums: Mapping[tuple[str, str], Sequence[int]], total: int, span_ns: int) -> dict[str, Any]:
    rows = sorted(sums.items(), key=lambda item: -item[1][1])
    frame = pd.DataFrame(
        [
            {
                "name": name,
                "kind": kind,
                "count": have[0],
                "total_ns": have[1],
                "mean_ns": have[1] / have[0],
                "shortest_ns": have[2],
                "longest_ns": have[3],
                "share": have[1] / total if total else 0.0,
                "of_range_ratio": have[1] / span_ns,
            }
            for (name, kind), have in rows
        ],
        columns=["name", "kind", "count", "total_ns", "mean_ns", "shortest_ns", "longest_ns", "share", "of_range_ratio"],
    )
    return table_content("timeline-statistics", Table(frame=frame, title="By name"))


def _list(timeline: Timeline, longest: Sequence[Mapping[str, Any]], count: int) -> dict[str, Any]:
    frame = pd.DataFrame(
        [
            {
                "name": row["name"],
                "kind": row["kind"],
                "rank": row["owner"].rank,
                "lane": row["owner"].label,
                "start_ns": int(row["start_ns"]) - timeline.span_ns[0],
                "duration_ns": int(row["busy_ns"]),
                "inside_ns": int(row["inside_ns"]),
            }
            for row in longest
        ],
        columns=["name", "kind", "rank", "lane", "start_ns", "duration_ns", "inside_ns"],
    )
    title = say("One by one, the longest first ({shown} of {count})", shown=str(len(longest)), count=tiles.slices_text(count))
    labels = {"start_ns": "after the first event"}
    return table_content("timeline-slices", Table(frame=frame, title=title, labels=labels, selectable=True))


def as_csv(timeline: Timeline, message: Mapping[str, Any]) -> dict[str, Any]:
    """All slices of a range as CSV with exact ns, up to `MAX_CSV`; a cell that a spreadsheet would run gets an apostrophe."""
    start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(["rank", "process", "lane", "name", "kind", "start_ns", "duration_ns", "inside_ns"])
    left = MAX_CSV
    units = [timeline.unit(number) for number in dict.fromkeys(message["units"]) if not counting.is_counter(number)]
    for unit, rows in inside(timeline, units, start_ns, end_ns):
        for row in rows.head(left).to_dict("records"):
            texts = [safe_cell(str(text)) for text in (unit.process, unit.label, row["name"], row["kind"])]
            writer.writerow([unit.rank, *texts, row["start_ns"], row["busy_ns"], row["inside_ns"]])
        left -= min(left, len(rows))
    if not left:
        writer.writerow([f"the first {MAX_CSV} slices; choose a shorter range for the others"])
    return {"type": "csv", "text": output.getvalue()}
