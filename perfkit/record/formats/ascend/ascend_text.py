"""Ascend profiler, text output: one folder a rank (`*_ascend_pt`, `*_ascend_ms`), of PyTorch or MindSpore, at any depth.

Steps come from step_trace_time.csv, kernels from kernel_details.csv, sizes and waits of collectives from communication.json, links
from communication_matrix.json, memory from memory_record.csv, npu_module_mem.csv and operator_memory.csv, the layout from
profiler_metadata.json. Where a step summary is missing or broken the step is
computed from its kernels. The summary and the kernels are compared, and what differs is noted. In `links`, operations whose name
contains "total" sum up others of their kind: add either those or the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Position
from perfkit.record import store
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend import _call_sums, _layout, _memory, steps
from perfkit.record.formats.ascend import folders as _ascend_folders
from perfkit.record.formats.ascend._collectives import read_links, read_operations
from perfkit.record.formats.ascend._cut import ends_early
from perfkit.record.formats.ascend._many import MANY_RANKS, offer_many, read_many
from perfkit.record.formats.ascend._recording import Recording, add_communication, add_kernels, add_steps, compare
from perfkit.record.formats.ascend._units import is_recorded, offer_table
from perfkit.record.formats.ascend.folders import COLLECTIVES, INFO_PART, KERNELS, LINKS, METADATA, PARTS, STEPS, TIMELINE, Rank
from perfkit.record.formats.ascend.host import offer_host, read_host
from perfkit.record.formats.ascend.kernels import has_details, read_kernels
from perfkit.record.listing import File, Listing
from perfkit.record.placing import placed_by_time
from perfkit.record.readers.ranks_apart import read_ranks

_READ = (STEPS, KERNELS, COLLECTIVES, LINKS)
_MEMORY = tuple(_memory.PARTS)


def detect(listing: Listing) -> Match | None:
    """Rank folders at any depth, one of them, its output folder, or a single file of it."""
    folders = _ascend_folders.find_folders(listing)
    files = [file for folder in folders for name, file in folder.files.items() if name in (*_READ, *_MEMORY)]
    settings = [file for folder in folders for file in (folder.info, folder.files.get(METADATA)) if file is not None]
    beside = tuple(file for file in settings if not file.path.is_relative_to(listing.root))
    lazy = len(folders) >= MANY_RANKS
    return Match(files=tuple(files), details=tuple(folders), beside=beside, lazy=lazy) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read all ranks; a part that cannot be read is counted in `dropped` and shown as partial or missing in `coverage`."""
    ranks = _ascend_folders.resolve_ranks(match.details, sink)
    _layout.add_facts(sink, ranks)
    named = _layout.groups_of(ranks)
    sink.placement.update(_layout.placement(named, [rank.rank for rank in ranks], sink.facts))
    for timeline in (file for rank in ranks if (file := rank.file(TIMELINE)) is not None):
        if (why := ends_early(timeline)) is not None:
            sink.drop(why, 1, timeline)
    kernel_files = {rank.rank: file for rank in ranks if (file := rank.source.files.get(KERNELS)) is not None}
    if len(ranks) >= MANY_RANKS:
        _add_coverage(read_many(ranks, named, sink, _record), sink)
        _offer_many(ranks, sink)
        sink.recipe = MANY_RANKS
        return
    recordings = read_ranks(_record_all, ranks, sink, sum(file.size_bytes for file in match.files))
    add_steps(recordings, sink)
    compare(recordings, sink)
    add_communication(recordings, named, sink)
    _add_coverage(recordings, sink)
    offer_table(sink, {rank: file for rank, file in kernel_files.items() if is_recorded(file)})
    _offer_sums(sink, ranks)
    timelines = {
        recording.rank.rank: ([file], recording.kernels)
        for recording in recordings
        if recording.kernels is not None and (file := recording.rank.file(TIMELINE)) is not None
    }
    offer_host(sink, {rank: files for rank, (files, _) in timelines.items()}, lambda rank: read_host(*timelines[rank]))


