"""Ascend profiler, database output: SQLite files of PyTorch or MindSpore rank folders, or of msprof, under any name.

A database of events (tables TASK and STRING_IDS) gives kernels and communication; beside it or in it the analysis (StepTraceTime,
CommAnalyzer...) gives step times, waits, sizes and links. Kernels belong to the step of STEP_TIME in which they were launched.
Where text output lies in the same folder the text is read, not both; msprof's own database below a rank folder is left out too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Position
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend import (
    _db,
    _db_analysis,
    _db_counters,
    _layout,
    _memory,
    _recording,
    _waits,
)
from perfkit.record.formats.ascend import (
    folders as _ascend_folders,
)
from perfkit.record.formats.ascend import (
    steps as _ascend_steps,
)
from perfkit.record.formats.ascend._db_host import CALLS, FRAMEWORK, MARKS, read_host
from perfkit.record.formats.ascend._recording import Names, Recording
from perfkit.record.formats.ascend._units import TABLES as COUNTED
from perfkit.record.formats.ascend._units import has_counters, read_database
from perfkit.record.formats.ascend.folders import COLLECTIVES, INFO_PART, KERNELS, LINKS, METADATA, PARTS, STEPS, Rank, RankFolder
from perfkit.record.listing import File, Listing
from perfkit.record.readers import host_tables, sqlite
from perfkit.record.readers.ranks_apart import read_ranks

_SUFFIXES = (".db", ".dat", ".sqlite", ".sqlite3")
_EVENT_TABLES = {"task", "string_ids"}
_TABLES = {
    STEPS: _db_analysis.SUMMARY,
    COLLECTIVES: _db_analysis.OF_RANK.times,
    LINKS: _db_analysis.OF_RANK.links,
}
"""The table that answers each part."""
_NAMED = {
    "steps": (STEPS, _TABLES[STEPS]),
    "kernels": (KERNELS, "TASK"),
    "links": (LINKS, _TABLES[LINKS]),
    "collectives": (COLLECTIVES, _TABLES[COLLECTIVES]),
}
"""What sentences name, with its part."""
_HOST_CALLS = "host calls"
_NUMBER_IN_NAME = _ascend_folders.NUMBER_IN_DATABASE


def detect(listing: Listing) -> Match | None:
    """Databases with tables of Ascend's profilers, in folders without text output."""
    found = {file: tables for file in _candidates(listing) if (tables := sqlite.table_names(file)) or _named_like_one(file)}
    texts = {_ascend_folders.home_of(file.path.parent) for file in listing.named(KERNELS, STEPS) if file.size_bytes}
    events = [file for file, tables in found.items() if tables >= _EVENT_TABLES or (not tables and _named_like_one(file))]
    taken = texts | {_ascend_folders.home_of(file.path.parent) for file in events}
    events = [file for file in events if not taken & set(_profiler_parents(file))]
    outputs = _outputs(found, events, texts)
    if not outputs:
        return None
    folders = _ascend_folders.with_settings(listing, {folder: dict(files) for folder, files in outputs.items()})
    files = dict.fromkeys(file for folder in folders for part, file in folder.files.items() if part != METADATA)
    return Match(files=tuple(files), details=tuple(map(_described, folders)))


def _candidates(listing: Listing) -> list[File]:
    return [file for file in listing if listing.is_one_file or file.name.lower().endswith(_SUFFIXES)]


def _named_like_one(file: File) -> bool:
    return _NUMBER_IN_NAME.search(file.name) is not None


def _profiler_parents(file: File) -> list[Path]:
    """The rank folders around a file below PROF_*, where msprof keeps what it recorded for them."""
    parents = list(file.path.parents)
    return [folder for at, folder in enumerate(parents) if any(below.name.startswith("PROF_") for below in parents[:at])]


def _outputs(found: Mapping[File, frozenset[str]], events: list[File], texts: set[Path]) -> dict[Path, dict[str, File]]:
    """The databases by what they answer; of a folder with several ranks each database of events stands alone."""
    outputs: dict[Path, dict[str, File]] = {}
    alone = [file.path.parent for file in events]
    for file in events:
        if _ascend_folders.home_of(file.path.parent) not in texts:
            outputs[file.path.parent if alone.count(file.path.parent) == 1 else file.path] = {KERNELS: file}
    for file, tables in found.items():
        folder = file.path if file.path in outputs else file.path.parent
        if _ascend_folders.home_of(file.path.parent) in texts or alone.count(folder) > 1:
            continue
        for part, table in _TABLES.items():
            if table.lower() in tables:
                outputs.setdefault(folder, {}).setdefault(part, file)
    return outputs


def _described(folder: RankFolder) -> RankFolder:
    file = folder.files.get(KERNELS)
    if file is None:
        return folder
    told = _db.described(file)
    if "rank" not in told and (number := _NUMBER_IN_NAME.search(file.name)) is not None and number[1]:
        told["rank"] = int(number[1])
    return replace(folder, told=told)


