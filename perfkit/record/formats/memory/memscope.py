"""msMemScope and msLeaks dumps: every allocation and release that the tool saw, as a table or a database.

One row an event: ID, Event (SYSTEM, MALLOC, FREE, ACCESS, OP_LAUNCH, KERNEL_LAUNCH, MSTX, SNAPSHOT), Event Type (HAL, PTA,
MindSpore, ATB, HOST, ... for memory), Name, Timestamp(ns), ids, Device Id (a number, "host" or "cpu"), Ptr, and Attr with addr,
size, owner, and for pools total and used, as JSON or without its quotes. Columns as in the tool's "Output File Specifications".
A release names the address only, so it ends the block of that address and type that is open; what a pool says that it uses counts
before the sum of the blocks, because those from before the recording are not among them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record import store
from perfkit.record.format import Format, Match, Sink
from perfkit.record.listing import File, Listing
from perfkit.record.readers import sqlite

COLUMNS = ("ID", "Event", "Event Type", "Name", "Timestamp(ns)", "Process Id", "Thread Id", "Device Id", "Ptr", "Attr")
TABLES = ("memscope_dump", "leaks_dump")
_HEADER = ("Event", "Event Type", "Timestamp(ns)", "Ptr", "Attr")
_HOST = ("host", "cpu")
_NUMBER = re.compile(r"\d{1,5}")
_ATTR = re.compile(r'"?(\w+)"?\s*:\s*"?([^,"{}]*)"?')
_SIZE = re.compile(r"-?\d{1,18}")
_PYTHON, _STACK = "Call Stack(Python)", re.compile(r"[^\n]+")


def detect(listing: Listing) -> Match | None:
    """Tables with the columns of a dump, and databases with its table."""
    named = [file for file in listing if listing.is_one_file or "dump" in file.name.lower()]
    files = tuple(file for file in named if _is_table(file) or _table_of(file) is not None)
    return Match(files=files) if files else None


def _is_table(file: File) -> bool:
    header = file.head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    cells = [cell.strip().strip('"') for cell in header.split(",")]
    return set(_HEADER) <= set(cells)


def _table_of(file: File) -> str | None:
    tables = sqlite.table_names(file) if file.head.startswith(sqlite.MAGIC) else frozenset()
    return next((name for name in TABLES if name in tables), None)


def read(match: Match, sink: Sink) -> None:
    """Read the dumps one by one; blocks and curves of one device come together from all of them."""
    for file in match.files:
        try:
            rows = _rows(file, sink)
            _add(file, rows, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        sink.advance(file.label, file.size_bytes)


def _rows(file: File, sink: Sink) -> pd.DataFrame:
    """The events in order of time, those without one counted."""
    if (table := _table_of(file)) is not None:
        with sqlite.open_database(file) as database:
            texts = [name for name in COLUMNS if name != "Timestamp(ns)"]
            rows = database.read(table, sqlite.cells(ints=("Timestamp(ns)",), texts=(*texts, _PYTHON)))
            database.report(sink)
        if sqlite.unwritten(file):
            sink.note(f"{file.label}: rows in the log {file.name}-wal beside it are not read; close the program that writes it")
        rows = rows.replace(list(store.NULLS), None)
    else:
        wanted: dict[str, store.Cell] = dict.fromkeys((*COLUMNS, _PYTHON), "text")
        csv = store.read_csv(file, {**wanted, "Timestamp(ns)": "ns"}, required=_HEADER)
        for what, count in csv.losses().items():
            sink.drop(what, count, file)
        rows = csv.frame
    timed = rows[rows["Timestamp(ns)"].notna() & rows["Event"].notna()]
    sink.drop("event without a time or a kind", len(rows) - len(timed), file)
    return timed.sort_values("Timestamp(ns)", kind="stable").reset_index(drop=True)


def _add(file: File, rows: pd.DataFrame, sink: Sink) -> None:
    blocks, levels, lost = _memory(rows)
    for what, count in lost.items():
        sink.drop(what, count, file)
    ranks = sorted({block["rank"] for block in blocks}) or [0]
    if len(ranks) > 1:
        sink.note(f"{file.label} holds {len(ranks)} devices; each is taken for the rank of its number")
    if blocks:
        columns: dict[str, Any] = {name: [block[name] for block in blocks] for name in blocks[0]}
        sink.add("memory_blocks", source=file, clock="ns", **columns)
    if levels:
        names = ("rank", "component", "time_ns", "allocated_bytes", "reserved_bytes")
        sink.add("memory_curve", source=file, **{name: [level[at] for level in levels] for at, name in enumerate(names)})
    for rank in ranks:
        sink.cover(rank, "memory blocks", file, rows=sum(block["rank"] == rank for block in blocks))
        sink.cover(rank, "memory curve", file, rows=sum(level[0] == rank for level in levels))
    _add_marks(file, rows, sink)


def _memory(rows: pd.DataFrame) -> tuple[list[dict[str, Any]], list[tuple[int, str, int, int, int | None]], Counter[str]]:
    """Blocks, the level of each component after each of its events, and what was lost."""
    blocks: list[dict[str, Any]] = []
    levels: list[tuple[int, str, int, int, int | None]] = []
    live: dict[tuple[str, str], dict[str, Any]] = {}
    held: Counter[tuple[int, str]] = Counter()
    lost: Counter[str] = Counter()
    for row in rows[rows["Event"].isin(["MALLOC", "FREE"])].to_dict("records"):
        attributes, moment, kind = _attributes(row["Attr"]), int(row["Timestamp(ns)"]), str(row["Event Type"] or "")
        key = (kind, str(row["Ptr"] or attributes.get("addr") or ""))
        if row["Event"] == "MALLOC":
            block = _block(row, attributes, moment, kind)
            if block is None:
                lost["allocation without a size"] += 1
                continue
            live[key] = block
            blocks.append(block)
            change = block["bytes"]
        else:
            block = live.pop(key, None)
            if block is None:
                lost["release of a block whose allocation is not recorded"] += 1
                if "used" in attributes:
                    levels.append(_level(_rank(row), kind, moment, 0, attributes))
                continue
            block["end"], change = moment, -block["bytes"]
        component = f"{block['pool']} {kind}" if block["pool"] in _HOST else kind
        held[block["rank"], component] += change
        levels.append(_level(block["rank"], component, moment, held[block["rank"], component], attributes))
    return blocks, levels, lost


def _block(row: Mapping[Any, Any], attributes: Mapping[str, str], moment: int, kind: str) -> dict[str, Any] | None:
    size, device = _size(attributes.get("size")), str(row["Device Id"] or "")
    if size is None or size < 0:
        return None
    stack = _STACK.search(str(row.get(_PYTHON) or ""))
    return {
        "rank": _rank(row),
        "name": row["Name"],
        "owner": attributes.get("owner") or None,
        "kind": kind,
        "start": moment,
        "end": None,
        "bytes": size,
        "address": row["Ptr"],
        "pool": device if device in _HOST else "device",
        "place": stack[0].strip() if stack else None,
    }


def _level(
    rank: int, component: str, moment: int, held_bytes: int, attributes: Mapping[str, str]
) -> tuple[int, str, int, int, int | None]:
    """What a component held after an event: as its pool states it, else the sum of its blocks. A total below that is none of it."""
    used, total = _size(attributes.get("used")), _size(attributes.get("total"))
    level = held_bytes if used is None else used
    return rank, component, moment, level, total if total is not None and total >= level else None


def _rank(row: Mapping[Any, Any]) -> int:
    device = str(row["Device Id"] or "")
    return int(device) if _NUMBER.fullmatch(device) else 0


def _attributes(text: Any) -> dict[str, str]:
    """Attr as keys and values; addresses and sizes have no comma in them."""
    return {key: value.strip() for key, value in _ATTR.findall(str(text or ""))}


def _size(text: str | None) -> int | None:
    return int(text) if text and _SIZE.fullmatch(text) else None


def _add_marks(file: File, rows: pd.DataFrame, sink: Sink) -> None:
    """The marks of mstx that have a name, as moments of the host."""
    marks = rows[(rows["Event"] == "MSTX") & rows["Name"].notna()]
    if marks.empty:
        return
    sink.add(
        "host",
        source=file,
        rank=[_rank(row) for row in marks.to_dict("records")],
        name=marks["Name"],
        kind="mark",
        thread=marks["Thread Id"],
        start_ns=marks["Timestamp(ns)"],
        duration_ns=0,
    )


FORMAT = Format(
    name="memscope",
    title="msMemScope or msLeaks dump",
    looks_for="memscope_dump_*.csv or .db (leaks_dump_* before), with the columns Event, Event Type, Timestamp(ns), Ptr and Attr",
    detail=2,
    detect=detect,
    read=read,
)
