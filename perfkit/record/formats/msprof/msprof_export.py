"""msprof exports: PROF_* folders with their timelines (msprof*.json) and kernels (op_summary*.csv), in the old and the new layout.

Kernels come from op_summary, else from the device tasks of the timeline. A step is an iteration that the device counted, from the
end of the one before (so with its wait for data) or, without that, from its own start; without iterations the whole recording is
one step 0. Monotonic times become the time of day where start_info says how.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record.accounts import Account
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend import folders
from perfkit.record.formats.ascend.host import MONOTONIC_BELOW_NS, offer_host, read_host
from perfkit.record.formats.ascend.kernels import read_kernels
from perfkit.record.formats.ascend.steps import compare_with_lanes
from perfkit.record.formats.ascend.trace import Recording, read_recording
from perfkit.record.formats.msprof._files import (
    KERNELS,
    KINDS,
    MARKS,
    READ,
    TIMELINE,
    Export,
    find_exports,
    settings_of,
    with_settings,
)
from perfkit.record.listing import File, Listing
from perfkit.record.overlap import Timeline
from perfkit.record.placing import Marks, account_of
from perfkit.record.readers import kinds
from perfkit.record.steps import Window, add_window_steps

_ALIASES = {
    "Name": "Op Name",
    "Type": "OP Type",
    "Accelerator Core": "Task Type",
    "Start Time(us)": "Task Start Time(us)",
    "Duration(us)": "Task Duration(us)",
    "Wait Time(us)": "Task Wait Time(us)",
}
"""Columns of op_summary that kernel_details.csv calls otherwise."""
_GROUP = re.compile(r"__(\w+?)_\d+_\d+$")
_COLUMNS = (
    "step",
    "name",
    "type",
    "core",
    "kind",
    "stream",
    "start_ns",
    "duration_ns",
    "wait_ns",
    "input_shapes",
    "input_dtypes",
)


@dataclass
class _Device:
    """What was read of one device: `kernels` as in their table, `marks` of iterations, lanes, rows and damage by kind of file.

    `lost` counts rows of tables that could not be read; `timelines` has those read, and whether each is of one iteration.
    """

    kernels: pd.DataFrame | None = None
    marks: dict[int, Window] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    timelines: list[tuple[Recording, bool]] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)


def detect(listing: Listing) -> Match | None:
    """PROF_* folders, or the folders and files of an export, unless a rank folder around them has output of its own."""
    exports = find_exports(listing, _rank_folders(listing))
    files = dict.fromkeys(part.file for export in exports for kind in READ for part in export.parts.get(kind, ()))
    return Match(files=tuple(files), details=(listing, exports)) if files else None


def _rank_folders(listing: Listing) -> list[Path]:
    """Folders with output of the framework's profiler, for which a PROF_* folder below them is the raw recording."""
    outputs = [file for file in listing if file.path.parent.name == folders.OUTPUT and file.size_bytes]
    return [folders.home_of(file.path.parent) for file in outputs]


def read(match: Match, sink: Sink) -> None:
    """Read all devices; a file that cannot be read is counted in `dropped` and shown as partial or empty in `coverage`."""
    listing, found = match.details
    exports = with_settings(found, settings_of(listing, found), sink)
    sides: dict[int, tuple[list[File], pd.DataFrame, int]] = {}
    for rank, export in _ranks(exports, sink).items():
        device = _read_device(export, sink)
        if device.kernels is not None and len(device.kernels):
            _add(rank, export, device, sink)
            if TIMELINE in export.parts and not export.iterations:
                sides[rank] = ([part.file for part in export.parts[TIMELINE]], device.kernels, export.clock_ns or 0)
        _cover(rank, export, device, sink)
    offer_host(sink, {rank: files for rank, (files, *_) in sides.items()}, lambda rank: read_host(*sides[rank]))


def _ranks(exports: list[Export], sink: Sink) -> dict[int, Export]:
    """The exports by rank: as stated, else in the order of their folders; of two of one rank the later folder."""
    ranks: dict[int, Export] = {}
    for export in sorted((export for export in exports if export.rank is not None), key=lambda export: export.label):
        assert export.rank is not None
        if export.rank in ranks:
            earlier = ranks[export.rank]
            sink.drop(f"another export of rank {export.rank}, recorded earlier than {export.label}", 1, earlier.label)
        ranks[export.rank] = export
    for export in (export for export in exports if export.rank is None):
        rank = next(number for number in range(len(exports) + 1) if number not in ranks)
        ranks[rank] = export
        if len(exports) > 1:
            sink.note(f"{export.label} does not say its rank; it is taken for rank {rank}")
    return dict(sorted(ranks.items()))