def _names(ranks: Sequence[Rank]) -> Names:
    """The tables as a user finds them: with the name of their database, where it is the same on every rank."""

    def named(part: str, table: str) -> str:
        files = {rank.source.files[part].name for rank in ranks if part in rank.source.files}
        return f"{table} of {files.pop()}" if len(files) == 1 else table

    return Names(**{field: named(part, table) for field, (part, table) in _NAMED.items()})


def read(match: Match, sink: Sink) -> None:
    """Read all ranks; a part that cannot be read is counted in `dropped` and shown as partial or missing in `coverage`."""
    ranks = _ascend_folders.resolve_ranks(match.details, sink)
    _layout.add_facts(sink, ranks)
    named = _layout.groups_of(ranks)
    sink.placement.update(_layout.placement(named, [rank.rank for rank in ranks], sink.facts))
    recordings: dict[int, Recording] = {}
    read = read_ranks(_record, ranks, sink, sum(file.size_bytes for file in match.files))
    for rank, devices in zip(ranks, read, strict=True):
        for recording in devices:
            if recording.rank.rank in recordings:
                sink.drop(
                    f"device that is taken for rank {recording.rank.rank}, which another database holds", 1, rank.source.label
                )
            else:
                recordings[recording.rank.rank] = recording
    found, names = list(recordings.values()), _names(ranks)
    _recording.add_steps(found, sink, names)
    _recording.compare(found, sink, names)
    _recording.add_communication(found, named, sink, names)
    for recording in found:
        _add_coverage(recording, sink)
    _offer_host(found, sink)


def _offer_host(recordings: list[Recording], sink: Sink) -> None:
    """Offer the host side of the ranks whose database recorded calls, and the counters of those that have some.

    A database of several devices has the counters of each under the number of the device.
    """
    recorded = {
        recording.rank.rank: (recording.rank.source.files[KERNELS], recording.kernels, recording.keys)
        for recording in recordings
        if recording.kernels is not None and recording.keys is not None
    }
    with_calls = [recording.rank.rank for recording in recordings if recording.rows.get(_HOST_CALLS)]
    sides = {rank: (file, kernels, keys["connection"]) for rank, (file, kernels, keys) in recorded.items() if rank in with_calls}
    host_tables.offer(sink, sides, lambda rank: read_host(*sides[rank]))
    counted = {rank: (file, kernels, keys["task"]) for rank, (file, kernels, keys) in recorded.items() if has_counters(file)}
    host_tables.offer(sink, counted, lambda rank: read_database(*counted[rank]), COUNTED)
    shared = Counter(file for file, _, _ in recorded.values())
    devices = {rank: device for recording in recordings for device, rank in recording.rank.source.told.get("devices", {}).items()}
    samples = {rank: (file, devices.get(rank, rank) if shared[file] > 1 else None) for rank, (file, _, _) in recorded.items()}
    _db_counters.offer(sink, samples)
    _waits.offer(sink, samples)


