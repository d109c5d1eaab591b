"""Kineto: JSON traces of the PyTorch profiler, one file a rank, plain or gzip, under any name.

A kernel belongs to the step (`ProfilerStep#n` on the host) in which it was launched: kernel and call carry one `correlation`. The
steps are then cut on the device timeline. A trace without steps is one step 0 from the first to the last device event; a trace
without device events has host times only, and says so.

Collectives carry what NCCL's metadata states. `bytes` is the larger of the input and the output, in elements, times the size of an
element, so that an all-gather and the reduce-scatter that undoes it are equally large. Their names count the operations of one
group and step: the k-th on one rank is the k-th on every rank, since all must issue them in one order.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.placement import members_text
from perfkit.core.shortening import enumerated
from perfkit.record import times, workers
from perfkit.record.accounts import Account
from perfkit.record.format import Format, Match, Sink, stacked
from perfkit.record.formats.kineto._columns import text
from perfkit.record.formats.kineto._counted import TABLE as COUNTED
from perfkit.record.formats.kineto._counted import read_counted
from perfkit.record.formats.kineto._events import Recording, read_recording
from perfkit.record.formats.kineto._groups import add_groups
from perfkit.record.formats.kineto._host import read_host
from perfkit.record.formats.kineto._inferred_groups import inferred_groups, operation_in
from perfkit.record.formats.kineto.files import find_traces, rank_in_name
from perfkit.record.listing import File, Listing
from perfkit.record.overlap import Timeline
from perfkit.record.placing import BEFORE, Ints, LaunchOrder, Marks
from perfkit.record.readers import host_tables, kinds
from perfkit.record.readers.chrome_counters import held
from perfkit.record.readers.losses import report_losses
from perfkit.record.readers.parts import begins_amid_events
from perfkit.record.rivals import left_out
from perfkit.record.steps import Window, add_host_steps, add_window_steps, begun_after, last_ends, windows_until

ELEMENT_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "byte", "char", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "complexhalf"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}
"""Size of an element by the name that PyTorch gives its type, in lower case."""

HOW_TO_COLLECT_KERNELS = (
    "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) on a device that is in use, and "
    "check that no other profiler holds it"
)
_GZIP_RATIO = 10
"""How much larger a trace is than its gzip file, about."""
_Marks = Mapping[int, tuple[File, Sequence[Window]]]
"""The file of each rank and its steps."""
_KERNEL_NAME = re.compile(r"[^(<\s]+")


def detect(listing: Listing) -> Match | None:
    """Traces by content: an object with Kineto's keys, or a list of events with Kineto's categories and no Ascend process."""
    files = find_traces(listing)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read the files one by one; of two files of one rank the later recording is kept."""
    found: dict[int, list[Recording]] = {}
    content_bytes = sum(file.size_bytes * (_GZIP_RATIO if file.is_gzip else 1) for file in match.files)
    for recording in workers.each(
        _read_file, match.files, report=sink.advance, name=lambda file: file.label, num_bytes=content_bytes
    ):
        report_losses(recording, sink)
        found.setdefault(_rank_of(recording, sink), []).append(recording)
    chosen = _chosen(found, sink)
    communication = {rank: _add_rank(sink, rank, chosen[rank]) for rank in sorted(chosen)}
    _tell_groups(sink, chosen, communication)
    for rank, rows in communication.items():
        _add_collectives(sink, rank, chosen[rank], rows)
        add_groups(sink, rank, chosen[rank])
    _add_facts(sink, [chosen[rank] for rank in sorted(chosen)])
    recorded = {rank: recording for rank, recording in chosen.items() if len(recording.device) or recording.host is not None}
    marks = {rank: (recording.file, recording.steps) for rank, recording in recorded.items()}
    counted = {rank: (recording.file, recording.steps) for rank, recording in chosen.items() if recording.has_counted}
    sink.recipe = [_noted(marks), _noted(counted)]
    _offer(sink, marks, counted)


def _chosen(found: Mapping[int, list[Recording]], sink: Sink) -> dict[int, Recording]:
    """One recording a rank: of the job that is shown, and of several of that the later one."""
    made_ns = {recording.file.path: _time_of(recording)[0] for every in found.values() for recording in every}
    paths = {rank: [recording.file.path for recording in every] for rank, every in found.items()}
    rivals = left_out(paths, made_ns.__getitem__, sink)
    chosen: dict[int, Recording] = {}
    for rank, every in found.items():
        for recording in every:
            if recording.file.path in rivals:
                sink.left_out(rank, recording.file, recording.num_spans, recording.num_lost)
            elif rank not in chosen:
                chosen[rank] = recording
            else:
                earlier, chosen[rank] = sorted((chosen[rank], recording), key=_time_of)
                sink.note(
                    f"two files are of rank {rank}: the later one, {chosen[rank].file.label}, is kept and {earlier.file.label} is "
                    "left out; if they are of different ranks, put rank<number> into their names"
                )
                sink.left_out(rank, earlier.file, earlier.num_spans, earlier.num_lost)
    return chosen


