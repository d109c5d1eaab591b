"""PyTorch memory snapshot: what `torch.cuda.memory._dump_snapshot` (also of torch_npu and torch.xpu) writes, a pickle.

`segments` is what the allocator holds at the end; `device_traces` has, for each device, the allocations, releases and segments
since `_record_memory_history` began, in order. So the curve is counted backwards from the end: allocated bytes fall when a release
is requested, active ones when it is completed. A block whose allocation or release is not recorded has no start or no end. Nothing
of the pickle is run (`_plain_pickle`). Keys as in the docstring of `torch.cuda.memory._snapshot`; `time_us` exists since 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.core.errors import InputError
from perfkit.core.units import MIB, NS_PER_US
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.kineto.files import rank_in_name
from perfkit.record.formats.memory._plain_pickle import NotPlainError, load_plain
from perfkit.record.listing import File, Listing
from perfkit.record.readers.blocks import Blocks

MAX_BYTES = 512 * MIB
CLOCK_NS, CLOCK_EVENTS = "ns", "events of the allocator"
_NAME = re.compile(r"\.(?:pickle|pkl|snapshot)(?:\.gz)?$", re.IGNORECASE)
_PICKLE = re.compile(rb"\x80[\x02-\x05]|[(\]}]")
_KEYS = re.compile(rb"segments|device_traces|total_size|segment_type")
_LIBRARY = re.compile(r"(?:^|/)(?:torch|torch_npu)/|<\w+>$|\.(?:cpp|cc|cu|h)$|^\?\?$")
_GROWTH = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_INT64 = 2**63


@dataclass
class _Device:
    """The history of one device: columns of its blocks, and the changes of what was allocated, active and reserved."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    changes: list[tuple[int, int, int]] = field(default_factory=list)
    failed: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    timed: bool = True
    unread: int = 0


