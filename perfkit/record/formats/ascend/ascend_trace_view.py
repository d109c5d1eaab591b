"""Ascend trace_view.json on its own: the timeline of a rank without the tables that the profiler writes beside it.

Where kernel_details.csv lies in the same folder, that folder is read by its tables instead. A device task belongs to the step
(`ProfilerStep#n` on the host) in which it was launched, by its flow, or, without one, in which it starts; the steps are then cut
on the device timeline. The profiler's own lanes Computing and Communication are compared with the sums made here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from perfkit.record.accounts import Account
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend.host import offer_host, read_host
from perfkit.record.formats.ascend.steps import compare_with_lanes
from perfkit.record.formats.ascend.trace import Recording, read_recording
from perfkit.record.formats.kineto.files import rank_in_name
from perfkit.record.listing import File, Listing
from perfkit.record.overlap import Timeline
from perfkit.record.placing import BEFORE, Ints, Marks
from perfkit.record.readers import kinds
from perfkit.record.readers.losses import report_losses
from perfkit.record.steps import Window, add_host_steps, add_window_steps, begun_after, device_windows

ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("INT8", "UINT8"), 1),
    **dict.fromkeys(("FP16", "BFP16", "INT16", "UINT16"), 2),
    **dict.fromkeys(("FP32", "INT32", "UINT32"), 4),
    **dict.fromkeys(("FP64", "INT64", "UINT64"), 8),
}
"""Size of an element by the name that HCCL gives its type."""

_LIST = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{(?s:.*)"ph"\s*:')
_INFO = re.compile(r"profiler_info_(\d{1,9})\.json$")
_OPERATION_NAME = re.compile(r"__(\w+?)_\d+_\d+$")


def detect(listing: Listing) -> Match | None:
    """Lists of events called trace_view*.json that have no kernel_details.csv beside them."""
    described = {file.path.parent for file in listing.named("kernel_details.csv")}
    files = tuple(file for file in listing if _is_trace(file) and file.path.parent not in described)
    if not files:
        return None
    infos = {file.path.parent: int(found[1]) for file in listing if (found := _INFO.match(file.name))}
    ranks = {file: _rank(file, infos) for file in files}
    return Match(files=files, details=ranks)


def _is_trace(file: File) -> bool:
    return file.name.startswith("trace_view") and _LIST.match(file.head) is not None


def _rank(file: File, infos: Mapping[Path, int]) -> int | None:
    """The rank that profiler_info_<rank>.json beside or above the file states, else the one in its name or folders."""
    for folder in (file.path.parent, file.path.parent.parent):
        if folder in infos:
            return infos[folder]
    return rank_in_name(file)


def read(match: Match, sink: Sink) -> None:
    """Read the files one by one; of two files of one rank the later recording is kept."""
    chosen: dict[int, Recording] = {}
    for file in match.files:
        recording = read_recording(file, functools.partial(sink.advance, file.label))
        report_losses(recording, sink)
        sound = sink.sound("kernels", recording.device, file).reset_index(drop=True)
        recording.num_lost += len(recording.device) - len(sound)
        recording.device = sound
        rank = match.details[file]
        if rank is None:
            sink.note(f"{file.label} does not say its rank, neither by profiler_info_<rank>.json nor in its name: taken as rank 0")
            rank = 0
        if rank in chosen:
            earlier, recording = sorted((chosen[rank], recording), key=_end_ns)
            sink.left_out(rank, earlier.file, earlier.num_spans, earlier.num_lost)
            sink.note(f"two files are of rank {rank}: {recording.file.label} is later and kept, {earlier.file.label} is left out")
        chosen[rank] = recording
    for rank in sorted(chosen):
        _add_rank(sink, rank, chosen[rank])
    sides = {rank: ([item.file], item.device.assign(step=_steps_of(item))) for rank, item in chosen.items() if len(item.device)}
    offer_host(sink, {rank: files for rank, (files, _) in sides.items()}, lambda rank: read_host(*sides[rank]))
    sink.fact("num_events", sum(recording.num_events for recording in chosen.values()), "events of the files that were read")


def _end_ns(recording: Recording) -> int:
    ends_ns = [window.end_ns for window in recording.steps]
    if len(recording.device) and recording.device["start_ns"].notna().any():
        ends_ns.append(int(recording.device["start_ns"].max()))
    return max(ends_ns, default=0)


def _add_rank(sink: Sink, rank: int, recording: Recording) -> None:
    file, state = recording.file, "partial" if recording.damage else None
    marks = Marks(recording.steps)
    sink.cover(rank, "timeline", file, rows=recording.num_events, state=state)
    if recording.device.empty:
        add_host_steps(sink, rank=rank, windows=recording.steps)
        sink.account(rank, file, _account(recording, marks, marks))
        sink.cover(rank, "kernels", None)
        sink.note(
            f"{file.label}: no device tasks were recorded, so computing, communication and idle time of rank {rank} are not "
            "measured (they are not zero). To collect them: profile with activities CPU and NPU"
        )
        return
    kernels = recording.device.assign(step=_steps_of(recording))
    columns = ("step", "name", "core", "kind", "stream", "start_ns", "duration_ns")
    kept = sink.add("kernels", source=file, rank=rank, **{name: kernels[name] for name in columns})
    sink.cover(rank, "kernels", file, rows=kept, state=state)
    _add_collectives(sink, rank, recording, kernels)
    timeline = Timeline(kernels)
    whole = [Window(0, timeline.start_ns, timeline.end_ns)]
    windows = _device_windows(recording, kernels) if recording.steps else whole
    add_window_steps(sink, rank=rank, windows=windows, kernels=timeline, marks=recording.steps)
    sink.account(rank, file, _account(recording, marks, Marks(windows if recording.steps else ())))
    sink.cover(rank, "step times", file, rows=len(windows), state=state)
    compare_with_lanes(sink, file.label, recording.lanes, timeline)


def _steps_of(recording: Recording) -> pd.Series:
    """The step in which each device task was launched, or starts if its launch is not recorded."""
    marks = Marks(recording.steps)
    return pd.Series(marks.steps(_places(recording, marks)), index=recording.device.index)


def _places(recording: Recording, marks: Marks) -> Ints:
    return marks.places(recording.device["launch_ns"].fillna(recording.device["start_ns"]).to_numpy(dtype=np.int64))


def _device_windows(recording: Recording, kernels: pd.DataFrame) -> list[Window]:
    """The steps on the device; the first one begins when the device has finished what was launched before it."""
    earlier = kernels[_places(recording, Marks(recording.steps)) == BEFORE]
    finished_ns = int((earlier["start_ns"] + earlier["duration_ns"]).max()) if len(earlier) else 0
    return device_windows(begun_after(recording.steps, finished_ns), kernels)


def _account(recording: Recording, marks: Marks, on_device: Marks) -> Account:
    """What became of all spans: those of the device's own lanes are placed by the steps there, all others by the marks."""
    account = Account(in_file=recording.num_spans, lost=recording.num_lost)
    if len(recording.device):
        marks.count(account, _places(recording, marks))
    if len(recording.beside):
        starts, drawn = recording.beside["start_ns"].to_numpy(), recording.beside["on_device"].to_numpy()
        marks.count(account, marks.places(starts[~drawn]))
        on_device.count(account, on_device.places(starts[drawn]))
    return account