def _record(rank: Rank, placement: Mapping[int, Position], sink: Sink) -> list[Recording]:
    recording = Recording(rank, placement.get(rank.rank, Position()).pipeline)
    rows: dict[str, pd.DataFrame] = {}
    for part, load in ((STEPS, _load_steps), (COLLECTIVES, _load_operations), (LINKS, _load_links), (KERNELS, _load_tasks)):
        file = rank.source.files.get(part)
        if file is None:
            continue
        whole = len(sink.dropped)
        try:
            with sqlite.open_database(file) as database:
                found = load(recording, database, sink)
                database.report(sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        else:
            if found is not None:
                rows[part] = found
        if len(sink.dropped) > whole:
            recording.cut.add(part)
    for file in dict.fromkeys(file for part, file in rank.source.files.items() if part != METADATA):
        if sqlite.unwritten(file):
            sink.note(f"{file.label}: rows in the log {file.name}-wal beside it are not read; close the program that writes it")
        sink.advance(file.label, file.size_bytes)
    tasks = rows.get(KERNELS)
    return [recording] if tasks is None else _by_device(recording, tasks, sink)


def _load_steps(recording: Recording, database: sqlite.Database, sink: Sink) -> None:
    steps = _ascend_steps.summary(_db_analysis.read_steps(database, _db_analysis.SUMMARY))
    stage = pd.Series(recording.stage, index=steps.index, dtype="Int64")
    recording.steps = steps.assign(rank=recording.rank.rank, pipeline_stage=stage)
    recording.rows[STEPS] = len(steps)


def _load_operations(recording: Recording, database: sqlite.Database, sink: Sink) -> None:
    told = _db_analysis.read_operations(database, _db_analysis.OF_RANK, recording.rank.rank)
    recording.operations = [operation for _, operation in told]
    recording.rows[COLLECTIVES] = len(recording.operations)


def _load_links(recording: Recording, database: sqlite.Database, sink: Sink) -> None:
    recording.links = _db_analysis.read_links(database, _db_analysis.OF_RANK, recording.rank.rank)
    recording.rows[LINKS] = len(recording.links)


def _load_tasks(recording: Recording, database: sqlite.Database, sink: Sink) -> pd.DataFrame:
    missing = [table for table in _db.TABLES if not database.has(table)]
    if missing:
        sink.note(f"{database.file.label} has no table {', '.join(missing)}")
    tasks = _db.read_tasks(database)
    recording.lost = sum(count for (_, table), count in database.lost.items() if table == "kernels")
    if not recording.operations and (tasks["kind"] == "communication").any():
        recording.operations = _db.read_payloads(database, tasks, recording.rank.rank)
        if any(item.size_bytes for item in recording.operations):
            sink.note(
                f"without {_db_analysis.OF_RANK.sizes} the bytes of a collective are its elements times the size of one, "
                "not what was sent over links"
            )
    if (name := _db.device_name(database)) is not None:
        sink.fact("device_name", name, f"{database.file.label}: NPU_INFO")
    recording.rows[_HOST_CALLS] = sum(map(database.count, (CALLS, FRAMEWORK, MARKS)))
    if tasks["device"].nunique() < 2:
        found = _memory.read_database(database, recording.rank.rank, sink)
        recording.rows.update({name: rows for name, rows in found.items() if rows is not None})
    return tasks


def _by_device(recording: Recording, tasks: pd.DataFrame, sink: Sink) -> list[Recording]:
    """The recording with its kernels, or one of every device if the database holds several."""
    file = recording.rank.source.files[KERNELS]
    devices = sorted(int(device) for device in tasks["device"].dropna().unique())
    if len(devices) < 2:
        _add_tasks(recording, tasks, file, sink)
        return [recording]
    known: Mapping[int, int] = recording.rank.source.told.get("devices", {})
    sink.note(f"{file.label} holds {len(devices)} devices; each is a rank: {_pairs(devices, known)}")
    homeless = int(tasks["device"].isna().sum())
    sink.drop("communication operation of an unknown device", homeless, file)
    recording.lost += homeless
    found = []
    for device in devices:
        rank = replace(recording.rank, rank=known.get(device, device))
        of_device = Recording(rank, sink.placement.get(rank.rank, Position()).pipeline, cut=set(recording.cut))
        rows = tasks[tasks["device"] == device].reset_index(drop=True)
        starts = set(zip(rows["name"], rows["start_ns"], strict=True))
        of_device.operations = [item for item in recording.operations if (item.name, item.start_ns) in starts]
        of_device.rows.update({_HOST_CALLS: recording.rows.get(_HOST_CALLS, 0)})
        of_device.lost, recording.lost = recording.lost, 0
        _add_tasks(of_device, rows, file, sink)
        found.append(of_device)
    return found


def _pairs(devices: list[int], ranks: Mapping[int, int]) -> str:
    return ", ".join(f"device {device} is rank {ranks.get(device, device)}" for device in devices)


def _add_tasks(recording: Recording, tasks: pd.DataFrame, file: File, sink: Sink) -> None:
    kernels = tasks.drop(columns=["device", "connection", "task"]).assign(rank=recording.rank.rank)
    recording.keys = tasks[["connection", "task"]]
    _recording.add_kernels(recording, kernels, file, sink, lost=recording.lost)


def _add_coverage(recording: Recording, sink: Sink) -> None:
    files, rank = recording.rank.source.files, recording.rank.rank
    for part in (STEPS, KERNELS, COLLECTIVES, LINKS):
        state = "partial" if part in recording.cut and part in files and files[part].size_bytes else None
        if part == COLLECTIVES and part not in files and recording.kernels is not None:
            count = int((recording.kernels["kind"] == "communication").sum())
            sink.cover(rank, PARTS[part], files[KERNELS], rows=count, state="partial")
            continue
        sink.cover(rank, PARTS[part], files.get(part), rows=recording.rows.get(part), state=state)
    for name, part in _memory.PARTS.items():
        sink.cover(rank, part, files.get(KERNELS) if name in recording.rows else None, rows=recording.rows.get(name))
    if KERNELS in files:
        calls = recording.rows.get(_HOST_CALLS, 0)
        sink.cover(rank, _HOST_CALLS, files[KERNELS] if calls else None, rows=calls or None)
    sink.cover(rank, INFO_PART, recording.rank.source.info)


FORMAT = Format(
    name="ascend-db",
    title="Ascend profiler databases (SQLite)",
    looks_for="a SQLite file with the tables TASK and STRING_IDS, or StepTraceTime: ascend_pytorch_profiler_*.db, analysis.db",
    detail=3,
    detect=detect,
    read=read,
)