def detect(listing: Listing) -> Match | None:
    """Pickles that name the keys of a snapshot in their first 4 KiB."""
    named = [file for file in listing if listing.is_one_file or _NAME.search(file.name)]
    files = tuple(file for file in named if _PICKLE.match(file.head) and _KEYS.search(file.head))
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read the snapshots one by one; of two of one rank the first is kept and the other reported."""
    seen: dict[int, File] = {}
    for file in match.files:
        try:
            _add_snapshot(file, _content(file), seen, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
            sink.cover(rank_in_name(file) or 0, "memory blocks", file, state="partial")
        sink.advance(file.label, file.size_bytes)


def _pickle(file: File) -> bytes:
    """The pickle, also of a gzip file; raises InputError if it is too large or its gzip data are damaged."""
    blocks, pieces, num_bytes = Blocks(file), [], 0
    for piece in blocks:
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > MAX_BYTES:
            raise InputError(file.label, [f"is larger than {MAX_BYTES // MIB} MiB; record fewer entries (max_entries)"])
    if blocks.damage is not None:
        raise InputError(file.label, [blocks.damage])
    return b"".join(pieces)


def _content(file: File) -> Mapping[str, Any]:
    try:
        content = load_plain(_pickle(file))
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    except (NotPlainError, RecursionError) as error:
        raise InputError(file.label, [str(error)]) from error
    if isinstance(content, list):  # what torch.cuda.memory_snapshot() returns: the segments alone
        content = {"segments": content}
    if not isinstance(content, dict) or not isinstance(content.get("segments"), list):
        raise InputError(file.label, ["is a pickle, but no memory snapshot: it has no list of segments"])
    return content


def _add_snapshot(file: File, content: Mapping[str, Any], seen: dict[int, File], sink: Sink) -> None:
    """Add every device that has segments or a history; a process with several devices has a rank for each."""
    segments = _objects(content["segments"])
    traces = content.get("device_traces") or []
    traces = [_objects(trace) for trace in traces] if isinstance(traces, (list, tuple)) else []
    lost = len(content["segments"]) - len(segments)
    used = {number for number, trace in enumerate(traces) if trace} | {_int(segment.get("device")) or 0 for segment in segments}
    named = rank_in_name(file)
    if named is None:
        sink.note(f"{file.label} does not say its rank in its name: its devices are taken as ranks")
    for device in sorted(used) or [0]:
        rank = named if named is not None and len(used) < 2 else device
        if rank in seen:
            sink.drop(f"another memory snapshot of rank {rank}, of which {seen[rank].label} is read", 1, file)
            continue
        seen[rank] = file
        of_device = [segment for segment in segments if (_int(segment.get("device")) or 0) == device]
        history = _history(traces[device] if device < len(traces) else [])
        sink.drop("entry of the snapshot without an action, a size or an address", history.unread + lost, file)
        lost = 0
        _add_blocks(rank, history, of_device, file, sink)
        _add_curve(rank, history, of_device, file, sink)
        _add_failures(rank, history, file, sink)


def _history(trace: Sequence[Mapping[str, Any]]) -> _Device:
    """The blocks and changes of a trace; what has no action, size or address is counted."""
    found = _Device(timed=all("time_us" in entry for entry in trace))
    live: dict[int, dict[str, Any]] = {}
    for number, entry in enumerate(trace):
        action, size, address = entry.get("action"), _int(entry.get("size")), _int(entry.get("addr"))
        moment = (_int(entry.get("time_us")) or 0) * NS_PER_US if found.timed else number
        if action == "oom":
            found.failed.append((moment, entry))
        elif action in ("alloc", "free_requested", "free_completed") and size is not None and size >= 0 and address is not None:
            found.moments.append(moment)
            if action == "alloc":
                live[address] = block = _block(address, size, entry) | {"start": moment}
                found.blocks.append(block)
                found.changes.append((size, size, 0))
            elif action == "free_requested":
                found.changes.append((-size, 0, 0))
            else:
                if (known := live.pop(address, None)) is None:
                    found.blocks.append(known := _block(address, size, entry))
                known["end"] = moment
                found.changes.append((0, -size, 0))
        elif action in _GROWTH and size is not None and size >= 0:
            found.moments.append(moment)
            found.changes.append((0, 0, _GROWTH[str(action)] * size))
        elif action != "snapshot":
            found.unread += 1
    return found


def _block(address: int, size: int, entry: Mapping[str, Any], stream: Any = None) -> dict[str, Any]:
    name, place = _caller(entry.get("frames"))
    stream = _int(entry.get("stream", stream))
    return {
        "name": name,
        "place": place,
        "start": None,
        "end": None,
        "bytes": size,
        "address": hex(address),
        "stream": None if stream is None else str(stream),
    }


def _caller(frames: Any) -> tuple[str | None, str | None]:
    """The innermost function outside of PyTorch that asked for a block, else the innermost of all; and its line."""
    known = [frame for frame in _objects(frames) if isinstance(frame.get("filename"), str)]
    own = [frame for frame in known if not _LIBRARY.search(frame["filename"].replace("\\", "/"))]
    if not (found := (own or known)[:1]):
        return None, None
    frame = found[0]
    return str(frame.get("name") or frame["filename"]), f"{frame['filename']}:{frame.get('line')}"


def _add_blocks(rank: int, history: _Device, segments: Sequence[Mapping[str, Any]], file: File, sink: Sink) -> None:
    """The blocks of the history, and those that the allocator holds since before it."""
    known = {block["address"] for block in history.blocks if block["end"] is None}
    held = [
        _block(address, size, block, segment.get("stream"))
        for segment in segments
        for block, address in _addresses(segment)
        if str(block.get("state", "")).startswith("active") and (size := _int(block.get("size"))) and hex(address) not in known
    ]
    blocks = held + history.blocks
    rows = 0
    if blocks:
        columns: dict[str, Any] = {name: [block[name] for block in blocks] for name in blocks[0]}
        clock = CLOCK_NS if history.timed else CLOCK_EVENTS
        rows = sink.add("memory_blocks", source=file, rank=rank, clock=clock, **columns)
    sink.cover(rank, "memory blocks", file, rows=rows, state=None if rows else "empty")


def _addresses(segment: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], int]]:
    """The blocks of a segment with their addresses, which older versions leave to be counted from that of the segment."""
    at = _int(segment.get("address")) or 0
    for block in _objects(segment.get("blocks")):
        address = _int(block.get("address"))
        yield block, at if address is None else address
        at = (at if address is None else address) + (_int(block.get("size")) or 0)


def _add_curve(rank: int, history: _Device, segments: Sequence[Mapping[str, Any]], file: File, sink: Sink) -> None:
    if not history.changes or not history.timed:
        if history.changes:
            sink.note(f"{file.label} was written before PyTorch 2.2 and has no times: its blocks are in order, without a curve")
        return
    last = np.array([_sum(segments, name) for name in ("allocated_size", "active_size", "total_size")], dtype=np.int64)
    levels = np.cumsum(np.array(history.changes, dtype=np.int64), axis=0)
    levels += last - levels[-1]
    if (low := levels.min(axis=0)).min() < 0:
        sink.note(f"{file.label}: its history and its segments differ by {-int(low.min())} bytes; the curve begins at 0")
        levels -= np.minimum(low, 0)
    moments = np.array(history.moments, dtype=np.int64)
    order = np.argsort(moments, kind="stable")
    moments, levels = moments[order], levels[order]
    kept = np.append(moments[1:] != moments[:-1], True)
    rows = sink.add(
        "memory_curve",
        source=file,
        rank=rank,
        component="PyTorch allocator",
        time_ns=moments[kept],
        allocated_bytes=levels[kept, 0],
        active_bytes=levels[kept, 1],
        reserved_bytes=levels[kept, 2],
    )
    sink.cover(rank, "memory curve", file, rows=rows)


def _add_failures(rank: int, history: _Device, file: File, sink: Sink) -> None:
    for moment, entry in history.failed:
        size, free = _int(entry.get("size")), _int(entry.get("device_free"))
        text = f"{size} bytes did not fit" + (f"; the device had {free} bytes free" if free is not None else "")
        sink.add(
            "incidents",
            source=file,
            rank=rank,
            kind="out_of_memory",
            time_ns=moment if history.timed else None,
            file=file.label,
            text=text,
            requested_bytes=size,
            free_bytes=free,
        )


def _sum(segments: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(_int(segment.get(name)) or 0 for segment in segments)


def _objects(values: Any) -> list[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, (list, tuple)) else []


def _int(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < _INT64 else None


FORMAT = Format(
    name="torch-memory-snapshot",
    title="PyTorch memory snapshot",
    looks_for="a pickle with segments and device_traces, as torch.cuda.memory._dump_snapshot writes it",
    detail=2,
    detect=detect,
    read=read,
)
