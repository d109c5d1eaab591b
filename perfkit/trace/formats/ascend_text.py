"""Ascend profiler, text output: one folder a rank (`*_ascend_pt`, `*_ascend_ms`), of PyTorch or MindSpore, at any depth.

Steps come from step_trace_time.csv, kernels from kernel_details.csv, sizes and waits of collectives from communication.json, links
from communication_matrix.json, the layout from profiler_metadata.json. Where a step summary is missing or broken the step is
computed from its kernels. The summary and the kernels are compared, and what differs is noted. In `links`, operations whose name
contains "total" sum up others of their kind: add either those or the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfkit.errors import InputError
from perfkit.run import Position
from perfkit.trace import _ascend_folders, _ascend_layout, _ascend_steps, _store
from perfkit.trace._ascend_collectives import collectives, read_links, read_operations
from perfkit.trace._ascend_communication import Link, Operation, add_links
from perfkit.trace._ascend_folders import COLLECTIVES, INFO_PART, KERNELS, LINKS, METADATA, PARTS, STEPS, Rank, RankFolder
from perfkit.trace._ascend_kernels import has_details, read_kernels
from perfkit.trace._format import Format, Match, Sink
from perfkit.trace._listing import File, Listing
from perfkit.trace.steps import Window, add_summary_steps, add_window_steps, device_windows

_READ = (STEPS, KERNELS, COLLECTIVES, LINKS)


@dataclass
class _Recording:
    """What was read of one rank: steps of the summary file, kernels, operations, links; `rows` read and files `cut`, by name."""

    rank: Rank
    stage: int | None
    steps: pd.DataFrame | None = None
    kernels: pd.DataFrame | None = None
    operations: list[Operation] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)


def detect(listing: Listing) -> Match | None:
    """Rank folders at any depth, one of them, its output folder, or a single file of it."""
    folders = _ascend_folders.find_folders(listing)
    files = [file for folder in folders for name, file in folder.files.items() if name in _READ]
    return Match(files=tuple(files), details=tuple(folders)) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read all ranks; a part that cannot be read is counted in `dropped` and shown as partial or missing in `coverage`."""
    folders: tuple[RankFolder, ...] = match.details
    ranks = _ascend_folders.resolve_ranks(folders, sink)
    if len(ranks) < len(folders):
        sink.note(
            f"{len(folders) - len(ranks)} of {len(folders)} folders hold a rank that another folder recorded later, perhaps of "
            "another run; the latest of each rank was read. To see the others, open them on their own"
        )
    _ascend_layout.add_facts(sink, ranks)
    named = _ascend_layout.groups_of(ranks)
    sink.placement.update(_ascend_layout.placement(named, [rank.rank for rank in ranks], sink.facts))
    recordings = [_record(rank, sink.placement.get(rank.rank, Position()).pipeline, sink) for rank in ranks]
    for recording in recordings:
        _add_steps(recording, sink)
    _compare(recordings, sink)
    _add_communication(recordings, named, sink)
    _add_coverage(recordings, sink)