def offer_again(match: Match, sink: Sink, recipe: list[Any]) -> None:
    """Offer the host side of the ranks that `read` chose, with the steps that it found."""
    files = {str(file.relative): file for file in match.files}
    _offer(sink, *({rank: (files[name], [Window(*step) for step in steps]) for rank, name, steps in part} for part in recipe))


def _noted(marks: _Marks) -> list[Any]:
    return [
        [rank, str(file.relative), [[step.step, step.start_ns, step.end_ns] for step in steps]]
        for rank, (file, steps) in marks.items()
    ]


def _offer(sink: Sink, marks: _Marks, counted: _Marks) -> None:
    host_tables.offer(sink, marks, lambda rank: _host_side(*marks[rank]), counted=host_tables.TABLES)
    host_tables.offer(sink, counted, lambda rank: ([read_counted(*counted[rank])],), [COUNTED])


def _host_side(file: File, steps: Sequence[Window]) -> tuple[Iterable[pd.DataFrame], list[pd.DataFrame]]:
    """The tables `host` and `launches` of one rank."""
    side = read_host(file, steps)
    return side.host, [side.launches]


def _read_file(file: File, report: workers.Report) -> Recording:
    return read_recording(file, functools.partial(report, file.label))


def _rank_of(recording: Recording, sink: Sink) -> int:
    info = recording.head.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if type(rank) is int and 0 <= rank < 2**31:
        return rank
    if (named := rank_in_name(recording.file)) is not None:
        return named
    sink.note(f"{recording.file.label} does not say its rank, neither in distributedInfo nor in its name: taken as rank 0")
    return 0


def _time_of(recording: Recording) -> tuple[int, float]:
    """When a recording was made: its last device event or the end of the host, then the file's own time."""
    ends_ns = [window.end_ns for window in (*recording.steps, recording.host) if window is not None]
    starts = [frame["start_ns"].max() for frame in recording.executions()]
    ends_ns.extend(int(start_ns) for start_ns in starts if not pd.isna(start_ns))
    return max(ends_ns, default=0), recording.file.path.stat().st_mtime


def _add_rank(sink: Sink, rank: int, recording: Recording) -> pd.DataFrame:
    """Add all of a rank but its collectives; returns its communication kernels in the order of `recording.collectives`."""
    file = recording.file
    if recording.cut:
        steps = enumerated(recording.cut, 8)
        sink.note(f"{file.label} ends before step(s) {steps} of rank {rank} do: they are left out, with all that follows")
    state = "partial" if recording.damage or begins_amid_events(file.head) else None
    sink.cover(rank, "timeline", file, rows=recording.num_events, state=state if recording.num_events else "empty")
    for sampled in recording.samples():
        curve, samples = held(sampled)
        for table, rows in (("memory_curve", curve), ("counters", samples)):
            if len(rows):
                sink.add(table, source=file, rank=rank, **{str(name): rows[name] for name in rows.columns})
    device = _Device(recording, sink)
    if not len(recording.device):
        sink.account(rank, file, _account(recording, device, recording.steps, sink))
        _add_host_only(sink, rank, recording)
        return pd.DataFrame()
    kept = 0
    for kernels in device.frames():
        columns = {name: kernels[name] for name in ("step", "name", "kind", "stream", "start_ns", "duration_ns")}
        kept += sink.add("kernels", source=file, rank=rank, **columns)
    sink.cover(rank, "kernels", file, rows=kept, state=state)
    windows: list[Window] = []
    if device.timelines:
        timeline = Timeline.joined(device.timelines)
        whole = [Window(0, timeline.start_ns, timeline.end_ns)]
        windows = _step_windows(recording, device, sink) if recording.steps else whole
        add_window_steps(sink, rank=rank, windows=windows, kernels=timeline, marks=recording.steps)
    sink.account(rank, file, _account(recording, device, windows, sink))
    sink.cover(rank, "step times", file, rows=len(windows), state=state)
    if len(device.devices) > 1:
        sink.note(f"{file.label} has kernels of {len(device.devices)} devices; they are shown as one timeline of rank {rank}")
    return device.communication()