def _add_collectives(sink: Sink, rank: int, recording: Recording, kernels: pd.DataFrame) -> None:
    rows = kernels[kernels["kind"] == "communication"]
    if rows.empty:
        return
    element_bytes = rows["element_type"].map(ELEMENT_BYTES).astype("Int64")
    kept = sink.add(
        "collectives",
        source=recording.file,
        rank=rank,
        step=rows["step"],
        name=rows["name"],
        operation=[kinds.operation_of(name) for name in rows["name"]],
        group=[_group(name, thread) for name, thread in zip(rows["name"], rows["stream"], strict=True)],
        start_ns=rows["start_ns"],
        duration_ns=rows["duration_ns"],
        bytes=rows["elements"] * element_bytes,
    )
    sink.cover(rank, "collectives", recording.file, rows=kept, state="partial" if recording.damage else None)


def _group(name: str, thread: str) -> str:
    """The group that the name of an operation holds, as in hcom_allReduce__868_0_1; else its thread."""
    found = _OPERATION_NAME.search(name)
    return found[1] if found else thread


FORMAT = Format(
    name="ascend-trace-view",
    title="Ascend timeline (trace_view.json without its tables)",
    looks_for="trace_view.json, a list of events, in a folder without kernel_details.csv",
    detail=3,
    detect=detect,
    read=read,
)
