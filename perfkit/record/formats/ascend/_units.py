"""Units: how long the pipes of Ascend's cores worked in each kernel, from the counters beside it in tables and databases.

Columns depend on the metrics that were recorded: `aic_mac_time(us)` and `aic_mac_ratio` are the time of a pipe and its share of the
time that its core ran (`aicore_time(us)`, `aiv_time(us)`; in a database `aic_total_time`, ns). Older versions have ratios alone, or
columns without `aic_`. `cube_utilization(%)` is the share of the kernel in which the matrix units of all cores worked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.ascend._kernel_counters import TABLE as KERNEL_COUNTERS
from perfkit.record.formats.ascend._kernel_counters import by_kernel, counters_in, of_table
from perfkit.record.listing import File
from perfkit.record.readers import host_tables
from perfkit.record.readers.sqlite import cells, open_database

TABLES = ("utilization", KERNEL_COUNTERS)
_CUBE = "cube_utilization(%)"
_RATIO = re.compile(r"((?:aic_|aiv_)?(?:mac|vec|cube|scalar|mte\d|fixpipe)(?:_\w+?)?)_ratio")
_CORES = {"aic": "aicore_time(us)", "aiv": "aiv_time(us)"}
_TOTALS = {"aic": "aic_total_time", "aiv": "aiv_total_time"}
_COUNTERS = "TASK_PMU_INFO"
_KEY = ["step", "name", "type", "unit"]


def is_recorded(file: File) -> bool:
    """Whether a table of kernels has counters."""
    return bool(counters_in(_header(file)))


def offer_table(sink: Sink, files: Mapping[int, File]) -> None:
    """Offer the counters in the table of kernels of each rank for later."""
    told: set[int] = set()

    def read(rank: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
        counters, lost = of_table(files[rank], _header(files[rank]))
        for what, count in lost.items() if rank not in told else ():
            sink.drop(what, count, files[rank], KERNEL_COUNTERS)
        told.add(rank)
        return [read_table(files[rank])], [counters]

    host_tables.offer(sink, files, read, TABLES)


def read_table(file: File) -> pd.DataFrame:
    """The table `utilization` of one rank, without `rank`, from kernel_details.csv; a recording without steps is step 0."""
    header = _header(file)
    units = _units(header)
    columns: dict[str, store.Cell] = {"Step Id": "int", "Name": "label", "Type": "label"}
    columns |= dict.fromkeys(["Duration(us)", *_CORES.values(), *(f"{unit}_time(us)" for unit in units)], "us")
    columns |= dict.fromkeys([_CUBE, *(f"{unit}_ratio" for unit in units)], "float")
    rows = store.read_csv(file, columns).frame
    step = rows["Step Id"] if rows["Step Id"].notna().any() else pd.Series(0, index=rows.index, dtype="Int64")
    kernels = pd.DataFrame({"step": step, "name": rows["Name"], "type": rows["Type"], "duration_ns": rows["Duration(us)"]})
    pieces = [_of_unit(kernels, _CUBE.partition("_")[0], kernels["duration_ns"], rows[_CUBE] / 100.0)]
    for unit in units:
        core = rows[_CORES["aiv" if unit.startswith("aiv_") else "aic"]]
        stated, ratio = rows[f"{unit}_time(us)"], rows[f"{unit}_ratio"]
        pieces.append(_of_unit(kernels, unit, core, ratio, stated))
    return _summed(pieces)


def read_database(file: File, kernels: pd.DataFrame, tasks: pd.Series) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Both tables of one rank of a database; `tasks` has the task of each of its `kernels`."""
    with open_database(file) as database:
        counters = database.read(_COUNTERS, cells(ints=("globalTaskId", "name"), values=("value",))).dropna()
        names = database.read("STRING_IDS", cells(ints=("id",), texts=("value",))).dropna()
    texts = {int(key): str(text) for key, text in zip(names["id"], names["value"], strict=True)}
    counters = counters.assign(name=counters["name"].map(texts), value=pd.to_numeric(counters["value"], errors="coerce"))
    wide = counters.dropna().pivot_table(index="globalTaskId", columns="name", values="value", aggfunc="last")
    values = wide.reindex(tasks).reset_index(drop=True)
    none = pd.Series(np.nan, index=values.index)
    pieces = []
    for unit in _units(list(map(str, values.columns))):
        core = values.get(_TOTALS["aiv" if unit.startswith("aiv_") else "aic"], none)
        stated = values.get(f"{unit}_time", none)
        pieces.append(_of_unit(kernels.reset_index(drop=True), unit, _whole_ns(core), values[f"{unit}_ratio"], _whole_ns(stated)))
    return [_summed(pieces)], [by_kernel(kernels.reset_index(drop=True), values)]


def has_counters(file: File) -> bool:
    """Whether a database has counters of units."""
    with open_database(file) as database:
        return database.count(_COUNTERS) > 0


def _header(file: File) -> list[str]:
    first = file.head.decode("utf-8-sig", "replace").lstrip("\r\n").partition("\n")[0]
    try:
        return [cell.strip() for cell in next(csv.reader([first]), [])]
    except csv.Error:  # who reads the rows says it
        return []


def _units(columns: list[str]) -> list[str]:
    return [found[1] for column in dict.fromkeys(columns) if (found := _RATIO.fullmatch(column))]


def _whole_ns(values: pd.Series) -> pd.Series:
    return values.where(values.between(0, 2.0**62)).round().astype("Int64")


def _of_unit(
    kernels: pd.DataFrame, unit: str, core_ns: pd.Series, ratio: pd.Series, stated_ns: pd.Series | None = None
) -> pd.DataFrame:
    """One row a kernel in which the core of a unit ran and the unit was recorded."""
    by_ratio = (core_ns.astype("float64") * ratio.where(ratio.between(0, 1))).round()
    busy = by_ratio if stated_ns is None else stated_ns.astype("float64").where(stated_ns.notna().to_numpy(dtype=bool), by_ratio)
    good = (core_ns > 0).fillna(False).to_numpy(dtype=bool) & busy.between(0, 2.0**62).to_numpy(dtype=bool)
    good &= kernels["name"].notna().to_numpy(dtype=bool) & (kernels["duration_ns"] >= 0).fillna(False).to_numpy(dtype=bool)
    rows = kernels.loc[good, ["step", "name", "type", "duration_ns"]]
    return rows.assign(unit=unit, count=1, core_ns=core_ns[good].astype("int64"), busy_ns=busy[good].astype("int64"))


def _summed(pieces: list[pd.DataFrame]) -> pd.DataFrame:
    if not pieces:  # other metrics were recorded: bandwidths, cache hits, instructions
        return pd.DataFrame(columns=[*_KEY, "count", "duration_ns", "core_ns", "busy_ns"])
    rows = pd.concat([piece.astype({"name": "object", "type": "object"}) for piece in pieces], ignore_index=True)
    sums = rows.groupby(_KEY, dropna=False, sort=False)[["count", "duration_ns", "core_ns", "busy_ns"]].sum()
    return sums.reset_index()
