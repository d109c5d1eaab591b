"""Memory of a rank as Ascend profilers record it: the curve of each component, and the blocks that operators asked for.

memory_record.csv and npu_module_mem.csv hold curves, operator_memory.csv blocks; times are us of the epoch. KB are 1024 bytes and
MB 2^20 bytes, but MindSpore's memory_record.csv counts MB of 1024 * 1000 bytes (its operator_memory.csv does not). The component
`PTA+GE` is the sum of `PTA` and `GE`; `APP` is the whole process. A block that was not released while recorded has no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import KIB, MIB
from perfkit.record import store, times
from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.readers.sqlite import Database, cells

CURVE, BLOCKS, MODULES = "memory_record.csv", "operator_memory.csv", "npu_module_mem.csv"
PARTS = {CURVE: "memory curve", BLOCKS: "memory blocks", MODULES: "memory of modules"}
MINDSPORE_MB = 1024 * 1000
CLOCK_NS = "ns"
_UNITS = {"KB": KIB, "MB": MIB}
_MODULE = "module "
_MAX_BYTES = 2.0**62


def read_file(name: str, file: File, rank: int, sink: Sink) -> int:
    """Add what one of the files of `PARTS` holds; gives the rows kept. InputError if it is empty or not what its name says."""
    readers = {CURVE: _read_curve, BLOCKS: _read_blocks, MODULES: _read_modules}
    return readers[name](file, rank, sink)


def read_database(database: Database, rank: int, sink: Sink) -> dict[str, int | None]:
    """Add the curves and blocks of a database; the rows of each of `PARTS`, None if it has no such table."""
    tables = {CURVE: "MEMORY_RECORD", BLOCKS: "OP_MEMORY", MODULES: "NPU_MODULE_MEM"}
    readers = {CURVE: _database_curve, BLOCKS: _database_blocks, MODULES: _database_modules}
    return {name: readers[name](database, rank, sink) if database.has(table) else None for name, table in tables.items()}


def _read_curve(file: File, rank: int, sink: Sink) -> int:
    sizes = {"allocated": "Total Allocated", "reserved": "Total Reserved", "active": "Total Active"}
    rows, units = _read(file, {"Component": "text", "Timestamp(us)": "us"}, sizes, sink)
    if rows["Component"].astype("object").str.startswith("MindSpore", na=False).any():
        units = {name: MINDSPORE_MB if unit == MIB else unit for name, unit in units.items()}
        sink.note(f"{file.name} of MindSpore counts MB of 1024 * 1000 bytes, unlike {BLOCKS} beside it")
    return _add_curve(
        sink,
        file,
        rank,
        component=rows["Component"],
        time_ns=rows["Timestamp(us)"],
        **{f"{name}_bytes": _bytes(rows[name], units[name]) for name in sizes},
    )


def _read_modules(file: File, rank: int, sink: Sink) -> int:
    rows, units = _read(file, {"Component": "text", "Timestamp(us)": "us"}, {"reserved": "Total Reserved"}, sink)
    return _add_curve(
        sink,
        file,
        rank,
        component=_MODULE + rows["Component"].astype("object"),
        time_ns=rows["Timestamp(us)"],
        reserved_bytes=_bytes(rows["reserved"], units["reserved"]),
    )


def _read_blocks(file: File, rank: int, sink: Sink) -> int:
    start, end = "Allocation Time(us)", "Release Time(us)"
    rows, units = _read(file, {"Name": "text", start: "us", end: "us", "Stream Ptr": "text"}, {"size": "Size"}, sink)
    frame = rows.rename(columns={"Name": "name", start: "start", end: "end", "Stream Ptr": "stream"})
    frame["bytes"] = _bytes(rows["size"], units["size"])
    return _add_blocks(sink, file, rank, frame[["name", "start", "end", "bytes", "stream"]])


def _read(
    file: File, columns: Mapping[str, store.Cell], sizes: Mapping[str, str], sink: Sink
) -> tuple[pd.DataFrame, dict[str, int]]:
    """The columns, the sizes under their short names, and the bytes of the unit that the header gives each size."""
    wanted: dict[str, store.Cell] = dict(columns)
    wanted.update({f"{title}({unit})": "float" for title in sizes.values() for unit in _UNITS})
    csv = store.read_csv(file, wanted, required=list(columns)[:2])
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    rows = csv.frame
    units: dict[str, int] = {}
    for name, title in sizes.items():
        unit = next((unit for unit in _UNITS if f"{title}({unit})" not in csv.absent), "MB")
        units[name] = _UNITS[unit]
        rows[name] = rows[f"{title}({unit})"]
    if all(rows[name].isna().all() for name in sizes) and len(rows):
        raise InputError(file.label, [f"no column {', '.join(f'{title}(MB) or (KB)' for title in sizes.values())} has a number"])
    return rows, units


def _bytes(values: pd.Series, unit: int) -> pd.Series:
    """Whole bytes; sizes in binary fractions of a unit are exact in a float, times never go through one."""
    scaled = np.rint(values.to_numpy(dtype=np.float64) * unit)
    good = np.abs(scaled) < _MAX_BYTES
    return pd.Series(pd.arrays.IntegerArray(np.where(good, scaled, 0).astype(np.int64), ~good), index=values.index)


def _database_curve(database: Database, rank: int, sink: Sink) -> int:
    columns = cells(ints=("component", "timestamp", "totalAllocated", "totalReserved", "totalActive"))
    rows = database.read("MEMORY_RECORD", columns)
    return _add_curve(
        sink,
        database.file,
        rank,
        component=_texts(database, rows["component"], "STRING_IDS", "value"),
        time_ns=rows["timestamp"],
        allocated_bytes=rows["totalAllocated"],
        reserved_bytes=rows["totalReserved"],
        active_bytes=rows["totalActive"],
    )


def _database_modules(database: Database, rank: int, sink: Sink) -> int:
    rows = database.read("NPU_MODULE_MEM", cells(ints=("moduleId", "timestampNs", "totalReserved")))
    return _add_curve(
        sink,
        database.file,
        rank,
        component=_MODULE + _texts(database, rows["moduleId"], "ENUM_MODULE", "name"),
        time_ns=rows["timestampNs"],
        reserved_bytes=rows["totalReserved"],
    )


def _database_blocks(database: Database, rank: int, sink: Sink) -> int:
    rows = database.read("OP_MEMORY", cells(ints=("name", "size", "allocationTime", "releaseTime"), texts=("streamPtr",)))
    frame = rows.rename(columns={"allocationTime": "start", "releaseTime": "end", "size": "bytes", "streamPtr": "stream"})
    return _add_blocks(sink, database.file, rank, frame.assign(name=_texts(database, rows["name"], "STRING_IDS", "value")))


def _texts(database: Database, ids: pd.Series, table: str, column: str) -> pd.Series:
    rows = database.read(table, cells(ints=("id",), texts=(column,))).dropna()
    texts = {int(key): str(text) for key, text in zip(rows["id"], rows[column], strict=True)}
    return ids.astype("object").map(lambda key: None if pd.isna(key) else texts.get(key, str(key))).astype("object")


def _add_curve(sink: Sink, source: File, rank: int, **columns: Any) -> int:
    timed = times.possible(columns["time_ns"], times.middle_of(columns["time_ns"]))
    sink.drop("memory_curve.time_ns: missing, or no time of this recording", int((~timed).sum()), source, "memory_curve")
    kept = {name: values[timed] for name, values in columns.items()}
    return sink.add("memory_curve", source=source, rank=rank, **kept) if timed.any() else 0


def _add_blocks(sink: Sink, source: File, rank: int, frame: pd.DataFrame) -> int:
    """Add blocks in the order of their allocation; those released before they were allocated, or at no known time, are refused."""
    reversed_ = (frame["end"] < frame["start"]).fillna(False).astype(bool)
    timeless = (frame["start"].isna() & frame["end"].isna()).astype(bool)
    sink.drop("memory block released before it was allocated", int(reversed_.sum()), source)
    sink.drop("memory block without a time", int(timeless.sum()), source)
    frame = frame[~reversed_ & ~timeless].sort_values("start", kind="stable", na_position="first")
    if frame.empty:
        return 0
    columns: dict[str, Any] = {name: frame[name] for name in frame.columns}
    return sink.add("memory_blocks", source=source, rank=rank, clock=CLOCK_NS, **columns)
