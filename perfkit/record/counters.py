"""Counters: what a rank recorded as numbers over time, such as frequencies, bandwidths and memory, as series that any window shows.

    found = perfkit.record.counters.series(run, rank=0)
    steps = perfkit.record.counters.window(found[0], start_ns, end_ns, pixels=1000)

Series come from the table `counters`, and from `memory_curve`, whose figures are counters too. Moments are on the clock of the
rank. A value holds until the next one. A run that is kept in the cache has its series there too, so that no trace is read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.record import entries, store

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KIND = "counters"
MODULE = "module "
"""Memory of a module of the software; there are some 80 of them, which page 15 shows."""
_FILE, _FEW = "counters.parquet", "counters.json"
_MEMORY = {"allocated_bytes": "allocated", "reserved_bytes": "reserved", "active_bytes": "active"}
_BYTES = "B"


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One counter: its samples in the order of time, the last one of those at one moment; `unit` "" where none is recorded."""

    rank: int
    name: str
    unit: str
    time_ns: Ints
    value: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """A window of a series, at most one step a pixel.

    A step begins at `time_ns` with `count` samples, whose values lie between `low` and `high` and end at `value`. `before` is the
    value that holds when the window begins, NaN if there is none yet.
    """

    time_ns: Ints
    value: Floats
    low: Floats
    high: Floats
    count: Ints
    before: float


def series(run: Run, *, rank: int) -> list[Series]:
    """The counters of a rank by name; those that are 0 all the time come last. None if it recorded none."""
    return kept_series(run, rank, _rows)


def kept_series(run: Run, rank: int, made: Callable[[Run, int], pd.DataFrame], suffix: str = "") -> list[Series]:
    """The series of rows `made` of a run, with the columns of the table `counters`; a `suffix` of their own keeps them with it."""
    rows = _kept(run, rank, made, suffix)
    found = []
    for (name, unit), group in rows.groupby(["name", "unit"], sort=True, observed=True):
        times, last = np.unique(group["time_ns"].to_numpy(dtype=np.int64)[::-1], return_index=True)
        values = group["value"].to_numpy(dtype=np.float64)[::-1][last]
        found.append(Series(rank=rank, name=str(name), unit=str(unit), time_ns=times, value=values))
    return sorted(found, key=lambda each: (not each.value.any(), _natural(each.name)))


def _natural(name: str) -> list[tuple[int, str]]:
    """Names with numbers in the order of the numbers: core 2 before core 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,18})", name)]


def window(known: Series, start_ns: int, end_ns: int, pixels: int) -> Steps:
    """What a series shows between two moments, in at most `pixels` steps; raises ValueError if the window is empty.

    Where a pixel holds several samples they are one step with the range of their values, so that no peak is lost.
    """
    if end_ns <= start_ns or pixels < 1:
        raise ValueError(f"a window needs a length and a pixel, not [{start_ns}, {end_ns}) in {pixels}")
    first, last = np.searchsorted(known.time_ns, [start_ns, end_ns])
    before = float(known.value[first - 1]) if first else float("nan")
    times, values = known.time_ns[first:last], known.value[first:last]
    size_ns = -(-(end_ns - start_ns) // pixels)
    begins = np.flatnonzero(np.diff((times - start_ns) // size_ns, prepend=-1))
    if not len(begins):
        empty = np.array([], dtype=np.float64)
        return Steps(time_ns=times, value=empty, low=empty, high=empty, count=times, before=before)
    ends = np.append(begins[1:], len(times))
    return Steps(
        time_ns=times[begins],
        value=values[ends - 1],
        low=np.minimum.reduceat(values, begins),
        high=np.maximum.reduceat(values, begins),
        count=ends - begins,
        before=before,
    )


def mean(known: Series, start_ns: int, end_ns: int) -> float | None:
    """The mean over a window by time, from the first sample on; None if no value holds in it."""
    first, last = np.searchsorted(known.time_ns, [start_ns, end_ns], side="right")
    times, values = known.time_ns[max(first - 1, 0) : last], known.value[max(first - 1, 0) : last]
    if not len(times) or int(times[0]) >= end_ns:
        return None
    spans = np.diff(np.append(np.maximum(times, start_ns), end_ns)).astype(np.float64)
    return float((values * spans).sum() / spans.sum())


def _kept(run: Run, rank: int, made: Callable[[Run, int], pd.DataFrame], suffix: str) -> pd.DataFrame:
    """The rows of a rank, from the cache if they are there, else read and kept if the run is."""
    if not run.cache_key:
        return made(run, rank)
    folder = entries.entry(KIND, f"{run.cache_key}-{rank}{suffix}")
    try:
        few = (folder / _FEW).is_file()  # those are read without the columnar engine, which takes longer to start than the page may
        read, name = (store.read_rows, _FEW) if few else (store.read_table, _FILE)
        found = read(folder / name, TABLES["counters"])
        entries.used(folder)
    except (OSError, ValueError):
        found = made(run, rank)
        try:
            with entries.new_entry(folder) as work:
                if len(found) <= store.FEW_ROWS:
                    store.write_rows(found.astype({"name": "category", "unit": "category"}), work / _FEW)
                else:
                    store.write_table(found, work / _FILE)
            entries.make_room()
        except OSError:  # no room or no right to write: they are read again the next time
            return found
    return found


def _rows(run: Run, rank: int) -> pd.DataFrame:
    """`name`, `unit` ("" for none), `time_ns`, `value` of a rank, as in the table `counters`."""
    frames = [run.frame("counters", ranks=[rank])]
    curve = run.frame("memory_curve", ranks=[rank])
    curve = curve[~curve["component"].astype("object").str.startswith(MODULE).to_numpy(dtype=bool)]
    for column, what in _MEMORY.items():
        rows = curve[curve[column].notna()]
        frames.append(
            pd.DataFrame(
                {
                    "rank": rank,
                    "name": "memory " + rows["component"].astype("object") + f" {what}",
                    "unit": _BYTES,
                    "time_ns": rows["time_ns"],
                    "value": rows[column].astype("float64"),
                }
            )
        )
    found = pd.concat([frame.astype({"name": "object", "unit": "object"}) for frame in frames], ignore_index=True)
    found = found.assign(unit=found["unit"].fillna("")).sort_values("time_ns", kind="stable", ignore_index=True)
    return found.astype({"name": "category", "unit": "category"})
