"""Exports of msprof: which files of a PROF_* folder belong to which device, in which order, and when its clock began.

Older tools write one file an iteration, `device_<k>/{timeline,summary}/<kind>_<device>_<model>_<iteration>.<json|csv>`, with the
monotonic clock; newer ones `mindstudio_profiler_output/<kind>[_slice_<k>]_<time>.<json|csv>` with the time of day, where slices
continue one another. `start_info.<k>` says which time of day a monotonic time is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_US
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.communication import is_rank
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File, Listing, printable

TIMELINE, KERNELS, MARKS = "msprof", "op_summary", "step_trace"
KINDS = {
    TIMELINE: "timeline",
    KERNELS: "kernels",
    MARKS: "step times",
    "op_statistic": "operator statistics",
    "api_statistic": "host calls",
    "communication_statistic": "communication statistics",
    "hccl": "communication timeline",
    "task_time": "task times",
    "memory_record": "memory curve",
    "operator_memory": "memory blocks",
    "npu_module_mem": "memory of modules",
}
READ = (TIMELINE, KERNELS, MARKS)
_OUTPUT = "mindstudio_profiler_output"
_ENDING = r"\.(?:json|csv)(?:\.gz)?$"
_NEW = re.compile(rf"^([a-z_]+?)(?:_slice_(\d{{1,6}}))?_(\d{{8,20}}){_ENDING}")
_OLD = re.compile(rf"^([a-z_]+?)_(\d{{1,4}})_(\d{{1,10}})_(\d{{1,10}}){_ENDING}")
_ALONE = re.compile(rf"^(msprof|op_summary)\w*{_ENDING}")
_DEVICE_FOLDER = re.compile(r"^device_(\d{1,4})$")
_EVENTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*(?:\{(?s:.*)"ph"\s*:|\])')


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a kind: `model` and `number` of its iteration, or `number` of its slice and `time` of the export."""

    file: File
    model: int | None
    number: int
    time: str = ""


@dataclass
class Export:
    """What msprof exported of one device; `clock_ns` added to a monotonic time gives the time of day."""

    folder: Path
    label: str
    device: int | None
    rank: int | None = None
    clock_ns: int | None = None
    parts: dict[str, list[Part]] = field(default_factory=dict)

    @property
    def iterations(self) -> bool:
        """Whether it has one file an iteration."""
        return any(part.model is not None for part in self.parts.get(TIMELINE, ()))


def find_exports(listing: Listing, taken: Iterable[Path]) -> list[Export]:
    """The exports of a listing with a timeline or kernels, without those below the folders `taken` by another format."""
    exports: dict[tuple[Path, int | None], Export] = {}
    refused = set(taken)
    for file in listing:
        placed = _place(file, listing)
        if placed is None or refused & set(file.path.parents):
            continue
        kind, folder, device, part = placed
        label = printable(str(folder.relative_to(listing.root))) if folder.is_relative_to(listing.root) else printable(folder.name)
        export = exports.setdefault((folder, device), Export(folder, label, device))
        export.parts.setdefault(kind, []).append(part)
    return [_ordered(export) for export in exports.values() if TIMELINE in export.parts or KERNELS in export.parts]


def _place(file: File, listing: Listing) -> tuple[str, Path, int | None, Part] | None:
    """What a file is, the PROF folder and device that it is of, and its place in order; None if it is no export."""
    folder = file.path.parent
    device = _DEVICE_FOLDER.match(folder.parent.name) if folder.name in ("timeline", "summary") else None
    if (found := _OLD.match(file.name)) and device is not None and found[1] in KINDS:
        part = Part(file, int(found[3]), int(found[4]))
        return (found[1], folder.parent.parent, int(device[1]), part) if _fits(file, found[1]) else None
    if (found := _NEW.match(file.name)) and found[1] in KINDS and _fits(file, found[1]):
        prof = folder.parent if folder.name == _OUTPUT else folder
        if folder.name == _OUTPUT or found[1] in READ:
            return found[1], prof, None, Part(file, None, int(found[2] or 0), found[3])
    if (found := _ALONE.match(file.name)) and listing.is_one_file and _fits(file, found[1]):
        return found[1], folder, None, Part(file, None, 0)
    return None


def _fits(file: File, kind: str) -> bool:
    if file.size_bytes == 0 or kind not in READ:
        return True
    return b"Op Name" in file.head if kind == KERNELS else _EVENTS.match(file.head) is not None


def _ordered(export: Export) -> Export:
    """Its parts in order: of several exports the latest, of several models the one with most iterations."""
    for kind, parts in export.parts.items():
        if kind in READ and export.iterations:
            models = [part.model for part in parts]
            chosen = max(set(models), key=lambda model: (models.count(model), -(model or 0)))
            export.parts[kind] = sorted((part for part in parts if part.model == chosen), key=lambda part: part.number)
        else:
            latest: dict[int, Part] = {}
            for part in sorted(parts, key=lambda part: (part.time, part.file.label)):
                latest[part.number] = part
            export.parts[kind] = [latest[number] for number in sorted(latest)]
    return export


def settings_of(listing: Listing, exports: list[Export]) -> dict[tuple[Path, int], dict[str, File]]:
    """info.json.<k> and start_info.<k> of the devices of the exports, by PROF folder and device."""
    folders = {export.folder for export in exports}
    found: dict[tuple[Path, int], dict[str, File]] = {}
    for file in listing:
        kind, _, number = file.name.rpartition(".")
        if kind in ("info.json", "start_info") and number.isdecimal() and len(number) < 5 and file.path.parent.parent in folders:
            found.setdefault((file.path.parent.parent, int(number)), {})[kind] = file
    return found


def with_settings(exports: list[Export], settings: dict[tuple[Path, int], dict[str, File]], sink: Sink) -> list[Export]:
    """The exports with rank and clock; an export of several devices becomes one of each, in which only kernels are told apart."""
    found: list[Export] = []
    for export in exports:
        devices: list[int | None] = [*sorted(device for folder, device in settings if folder == export.folder)] or [None]
        if export.device is not None:
            devices = [export.device]
        for device in devices:
            parts = export.parts
            if len(devices) > 1:
                parts = {kind: files for kind, files in parts.items() if kind == KERNELS}
                sink.note(f"{export.label} holds {len(devices)} devices in one export: of each only {KERNELS} is read")
            one = Export(export.folder, export.label, device, parts=parts)
            _describe(one, settings.get((export.folder, -1 if device is None else device), {}), sink)
            found.append(one)
    return found


def _describe(export: Export, files: dict[str, File], sink: Sink) -> None:
    rank = _settings(files.get("info.json"), sink).get("rank_id")
    if is_rank(rank):
        export.rank = rank
    begin = _settings(files.get("start_info"), sink)
    wall_us, monotonic_ns = (_whole(begin.get(key)) for key in ("collectionTimeBegin", "clockMonotonicRaw"))
    if wall_us is not None and monotonic_ns is not None:
        export.clock_ns = wall_us * NS_PER_US - monotonic_ns


def _settings(file: File | None, sink: Sink) -> dict[str, Any]:
    if file is None or file.size_bytes == 0:
        return {}
    try:
        content, _ = read_json(file, depth=1)
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
        return {}
    return dict(content) if isinstance(content, dict) else {}


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and 0 <= value < 2**60 else None