def _read_device(export: Export, sink: Sink) -> _Device:
    device = _Device()
    recordings = _read_timelines(export, device, sink)
    tables = [
        table for part in export.parts.get(KERNELS, ()) if (table := _read_table(part.file, export, device, sink)) is not None
    ]
    if tables:
        device.kernels = pd.concat(tables, ignore_index=True)
    elif recordings:
        device.kernels = pd.concat(recordings, ignore_index=True)
    if device.kernels is not None:
        device.kernels = _on_the_clock(device.kernels, export)
    return device


def _read_timelines(export: Export, device: _Device, sink: Sink) -> list[pd.DataFrame]:
    """The device tasks of every timeline; marks of iterations also from the step trace, of which each file has all."""
    rows = []
    names: dict[str, str] = {}
    for kind in (MARKS, TIMELINE):
        for part in export.parts.get(kind, ()):
            recording = _read_json(part.file, kind, names if kind == TIMELINE else {}, device, sink)
            if recording is None:
                continue
            device.timelines.append((recording, export.iterations and kind == TIMELINE))
            for window in recording.steps:
                device.marks.setdefault(window.step, window)
            if kind == MARKS:
                continue
            step = part.number if export.iterations else None
            sound = sink.sound("kernels", recording.device, part.file)
            recording.num_lost += len(recording.device) - len(sound)
            recording.device = sound
            rows.append(sound.assign(step=pd.Series(step, index=sound.index, dtype="Int64")))
            for lane, total_ns in recording.lanes.items():
                device.lanes[lane] = device.lanes.get(lane, 0) + total_ns
    return rows


def _read_json(file: File, kind: str, names: dict[str, str], device: _Device, sink: Sink) -> Recording | None:
    if file.size_bytes == 0:
        sink.drop("the file is empty (0 bytes)", 1, file)
        return None
    recording = read_recording(file, functools.partial(sink.advance, file.label), names)
    for reason, count in recording.lost.items():
        sink.drop(reason, count, file)
    if recording.damage:
        sink.note(f"{file.label} is damaged: {recording.damage}; everything complete before that was read")
    if recording.damage or recording.lost:
        device.damaged.add(kind)
    device.rows[kind] = device.rows.get(kind, 0) + recording.num_events
    return recording


def _read_table(file: File, export: Export, device: _Device, sink: Sink) -> pd.DataFrame | None:
    whole = len(sink.dropped)
    try:
        kernels, lost = read_kernels(file, 0, sink, aliases=_ALIASES, device=export.device)
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
        kernels, lost = None, 0
    device.lost += lost
    sink.advance(file.label, file.size_bytes)
    if len(sink.dropped) > whole:
        device.damaged.add(KERNELS)
    if kernels is None:
        return None
    device.rows[KERNELS] = device.rows.get(KERNELS, 0) + len(kernels)
    return kernels.drop(columns="rank")


def _on_the_clock(kernels: pd.DataFrame, export: Export) -> pd.DataFrame:
    good = kernels["duration_ns"].notna() & (kernels["duration_ns"] >= 0).fillna(False)
    kernels = kernels[good.astype(bool)].reset_index(drop=True)
    return kernels.assign(start_ns=kernels["start_ns"] + _offset_ns(kernels, export))


def _offset_ns(kernels: pd.DataFrame, export: Export) -> int:
    starts = kernels["start_ns"].dropna()
    monotonic = len(starts) > 0 and 0 <= int(starts.max()) < MONOTONIC_BELOW_NS
    return export.clock_ns if monotonic and export.clock_ns is not None else 0


def _windows(device: _Device, kernels: pd.DataFrame) -> list[Window]:
    """The iterations that have kernels, each from the end of the one before it, on the clock of the kernels."""
    found = {int(step) for step in kernels["step"].dropna().unique()}
    windows = []
    for step in sorted(found & set(device.marks)):
        mark, before = device.marks[step], device.marks.get(step - 1)
        start_ns = before.end_ns if before is not None and before.end_ns <= mark.start_ns else mark.start_ns
        windows.append(Window(step, start_ns, mark.end_ns))
    return windows


