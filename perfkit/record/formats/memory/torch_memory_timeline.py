"""PyTorch memory timeline: what `export_memory_timeline` of the profiler writes, as events (.raw.json.gz) or as sums (.json).

Events are [time in ns, or -1 for what existed before; action; bytes; category]; a change of category is an event that takes the
bytes from one category and one that adds them to the next. Sums are [times, rows], a row with one column more than there are
categories, of which the first is unused. Either way a component of the curve is a category, and "total" is their sum.
"""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError
from perfkit.core.units import MIB
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.kineto.files import rank_in_name
from perfkit.record.listing import File, Listing

CATEGORIES = ("parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown")
"""In the order of PyTorch's category numbers."""
TOTAL = "total"
MAX_BYTES = 512 * MIB
"""Decompressed; a timeline has some 30 bytes an allocation, so this is 16 million of them."""
_HEAD_EVENTS = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*\d\s*\]\s*[,\]]")
_HEAD_SUMS = re.compile(rb"\s*\[\s*\[\s*-?\d{15,19}\s*[,\]]")
_EVENT = re.compile(rb"\[\s*(-?\d{1,19})\s*,\s*([1-4])\s*,\s*(-?\d{1,18})\s*,\s*(\d)\s*\]")

Ints = npt.NDArray[np.int64]


def detect(listing: Listing) -> Match | None:
    """Lists of events or of times by their first bytes, in files of JSON; PyTorch's `.raw.json.gz` and `.json` among them."""
    named = [file for file in listing if listing.is_one_file or ".json" in file.name or ".raw" in file.name]
    files = tuple(file for file in named if _HEAD_EVENTS.match(file.head) or _HEAD_SUMS.match(file.head))
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read the files one by one; of two of one rank the first is kept and the other reported."""
    seen: dict[int, File] = {}
    for file in match.files:
        rank = rank_in_name(file)
        if rank is None:
            rank = 0
            sink.note(f"{file.label} does not say its rank in its name: taken as rank 0")
        if rank in seen:
            sink.drop(f"another memory timeline of rank {rank}, of which {seen[rank].label} is read", 1, file)
            continue
        seen[rank] = file
        whole = len(sink.dropped)
        rows = 0
        try:
            content = _content(file, sink)
            rows = _add_events(rank, content, file, sink) if _HEAD_EVENTS.match(content) else _add_sums(rank, content, file, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        sink.cover(rank, "memory curve", file, rows=rows, state="partial" if len(sink.dropped) > whole else None)
        sink.advance(file.label, file.size_bytes)


def _content(file: File, sink: Sink) -> bytes:
    """The decompressed content, as far as it goes; InputError if it is larger than it may be."""
    pieces: list[bytes] = []
    try:
        with gzip.open(file.path) if file.is_gzip else file.path.open("rb") as stream:
            while piece := stream.read(MIB):
                pieces.append(piece)
                if len(pieces) * MIB > MAX_BYTES:
                    raise InputError(file.label, [f"is larger than {MAX_BYTES} bytes when decompressed"])
    except (EOFError, zlib.error, gzip.BadGzipFile):
        sink.drop("the rest of a damaged gzip file", 1, file)
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    return b"".join(pieces)


def _add_events(rank: int, content: bytes, file: File, sink: Sink) -> int:
    try:
        events = np.array(msgspec.json.decode(content, type=list[tuple[int, int, int, int]]), dtype=np.int64)
    except (msgspec.DecodeError, OverflowError):
        found = list(_EVENT.finditer(content))
        events = np.array([[int(number) for number in event.groups()] for event in found], dtype=np.int64).reshape(-1, 4)
        rest = len(content) - (found[-1].end() if found else 0)
        sink.drop("bytes after the break of a cut or damaged file, the missing end included", rest + 1, file)
    good = (events[:, 3] >= 0) & (events[:, 3] < len(CATEGORIES)) & (events[:, 1] >= 1) & (events[:, 1] <= 4)
    sink.drop("event of an unknown action or category", int((~good).sum()), file)
    events = events[good]
    if not len(events):
        raise InputError(file.label, ["has no memory event that can be read"])
    times = events[:, 0].copy()
    known = times >= 0
    times[~known] = times[known].min() if known.any() else 0
    order = np.argsort(times, kind="stable")
    times, sizes, categories = times[order], events[order, 2], events[order, 3]
    rows = 0
    for number, name in enumerate(CATEGORIES):
        of_category = categories == number
        rows += _add_curve(sink, file, rank, name, times=times[of_category], levels=np.cumsum(sizes[of_category]))
    return rows + _add_curve(sink, file, rank, TOTAL, times=times, levels=np.cumsum(sizes))


def _add_sums(rank: int, content: bytes, file: File, sink: Sink) -> int:
    try:
        times, rows = msgspec.json.decode(content, type=tuple[list[int], list[list[int]]])
    except msgspec.DecodeError as error:
        raise InputError(file.label, [f"is no whole memory timeline: {error}"]) from error
    width = len(CATEGORIES) + 1
    if len(times) != len(rows) or any(len(row) != width for row in rows):
        raise InputError(file.label, [f"has {len(times)} times and {len(rows)} rows; each row must have {width} columns"])
    moments, sizes = np.array(times, dtype=np.int64), np.array(rows, dtype=np.int64).reshape(-1, width)
    curves: dict[str, Any] = {name: sizes[:, number + 1] for number, name in enumerate(CATEGORIES)}
    curves[TOTAL] = sizes.sum(axis=1)
    return sum(_add_curve(sink, file, rank, name, times=moments, levels=levels) for name, levels in curves.items() if levels.any())


def _add_curve(sink: Sink, file: File, rank: int, component: str, *, times: Ints, levels: Ints) -> int:
    """Add the level of a component at the end of every moment at which it changes."""
    if not len(times):
        return 0
    last = np.append(times[1:] != times[:-1], True)
    return sink.add("memory_curve", source=file, rank=rank, component=component, time_ns=times[last], allocated_bytes=levels[last])


FORMAT = Format(
    name="torch-memory-timeline",
    title="PyTorch memory timeline",
    looks_for="a list of [time, action, bytes, category], or [times, sums], plain or gzip, as export_memory_timeline writes it",
    detail=2,
    detect=detect,
    read=read,
)
