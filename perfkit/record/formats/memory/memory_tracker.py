"""MindSpore memory tracker: memory_block.csv and task.csv of a rank, with or without a prefix `tracker_`.

Start, end, producer and last use of a block are counters that tasks, allocations and releases share, not times. Blocks whose start
and end are null lie inside another block (compile-time memory) and add nothing to it. `perfkit.record.memory` answers questions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_bytes
from perfkit.record import memory
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.memory._tracker_text import (
    BLOCK_HEAD,
    BLOCK_REQUIRED,
    CLOCK,
    NEVER,
    STACK,
    TASK_HEAD,
    Lines,
    misspelt,
    numbers,
    read_lines,
    text_or_none,
    users,
)
from perfkit.record.listing import File, Listing

_NAME = re.compile(r"^(?:tracker_)?(memory_block|task)\.csv$")
_RANK = re.compile(r"^rank[_-]?(\d{1,6})$")


def detect(listing: Listing) -> Match | None:
    """Every table of blocks, by its header or, if it is empty, by its name; and the table of tasks beside it."""
    blocks = [file for file in listing if _is(file, "memory_block", BLOCK_HEAD)]
    if not blocks:
        return None
    folders = {file.path.parent for file in blocks}
    tasks = {file.path.parent: file for file in listing if file.path.parent in folders and _is(file, "task", TASK_HEAD)}
    return Match(files=(*blocks, *tasks.values()), details=(blocks, tasks))


def _is(file: File, kind: str, head: bytes) -> bool:
    found = _NAME.match(file.name)
    named = found is not None and found[1] == kind
    return named if file.size_bytes == 0 else file.head.removeprefix(b"\xef\xbb\xbf").startswith(head)


def read(match: Match, sink: Sink) -> None:
    """Read all ranks; of two tables of one rank the first is kept and the other reported."""
    blocks, tasks = match.details
    ranks: dict[int, File] = {}
    for file in blocks:
        rank = _rank(file)
        if rank is None:
            rank = next(number for number in range(len(blocks) + 1) if number not in ranks)
            if len(blocks) > 1:
                sink.note(f"{file.label} does not say its rank; it is taken for rank {rank}")
        if rank in ranks:
            sink.drop(f"another table of rank {rank}, which {ranks[rank].label} holds", 1, file)
            continue
        ranks[rank] = file
        _read_rank(rank, file, tasks.get(file.path.parent), sink)


def _rank(file: File) -> int | None:
    folders = Path(file.relative).parts[:-1] or (file.path.parent.name,)
    return next((int(found[1]) for part in reversed(folders) if (found := _RANK.match(part))), None)


def _read_rank(rank: int, file: File, tasks: File | None, sink: Sink) -> None:
    whole = len(sink.dropped)
    found: list[pd.DataFrame] = []
    try:
        for lines in read_lines(file, BLOCK_REQUIRED):
            if not found:
                for name, known in misspelt(lines.columns).items():
                    sink.drop(f"column {name!r}, nearly {known!r}, which is missing", 1, file)
            found.append(_add_blocks(rank, lines, file, sink))
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
    blocks = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
    state = "partial" if len(sink.dropped) > whole and file.size_bytes else None
    sink.cover(rank, "memory blocks", file, rows=len(blocks), state=state)
    sink.cover(rank, "tasks", tasks, rows=None if tasks is None else _count_tasks(tasks, sink))
    sink.advance(file.label, file.size_bytes)
    if len(blocks):
        _note_peak(rank, blocks, file, sink)
    elif file.size_bytes:
        sink.note(f"{file.label} has no blocks; on a CPU the tracker writes the header only")


def _count_tasks(file: File, sink: Sink) -> int | None:
    try:
        chunks = list(read_lines(file, ("time_stamp", "task_name")))
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
        return None
    sink.drop("row with more or fewer cells than the header", sum(lines.misshapen for lines in chunks), file)
    sink.advance(file.label, file.size_bytes)
    return sum(lines.count for lines in chunks)


def _add_blocks(rank: int, lines: Lines, file: File, sink: Sink) -> pd.DataFrame:
    """Add a chunk of rows; gives the blocks that were kept."""
    sink.drop("row with fewer cells than the header, or more outside of its stack", lines.misshapen, file)
    if not lines.count:
        return pd.DataFrame()
    cells = lines.columns
    nothing = [""] * lines.count
    start, end, size = (numbers(cells[name]) for name in ("start_time_stamp", "end_time_stamp", "size"))
    sink.drop("start_time_stamp or end_time_stamp: not a number", int((start.isna() | end.isna()).sum()), file)
    known = start.notna() & end.notna()
    within = known & (start < 0)
    start = start.mask(within.fillna(False).astype(bool))
    end = end.mask((within | (end < 0) | (end >= NEVER)).fillna(False).astype(bool))
    reversed_ = (end < start).fillna(False).astype(bool)
    sink.drop("block released before it was allocated", int(reversed_.sum()), file)
    used_by = cells.get("user_tasks", nothing)
    num_uses, last_use = users(used_by)
    unread = num_uses.isna().to_numpy() & np.array([bool(text.strip()) for text in used_by], dtype=bool)
    sink.drop("user_tasks: not a list of tasks such as {12-15}", int(unread.sum()), file)
    if "last_user_task" in cells:
        last = numbers(cells["last_user_task"])
        last_use = last_use.fillna(last.mask((last < 0).fillna(False).astype(bool)))
    producer, peak = (_optional(name, cells.get(name, nothing), file, sink) for name in ("producer_task", "actual_peak_memory"))
    frame = pd.DataFrame(
        {
            "name": text_or_none(cells.get("task_name", nothing)),
            "owner": text_or_none(cells.get("node_name", nothing)),
            "kind": text_or_none(cells.get("type", nothing)),
            "start": start,
            "end": end,
            "bytes": size,
            "address": text_or_none(cells["device_addr"]),
            "pool": text_or_none(cells.get("pool_type", nothing)),
            "stream": text_or_none(cells.get("stream_id", nothing)),
            "producer": producer.mask((producer < 0).fillna(False).astype(bool)),
            "last_use": last_use,
            "num_uses": num_uses,
            "pool_peak_bytes": peak,
            "place": _places(cells, nothing),
        }
    )[(known & ~reversed_).fillna(False).astype(bool)]
    size_known = frame["bytes"].notna() & (frame["bytes"] >= 0).fillna(False)
    sink.drop("size: not a number or negative", int((~size_known).sum()), file)
    frame = frame[size_known.astype(bool)].assign(rank=rank, clock=CLOCK)
    columns: dict[str, Any] = {name: frame[name] for name in frame.columns}
    if len(frame):
        sink.add("memory_blocks", source=file, **columns)
    return frame


def _optional(name: str, texts: list[str], file: File, sink: Sink) -> pd.Series:
    """Numbers of a column that not every release has, empty where there is nothing to say."""
    found = numbers(texts)
    given = np.array([bool(text.strip()) for text in texts], dtype=bool)
    sink.drop(f"{name}: not a number", int((found.isna().to_numpy() & given).sum()), file)
    return found


def _places(cells: Mapping[str, list[str]], nothing: list[str]) -> pd.Series:
    """The stack of the script where one was recorded, else the line of the framework."""
    stacks, files, lines = (cells.get(name, nothing) for name in (STACK, "file_name", "line_num"))
    places = [
        stack.strip() or (f"{file.strip()}:{line.strip()}" if file.strip() else None)
        for stack, file, line in zip(stacks, files, lines, strict=True)
    ]
    return pd.Series(places, dtype="object")


def _note_peak(rank: int, blocks: pd.DataFrame, file: File, sink: Sink) -> None:
    """Say how large the peak was, and where the allocator states less than its blocks need."""
    peak = memory.live_peak(blocks)
    sink.note(
        f"rank {rank}: at most {format_bytes(peak.num_bytes)} were allocated at once, in {len(peak.blocks)} blocks, at event "
        f"{peak.moment} of the allocator"
    )
    for pool in memory.pools(blocks):
        if pool.reported_peak_bytes is not None and pool.live_peak_bytes > pool.reported_peak_bytes:
            more = format_bytes(pool.live_peak_bytes - pool.reported_peak_bytes)
            stated = format_bytes(pool.reported_peak_bytes)
            sink.note(f"{file.label}: blocks of {pool.pool} need {more} more than the peak that the allocator states, {stated}")


FORMAT = Format(
    name="memory-tracker",
    title="MindSpore memory tracker",
    looks_for="memory_block.csv or tracker_memory_block.csv, with the header start_time_stamp,end_time_stamp,device_addr,...",
    detail=2,
    detect=detect,
    read=read,
)