def _add(rank: int, export: Export, device: _Device, sink: Sink) -> None:
    assert device.kernels is not None
    kernels = device.kernels
    offset_ns = export.clock_ns if export.clock_ns is not None and _is_monotonic(device.marks) else 0
    device.marks = {
        step: Window(step, mark.start_ns + offset_ns, mark.end_ns + offset_ns) for step, mark in sorted(device.marks.items())
    }
    kernels["step"] = kernels["step"].where(kernels["step"].notna(), _steps_by_time(kernels, device.marks))
    if kernels["step"].isna().all():
        kernels["step"] = pd.Series(0, index=kernels.index, dtype="Int64")
    columns: dict[str, Any] = {name: kernels[name] for name in _COLUMNS if name in kernels}
    sink.add("kernels", rank=rank, **columns)
    if KERNELS in device.rows:
        sink.account(rank, export.parts[KERNELS][0].file, account_of(kernels, device.lost))
    _account_for_timelines(rank, device, sink)
    timed = kernels[kernels["start_ns"].notna()]
    timeline = Timeline(timed)
    windows = _windows(device, timed) or [
        Window(step, Timeline(rows).start_ns, Timeline(rows).end_ns)
        for step in sorted({int(number) for number in timed["step"].dropna()})
        for rows in [timed[timed["step"] == step]]
    ]
    add_window_steps(sink, rank=rank, windows=windows, kernels=timed)
    compare_with_lanes(sink, export.label, device.lanes, timeline)
    _add_collectives(rank, kernels, sink)


def _account_for_timelines(rank: int, device: _Device, sink: Sink) -> None:
    """Say what became of the spans of all timelines: those of one iteration are its own, others are placed by when they began."""
    for recording, of_iteration in device.timelines:
        account = Account(in_file=recording.num_spans, lost=recording.num_lost)
        marks = Marks(() if of_iteration else recording.steps)
        for spans in (recording.beside, recording.device):
            if len(spans):
                marks.count(account, marks.places(spans["start_ns"].to_numpy(dtype=np.int64)))
        sink.account(rank, recording.file, account)


def _is_monotonic(marks: dict[int, Window]) -> bool:
    return all(mark.end_ns < MONOTONIC_BELOW_NS for mark in marks.values())


def _steps_by_time(kernels: pd.DataFrame, marks: dict[int, Window]) -> pd.Series:
    """The iteration in which each kernel starts; null outside of all."""
    steps = pd.Series(pd.NA, index=kernels.index, dtype="Int64")
    timed = kernels["start_ns"].notna().to_numpy(dtype=bool)
    if marks and timed.any():
        of = Marks(list(marks.values()))
        steps[timed] = of.steps(of.places(kernels.loc[timed, "start_ns"].to_numpy(dtype=np.int64)))
    return steps


def _add_collectives(rank: int, kernels: pd.DataFrame, sink: Sink) -> None:
    rows = kernels[kernels["kind"] == "communication"]
    if len(rows):
        sink.add(
            "collectives",
            rank=rank,
            step=rows["step"],
            name=rows["name"],
            operation=[kinds.operation_of(name) for name in rows["name"]],
            group=[found[1] if (found := _GROUP.search(name)) else None for name in rows["name"]],
            start_ns=rows["start_ns"],
            duration_ns=rows["duration_ns"],
        )


def _cover(rank: int, export: Export, device: _Device, sink: Sink) -> None:
    for kind, part in KINDS.items():
        files = [part.file for part in export.parts.get(kind, ())]
        if not files and kind not in READ:
            continue
        file = next((file for file in files if file.size_bytes), files[0] if files else None)
        state = "partial" if kind in device.damaged else None
        if kind == KERNELS and device.kernels is not None and kind not in device.rows:
            file, state = export.parts[TIMELINE][0].file, "partial"
        sink.cover(rank, part, file, rows=device.rows.get(kind), state=state)


FORMAT = Format(
    name="msprof-export",
    title="msprof export (PROF_* folders)",
    looks_for="msprof*.json or op_summary*.csv below mindstudio_profiler_output or device_<k>/timeline of a PROF_* folder",
    detail=3,
    detect=detect,
    read=read,
)
