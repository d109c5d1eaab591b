"""Counters of traces in Chrome's JSON format: every number in `args` of a `C` event is a series of its own.

Profilers write the unit into the key of the value (`Read(MB/s)`, `MHz`); a key that ends in `id` tells series of one name apart.
Kineto has no counters of memory: there an instant event `[memory]` carries the sums of its allocator at every allocation. Those of
devices are no counters but rows of `memory_curve`, which `held` takes out of the samples.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perfkit.record.store import times_ns

COLUMNS = ("name", "unit", "time_ns", "value")
MEMORY = "[memory]"
_HELD = re.compile(r"memory of (device \d+) (allocated|reserved)$")
_TOTALS = {"Total Allocated": "allocated", "Total Reserved": "reserved"}
_UNIT = re.compile(r"(?P<what>.*)\((?P<unit>[^()]{1,12})\)$")
_UNITS = frozenset(
    {"Hz", "kHz", "MHz", "GHz", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB", "%", "B/s", "MB/s", "GB/s", "W", "C", "us"}
)
_IDENTITY = re.compile(r"(?:^|[_ ])id$", re.IGNORECASE)
_PLAIN = frozenset({"value", "count", ""})
MAX_NAME = 200
_MAX_BYTES = 2**62


class Counter(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """The values of a counter from a moment on."""

    name: str | None = None
    id: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    args: Any = None


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event without duration."""

    name: str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    args: Any = None


def counter_rows(events: Iterable[Counter | Instant]) -> pd.DataFrame:
    """The samples of some events: `COLUMNS`, and `pid` for `named`. What has no number or no time is no sample."""
    samples: list[Any] = [(event.ts, *sample) for event in events for sample in _samples(event)]
    rows = pd.DataFrame(
        {
            "name": pd.Series([name for _, _, name, _, _ in samples], dtype="object"),
            "unit": pd.Series([unit for _, _, _, unit, _ in samples], dtype="object"),
            "time_ns": times_ns([time for time, *_ in samples], "us"),
            "value": pd.Series([value for *_, value in samples], dtype="float64"),
            "pid": pd.Series([pid for _, pid, *_ in samples], dtype="object"),
        }
    )
    return rows[rows["time_ns"].notna()].reset_index(drop=True)


def named(rows: pd.DataFrame, processes: Mapping[str, str]) -> pd.DataFrame:
    """The rows with the name of their process before that of the counter, where it does not hold it already."""

    @functools.cache
    def full(pid: str, name: str) -> str:
        process = processes.get(pid, "")
        return name if not process or name.lower().startswith(process.lower()) else f"{process} {name}"

    names = [full(pid, name) for pid, name in zip(rows["pid"], rows["name"], strict=True)]
    return rows.assign(name=pd.Series(names, index=rows.index, dtype="object"))[list(COLUMNS)]


def held(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What allocators of devices held, as columns of `memory_curve` without `rank`, and the samples that are left."""
    names = rows["name"].astype("category")
    found = [_HELD.match(str(name)) for name in names.cat.categories.tolist()]
    codes = names.cat.codes.to_numpy()
    device = np.array([None if match is None else match[1] for match in found] or [None], dtype=object)[codes]
    what = np.array(["" if match is None else match[2] for match in found] or [""], dtype=object)[codes]
    ours = what != ""
    times = rows["time_ns"].to_numpy(dtype=np.int64)[ours]
    values = pd.array(rows["value"].to_numpy(dtype=np.float64)[ours].round().astype(np.int64), dtype="Int64")
    device, what = device[ours], what[ours]
    first = what == "allocated"
    # One event gives both sums, one after the other.
    reserved = np.flatnonzero(~first)
    paired = (
        (reserved > 0) & first[reserved - 1] & (times[reserved - 1] == times[reserved]) & (device[reserved - 1] == device[reserved])
    )
    sums = pd.DataFrame({"component": device, "time_ns": times, "allocated_bytes": values, "reserved_bytes": values})
    sums["allocated_bytes"] = sums["allocated_bytes"].where(first)
    sums["reserved_bytes"] = sums["reserved_bytes"].where(~first)
    sums.loc[reserved[paired] - 1, "reserved_bytes"] = values[reserved[paired]]
    return sums.drop(index=reserved[paired]).reset_index(drop=True), rows[~ours]


def _samples(event: Counter | Instant) -> Iterator[tuple[str, str, str | None, float]]:
    if not isinstance(event.args, dict):
        return
    if isinstance(event, Instant):
        device = event.args.get("Device Id")
        owner = "host memory" if event.args.get("Device Type") == 0 else f"memory of device {device}"
        for key, what in _TOTALS.items():
            if key in event.args and _is_number(event.args[key]) and abs(event.args[key]) < _MAX_BYTES:
                yield "", f"{owner} {what}", "B", float(event.args[key])
        return
    marks = "".join(f" {key} {value}" for key, value in event.args.items() if _IDENTITY.search(key) and not isinstance(value, dict))
    series = f" {event.id}" if isinstance(event.id, (str, int)) else ""
    for key, value in event.args.items():
        if not _IDENTITY.search(key) and _is_number(value):
            what, unit = _what_and_unit(key)
            yield f"{event.pid}", _label(event.name or "", what, marks + series), unit, float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@functools.lru_cache(maxsize=10_000)
def _what_and_unit(key: str) -> tuple[str, str | None]:
    """What a value is of, and its unit: `Read(MB/s)` is ("Read", "MB/s"), `MHz` is ("", "MHz")."""
    if key in _UNITS:
        return "", key
    found = _UNIT.match(key)
    return (found["what"].strip(), found["unit"]) if found else (key, None)


def _label(name: str, what: str, marks: str) -> str:
    known = what.lower() in _PLAIN or what.lower() in name.lower()
    return f"{name}{'' if known else f' {what}'}{marks}".strip()[:MAX_NAME]