class _Device:
    """What follows from the executions of a recording, gathered while `frames` is gone through."""

    def __init__(self, recording: Recording, sink: Sink) -> None:
        self._sink = sink
        self.timelines: list[Timeline] = []
        self.ends: dict[int, int] = {}
        self.devices: set[str] = set()
        self.account = Account(in_file=recording.num_spans, lost=recording.num_lost)
        self.finished_ns = 0
        self.marks = Marks(recording.steps)
        launches = recording.launches
        self.calls = LaunchOrder(launches.get("correlation", ()), launches.get("start_ns", ()))
        self._communication: list[pd.DataFrame] = []
        self._told: list[npt.NDArray[np.bool_]] = []
        self._recording = recording

    def frames(self) -> Iterator[pd.DataFrame]:
        """The executions with their `step`."""
        stated = self._recording.collectives.get("row", pd.Series(dtype="int64")).to_numpy(dtype=np.int64)
        for rows in self._recording.executions():
            sound = self._sink.sound("kernels", rows, self._recording.file)
            self.account.lost += len(rows) - len(sound)
            correlations, starts_ns = (sound[name].to_numpy(dtype=np.int64) for name in ("correlation", "start_ns"))
            places = self.calls.places(correlations, starts_ns, self.marks)
            self.marks.count(self.account, places)
            kernels = sound.assign(step=self.marks.steps(places))
            first, last = np.searchsorted(stated, [rows.index.start, rows.index.stop])  # type: ignore[attr-defined]
            told = np.isin(stated[first:last], kernels.index.to_numpy(dtype=np.int64))
            self._told.append(told)
            self._communication.append(kernels.loc[stated[first:last][told]])
            self._gather(kernels, places)
            self.devices.update(map(str, kernels["device"].dropna().unique()))
            yield kernels

    def _gather(self, kernels: pd.DataFrame, places: Ints) -> None:
        if kernels.empty:
            return
        self.timelines.append(Timeline(kernels))
        earlier = kernels[places == BEFORE]
        self.finished_ns = max(self.finished_ns, int((earlier["start_ns"] + earlier["duration_ns"]).max() if len(earlier) else 0))
        for step, end_ns in last_ends(kernels).items():
            self.ends[step] = max(end_ns, self.ends.get(step, end_ns))

    def communication(self) -> pd.DataFrame:
        """The communication kernels in the order of `collectives`, of which those without a kernel are left out."""
        if len(self._recording.collectives):
            told = np.concatenate(self._told)
            self._recording.collectives = self._recording.collectives[told].reset_index(drop=True)
        return stacked(self._communication)


def _add_host_only(sink: Sink, rank: int, recording: Recording) -> None:
    windows = recording.steps or ([recording.host] if recording.host else [])
    add_host_steps(sink, rank=rank, windows=windows)
    sink.cover(rank, "kernels", None)
    sink.cover(rank, "step times", recording.file if windows else None, rows=len(windows), state="partial" if windows else None)
    sink.note(
        f"{recording.file.label}: no device kernels were recorded, so computing, communication and idle time of rank {rank} are "
        f"not measured (they are not zero). To collect them: {HOW_TO_COLLECT_KERNELS}"
    )


def _step_windows(recording: Recording, device: _Device, sink: Sink) -> list[Window]:
    """The steps on the device; the first one begins when the device has finished what was launched before it."""
    if before := device.account.before:
        sink.note(
            f"{recording.file.label}: {before} device event(s) were launched before the first recorded step; they belong to "
            "no step, and that step begins on the device when they have ended"
        )
    if after := device.account.after:
        sink.note(f"{recording.file.label}: {after} device event(s) were launched after the last recorded step")
    return windows_until(begun_after(recording.steps, device.finished_ns), device.ends)


def _account(recording: Recording, device: _Device, windows: Sequence[Window], sink: Sink) -> Account:
    """What became of all events: those of the host are placed by the marks, spans drawn on the device by the steps there."""
    account = device.account
    on_device = Marks(windows if recording.steps else ())
    for every in recording.others():
        rows = every[times.possible(every["start_ns"], recording.middle_ns)]
        account.lost += len(every) - len(rows)
        sink.drop("event of the host without a start of this recording", len(every) - len(rows), recording.file)
        starts, drawn = rows["start_ns"].to_numpy(), rows["on_device"].to_numpy()
        device.marks.count(account, device.marks.places(starts[~drawn]))
        on_device.count(account, on_device.places(starts[drawn]))
    return account