def _record(rank: Rank, stage: int | None, sink: Sink) -> _Recording:
    recording = _Recording(rank, stage)
    for name, load in ((STEPS, _load_steps), (KERNELS, _load_kernels), (COLLECTIVES, _load_operations), (LINKS, _load_links)):
        file = rank.source.files.get(name)
        if file is None:
            continue
        whole = len(sink.dropped)
        try:
            load(recording, file, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        if len(sink.dropped) > whole:
            recording.cut.add(name)
        sink.advance(file.label, file.size_bytes)
    return recording


def _load_steps(recording: _Recording, file: File, sink: Sink) -> None:
    csv = _store.read_csv(file, _ascend_steps.COLUMNS, required=_ascend_steps.REQUIRED)
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    recording.steps = _ascend_steps.summary(csv.frame).assign(
        rank=recording.rank.rank, pipeline_stage=pd.Series(recording.stage, index=csv.frame.index, dtype="Int64")
    )
    recording.rows[STEPS] = len(csv.frame)


def _load_kernels(recording: _Recording, file: File, sink: Sink) -> None:
    kernels = read_kernels(file, recording.rank.rank, sink)
    if kernels["step"].isna().all():  # a recording without a schedule is one step, numbered by its summary if that has one
        numbers = set() if recording.steps is None else {int(step) for step in recording.steps["step"]}
        kernels["step"] = kernels["step"].fillna(numbers.pop() if len(numbers) == 1 else 0)
    recording.kernels = kernels
    columns: dict[str, Any] = {name: kernels[name] for name in kernels.columns}
    recording.rows[KERNELS] = sink.add("kernels", source=file, **columns)


def _load_operations(recording: _Recording, file: File, sink: Sink) -> None:
    recording.operations = read_operations(file, recording.rank.rank, sink)
    recording.rows[COLLECTIVES] = len(recording.operations)


def _load_links(recording: _Recording, file: File, sink: Sink) -> None:
    recording.links = read_links(file, recording.rank.rank, sink)
    recording.rows[LINKS] = len(recording.links)


def _add_steps(recording: _Recording, sink: Sink) -> None:
    kernels, summary, rank = recording.kernels, recording.steps, recording.rank.rank
    spans = _spans(kernels)
    told: set[int] = set()
    if summary is not None:
        starts = pd.Series({window.step: window.start_ns for window in spans}, dtype="Int64")
        summary = summary.assign(start=summary["step"].map(starts).astype("Int64"))
        recording.steps = add_summary_steps(sink, summary, recording.rank.source.files[STEPS])
        told = {int(step) for step in recording.steps["step"]}
        if len(recording.steps) < len(summary):
            recording.cut.add(STEPS)
    if kernels is None:
        return
    left = [window for window in device_windows(spans, kernels.dropna(subset=["start_ns", "step"])) if window.step not in told]
    if left:
        add_window_steps(sink, rank=rank, windows=left, kernels=kernels, pipeline_stage=recording.stage)
        sink.note(f"steps that {STEPS} does not tell were computed from the kernels between the first and the last of each step")


def _spans(kernels: pd.DataFrame | None) -> list[Window]:
    """Each step from its first to the end of its last kernel."""
    if kernels is None:
        return []
    timed = kernels.dropna(subset=["start_ns", "step"])
    ends = (timed["start_ns"] + timed["duration_ns"]).groupby(timed["step"]).max()
    starts = timed["start_ns"].groupby(timed["step"]).min()
    return [Window(int(step), int(starts[step]), int(ends[step])) for step in starts.index]


def _compare(recordings: list[_Recording], sink: Sink) -> None:
    summaries = [recording.steps for recording in recordings if recording.steps is not None and len(recording.steps)]
    if not summaries:
        return
    steps = pd.concat(summaries, ignore_index=True)
    kernels = [recording.kernels for recording in recordings if recording.kernels is not None]
    _ascend_steps.check_sums(sink, steps, STEPS)
    _ascend_steps.compare_with_kernels(sink, steps, kernels)
    names = [str(name) for frame in kernels for name in frame.loc[frame["kind"] == "communication", "name"].unique()]
    if any("batchsendrecv" in name.lower() for name in names) and not steps["bubble"].fillna(0).any():
        sink.note("Bubble is 0, but it does not count the combined sends and receives (hcom_batchSendRecv) of this run")


def _add_communication(recordings: list[_Recording], named: list[tuple[str, tuple[int, ...]]], sink: Sink) -> None:
    found = frozenset(recording.rank.rank for recording in recordings)
    users: dict[str, set[int]] = {}
    for recording in recordings:
        for group in {item.group for item in recording.operations} | {item.group for item in recording.links}:
            if group is not None:
                users.setdefault(group, set()).add(recording.rank.rank)
    distinct = tuple(dict.fromkeys(members for _, members in named))
    groups = _ascend_layout.Groups({group: frozenset(members) for group, members in users.items()}, distinct, found)
    for recording in recordings:
        rows = collectives(recording.operations, recording.kernels, groups)
        columns: dict[str, Any] = {name: rows[name] for name in rows.columns}
        if len(rows):
            sink.add("collectives", rank=recording.rank.rank, **columns)
    links, lost = _ascend_layout.to_global([link for recording in recordings for link in recording.links], groups)
    sink.drop("link between ranks that are numbered inside an unknown group", lost, LINKS)
    add_links(sink, links)
    fact = sink.facts.get("num_devices")
    peers = {end for link in links for end in (link.source, link.target)}
    if sentence := _ascend_layout.missing_ranks(found, int(fact.value) if fact else None, peers):
        sink.note(sentence)


def _add_coverage(recordings: list[_Recording], sink: Sink) -> None:
    rows = [row for recording in recordings for row in _coverage(recording)]
    names = ("rank", "part", "state", "file", "bytes", "rows")
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    sink.add("coverage", **columns)


def _coverage(recording: _Recording) -> list[tuple[int, str, str, str | None, int | None, int | None]]:
    files = dict(recording.rank.source.files)
    rows: list[tuple[int, str, str, str | None, int | None, int | None]] = []
    for name, part in (*PARTS.items(), ("", INFO_PART)):
        file = recording.rank.source.info if not name else files.get(name)
        if name == COLLECTIVES and file is None and recording.kernels is not None:
            communication = int((recording.kernels["kind"] == "communication").sum())
            kernel_file = files[KERNELS]
            rows.append((recording.rank.rank, part, "partial", kernel_file.label, kernel_file.size_bytes, communication))
            continue
        state = _state(recording, name, file)
        size, label = (file.size_bytes, file.label) if file is not None else (None, None)
        rows.append((recording.rank.rank, part, state, label, size, recording.rows.get(name)))
    return rows


def _state(recording: _Recording, name: str, file: File | None) -> str:
    if file is None:
        return "missing"
    if file.size_bytes == 0:
        return "empty"
    if name in recording.cut:
        return "partial"
    if name == KERNELS and recording.kernels is not None and not has_details(recording.kernels):
        return "partial"
    if name == METADATA and not {"parallel_group_info", "distributed_args"} & set(recording.rank.metadata):
        return "empty"
    return "present"


FORMAT = Format(
    name="ascend-text",
    title="Ascend profiler folders (text)",
    looks_for=f"{KERNELS}, {STEPS}, {COLLECTIVES} or {LINKS}, usually below <name>_ascend_pt or <name>_ascend_ms",
    detail=3,
    provides=frozenset({"steps", "step_parts", "kernels", "collectives", "links", "coverage"}),
    detect=detect,
    read=read,
)