def offer_again(match: Match, sink: Sink, recipe: Any) -> None:
    """Offer the tables of many ranks that are read later; what is said of folders was said when the run was read."""
    told = Sink()
    ranks = _ascend_folders.resolve_ranks(match.details, told)
    _layout.add_facts(told, ranks)
    named = _layout.groups_of(ranks)
    sink.placement.update(_layout.placement(named, [rank.rank for rank in ranks], told.facts))
    offer_many(ranks, named, sink, _record)
    _offer_many(ranks, sink)


def _offer_sums(sink: Sink, ranks: Sequence[Rank]) -> None:
    """Offer the sums of calls of the ranks whose timeline is not there."""
    files = {rank.rank: file for rank in ranks if (file := rank.file(_call_sums.FILE)) is not None and rank.file(TIMELINE) is None}
    _call_sums.offer(sink, files)


def _offer_many(ranks: Sequence[Rank], sink: Sink) -> None:
    """Offer the counters and the host side of many ranks."""
    _offer_sums(sink, ranks)
    offer_table(sink, {rank.rank: file for rank in ranks if (file := rank.source.files.get(KERNELS)) is not None})
    _offer_host(sink, [rank for rank in ranks if KERNELS in rank.source.files])


def _offer_host(sink: Sink, ranks: Sequence[Rank]) -> None:
    """Offer the host side of many ranks, whose kernels are read later too."""
    files = {rank.rank: [file] for rank in ranks if (file := rank.file(TIMELINE)) is not None}
    if (kernels := sink.later.get("kernels")) is not None:
        offer_host(sink, files, lambda rank: read_host(files[rank], kernels.read([rank], None)))


def _record_all(rank: Rank, placement: Mapping[int, Position], sink: Sink) -> Recording:
    return _record(rank, placement.get(rank.rank, Position()).pipeline, sink, (*_READ, *_MEMORY))


def _record(rank: Rank, stage: int | None, sink: Sink, names: Sequence[str] = _READ) -> Recording:
    recording = Recording(rank, stage)
    loaders = {STEPS: _load_steps, KERNELS: _load_kernels, COLLECTIVES: _load_operations, LINKS: _load_links}
    for name in names:
        file = rank.source.files.get(name)
        if file is None:
            continue
        whole = len(sink.dropped)
        try:
            if name in _MEMORY:
                recording.rows[name] = _memory.read_file(name, file, rank.rank, sink)
            else:
                loaders[name](recording, file, sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        if len(sink.dropped) > whole:
            recording.cut.add(name)
        sink.advance(file.label, file.size_bytes)
    return recording


def _load_steps(recording: Recording, file: File, sink: Sink) -> None:
    csv = store.read_csv(file, steps.COLUMNS, required=steps.REQUIRED)
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    recording.steps = steps.summary(csv.frame).assign(
        rank=recording.rank.rank, pipeline_stage=pd.Series(recording.stage, index=csv.frame.index, dtype="Int64")
    )
    recording.rows[STEPS] = len(csv.frame)


def _load_kernels(recording: Recording, file: File, sink: Sink) -> None:
    kernels, lost = read_kernels(file, recording.rank.rank, sink)
    add_kernels(recording, placed_by_time(kernels), file, sink, lost=lost)


def _load_operations(recording: Recording, file: File, sink: Sink) -> None:
    recording.operations = read_operations(file, recording.rank.rank, sink)
    recording.rows[COLLECTIVES] = len(recording.operations)


def _load_links(recording: Recording, file: File, sink: Sink) -> None:
    recording.links = read_links(file, recording.rank.rank, sink)
    recording.rows[LINKS] = len(recording.links)


def _add_coverage(recordings: list[Recording], sink: Sink) -> None:
    rows = [row for recording in recordings for row in _coverage(recording)]
    names = ("rank", "part", "state", "file", "bytes", "rows")
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    sink.add("coverage", **columns)


def _coverage(recording: Recording) -> list[tuple[int, str, str, str | None, int | None, int | None]]:
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


def _state(recording: Recording, name: str, file: File | None) -> str:
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
    detect=detect,
    read=read,
    offer_again=offer_again,
)