def _tell_groups(sink: Sink, chosen: Mapping[int, Recording], communication: Mapping[int, pd.DataFrame]) -> None:
    """Complete operations that state no group, where the ranks at hand are all of the job and show who left together."""
    if {_world_size(recording) for recording in chosen.values()} != {len(chosen)}:
        return
    unknown: dict[int, pd.DataFrame] = {}
    for rank, recording in chosen.items():
        rows = communication[rank].reset_index(drop=True)
        if len(rows):
            rows = rows.assign(operation=[kinds.operation_of(name) for name in rows["name"].astype(str)])
            unknown[rank] = rows[(recording.collectives["group"].isna() & (recording.collectives["group_size"] <= 0)).to_numpy()]
    groups = inferred_groups(unknown) if len(unknown) == len(chosen) else []
    for group in groups:
        members = [lane.rank for lane in group]
        name = "world" if len(members) == len(chosen) else f"ranks {members_text(members)}"
        for lane in group:
            stated, at = chosen[lane.rank].collectives, unknown[lane.rank].index[lane.rows]
            stated.loc[at, "group"] = name
            stated.loc[at, "group_size"] = len(members)
            stated.loc[at, "operation"] = [operation_in(group, operation) for operation in lane.operations]
    if groups:
        sink.note(f"{len(groups)} process group(s) are not stated; they were found by which ranks leave their collectives together")


def _add_collectives(sink: Sink, rank: int, recording: Recording, rows: pd.DataFrame) -> None:
    """Add the communication kernels `rows`, with their metadata."""
    stated = recording.collectives
    if stated.empty:
        return
    base = stated["operation"].where(stated["operation"].notna(), rows["name"].astype("object").map(_short_name))
    order = pd.DataFrame({"step": rows["step"].fillna(-1), "group": stated["group"].fillna(""), "start_ns": rows["start_ns"]})
    number = order.sort_values("start_ns", kind="stable").groupby(["step", "group"]).cumcount().sort_index()
    element_bytes = stated["element_type"].map(lambda name: ELEMENT_BYTES.get(name.lower(), 0), na_action="ignore").fillna(0)
    num_bytes = (stated["elements"] * element_bytes).astype("Int64")
    recorded = int(stated["operation"].notna().sum())
    kept = sink.add(
        "collectives",
        source=recording.file,
        rank=rank,
        step=rows["step"],
        name=base.astype(str) + "#" + number.astype(str),
        operation=[kinds.operation_of(name) for name in base],
        group=stated["group"],
        group_size=_known(stated["group_size"]),
        start_ns=rows["start_ns"],
        duration_ns=rows["duration_ns"],
        bytes=_known(num_bytes),
    )
    state = "partial" if recorded < len(stated) or recording.damage else None
    sink.cover(rank, "collectives", recording.file, rows=kept, state=state)
    if recorded < len(stated):
        sink.note(
            f"{recording.file.label}: {len(stated) - recorded} of {len(stated)} communication kernels carry no metadata, so their "
            "group and bytes are not known"
        )


def _known(values: pd.Series) -> pd.Series:
    """0 stands for: not recorded."""
    return values.astype("Int64").where(values > 0)


def _short_name(kernel: str) -> str:
    found = _KERNEL_NAME.match(kernel)
    return found[0] if found else kernel


def _add_facts(sink: Sink, recordings: Sequence[Recording]) -> None:
    sink.fact("num_events", sum(recording.num_events for recording in recordings), "traceEvents of the files that were read")
    for recording in recordings:
        if (world_size := _world_size(recording)) is not None:
            sink.fact("num_devices", world_size, f"{recording.file.label}, distributedInfo.world_size")
        if (name := _device_name(recording.head.get("deviceProperties"))) is not None:
            sink.fact("device_name", name, f"{recording.file.label}, deviceProperties")


def _world_size(recording: Recording) -> int | None:
    info = recording.head.get("distributedInfo")
    world_size = info.get("world_size") if isinstance(info, dict) else None
    return world_size if type(world_size) is int and world_size > 0 else None


def _device_name(properties: Any) -> str | None:
    first = properties[0] if isinstance(properties, list) and properties else None
    return text(first.get("name")) if isinstance(first, dict) else None


FORMAT = Format(
    name="kineto",
    title="Kineto trace of the PyTorch profiler (JSON)",
    looks_for="a .json or gzip file with traceEvents whose events have PyTorch's categories (cpu_op, kernel, cuda_runtime, ...)",
    detail=3,
    detect=detect,
    read=read,
    offer_again=offer_again,
)
