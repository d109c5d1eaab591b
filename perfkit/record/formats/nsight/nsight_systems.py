"""Nsight Systems: the SQLite form of a report (`nsys export --type sqlite`), of one process or of several.

Kernels, copies and memory sets of each process and device are a rank. Times are ns since the start of the session, which
TARGET_INFO_SESSION_START_TIME places in the time of day. A device event belongs to the step in which it was launched: call and
event carry one correlation within a process. Steps are NVTX ranges named like `ProfilerStep#7`, `step 7` or `iteration 7`; without
such ranges the recording is one step 0. Columns that older versions lack are null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record import times
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.kineto.files import rank_in_name
from perfkit.record.formats.nsight._host import CALLS, RANGES, TEXTS, THREAD_BITS, read_calls, read_host, read_texts
from perfkit.record.listing import File, Listing
from perfkit.record.overlap import Timeline
from perfkit.record.placing import Marks, account_of
from perfkit.record.readers import host_tables, kinds
from perfkit.record.readers.sqlite import Database, cells, open_database, table_names, unwritten
from perfkit.record.steps import Window, add_window_steps, device_windows

KERNELS, COPIES, SETS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_STEP = re.compile(r"^\s*(?:ProfilerStep#|(?:train(?:ing)?[ _])?(?:step|iteration|iter)[ _#:=]*)(\d{1,18})\s*$", re.IGNORECASE)
_EVENT = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")


@dataclass(frozen=True, slots=True)
class _Device:
    """The device events of one process on one device."""

    file: File
    process: int
    device: int
    events: pd.DataFrame
    steps: list[Window]
    correlations: pd.Series
    sizes_bytes: pd.Series
    origin_ns: int
    lost: int = 0


def detect(listing: Listing) -> Match | None:
    """SQLite files with Nsight's tables of kernels or calls and its table of texts."""
    candidates = [file for file in listing if listing.is_one_file or file.name.lower().endswith(_SUFFIXES)]
    wanted = {KERNELS.lower(), CALLS.lower(), COPIES.lower()}
    files = tuple(file for file in candidates if TEXTS.lower() in (tables := table_names(file)) and wanted & tables)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read all reports; what cannot be read of one is counted in `dropped`."""
    devices: list[_Device] = []
    for file in match.files:
        if unwritten(file):
            sink.note(f"{file.label}: rows in the log {file.name}-wal beside it are not read; close the program that writes it")
        try:
            with open_database(file) as database:
                devices += _devices(database, sink)
                database.report(sink)
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
        sink.advance(file.label, file.size_bytes)
    ranks = _ranks(devices, sink)
    for rank, device in ranks.items():
        _add(rank, device, sink)
    host_tables.offer(sink, ranks, lambda rank: _host_side(ranks[rank]))


def _host_side(device: _Device) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The tables `host` and `launches` of one rank."""
    kernels = device.events.assign(correlation=device.correlations, bytes=device.sizes_bytes)
    return read_host(device.file, device.process, device.origin_ns, kernels)


def _ranks(devices: list[_Device], sink: Sink) -> dict[int, _Device]:
    """The ranks that the names of reports with one device state; else numbers in the order of reports, processes and devices."""
    stated = [rank_in_name(device.file) for device in devices]
    if len(set(stated)) == len(devices) and None not in stated:
        return {rank: device for rank, device in zip(stated, devices, strict=True) if rank is not None}
    if len(devices) > 1:
        named = ", ".join(
            f"rank {rank} is device {device.device} of process {device.process >> THREAD_BITS & 0xFFFFFF} in {device.file.label}"
            for rank, device in enumerate(devices[:16])
        )
        sink.note(f"the reports do not say their ranks; they are numbered: {named}")
    return dict(enumerate(devices))


def _devices(database: Database, sink: Sink) -> list[_Device]:
    texts = read_texts(database)
    events = pd.concat([_kernels(database, texts), _copies(database, COPIES), _copies(database, SETS)], ignore_index=True)
    timed = times.possible(events["start"], times.middle_of(events["start"]))
    good = timed & (events["end"] >= events["start"]).fillna(False).to_numpy(dtype=bool) & events["name"].notna().to_numpy()
    lost = int((~good).sum())
    database.lose({"device event without a name or with a missing, impossible or reversed time": lost}, "kernels")
    events = events[good].reset_index(drop=True)
    events["launch"] = _launches(database, events)
    steps = _steps(database, texts)
    origin_ns = _origin_ns(database)
    if origin_ns is None:
        sink.note(f"{database.file.label} does not say when its session began: its times count from there")
    found = []
    events["globalPid"], events["deviceId"] = events["globalPid"].fillna(0), events["deviceId"].fillna(0)
    for process, device in sorted({(int(p), int(d)) for p, d in zip(events["globalPid"], events["deviceId"], strict=True)}):
        rows = events[((events["globalPid"] == process) & (events["deviceId"] == device)).astype(bool)]
        own = [window for owner, window in steps if owner == process] or [window for _, window in steps]
        rows = rows.reset_index(drop=True)
        placed = _placed(rows, own, origin_ns or 0)
        found.append(_Device(database.file, process, device, *placed, rows["correlationId"], rows["bytes"], origin_ns or 0))
    return [replace(device, lost=lost if at == 0 else 0) for at, device in enumerate(found)]


def _placed(rows: pd.DataFrame, steps: list[Window], origin_ns: int) -> tuple[pd.DataFrame, list[Window]]:
    """Kernels with the columns of their table, and the steps, both in the time of day."""
    marks = Marks(steps)
    places = marks.places(rows["launch"].fillna(rows["start"]).to_numpy(dtype=np.int64))
    kernels = pd.DataFrame(
        {
            "step": pd.Series(marks.steps(places), index=rows.index),
            "name": rows["name"],
            "kind": rows["kind"],
            "stream": rows["streamId"].astype("object").map(lambda stream: None if pd.isna(stream) else str(stream)),
            "start_ns": rows["start"] + origin_ns,
            "duration_ns": rows["end"] - rows["start"],
        }
    )
    return kernels, [Window(window.step, window.start_ns + origin_ns, window.end_ns + origin_ns) for window in steps]


def _kernels(database: Database, texts: dict[int, str]) -> pd.DataFrame:
    rows = database.read(KERNELS, cells(ints=(*_EVENT, "demangledName", "shortName")))
    ids = rows["demangledName"].fillna(rows["shortName"]).astype("object")
    names = ids.map(lambda key: None if pd.isna(key) else texts.get(key)).astype("object")
    communication = {name: kinds.is_communication(name) for name in names.dropna().unique()}
    kind = names.map(lambda name: "communication" if communication.get(name) else "computing").astype("object")
    return rows[list(_EVENT)].assign(name=names, kind=kind)


def _copies(database: Database, table: str) -> pd.DataFrame:
    rows = database.read(table, cells(ints=(*_EVENT, "copyKind")))
    labels = database.read("ENUM_CUDA_MEMCPY_OPER", cells(ints=("id",), texts=("label",))).dropna()
    known = {int(key): str(label) for key, label in zip(labels["id"], labels["label"], strict=True)}
    verb = "Memset" if table == SETS else "Memcpy"
    names = [verb if pd.isna(key) else f"{verb} {known.get(int(key), key)}" for key in rows["copyKind"]]
    return rows[list(_EVENT)].assign(
        name=pd.Series(names, dtype="object"), kind=pd.Series("copy", index=rows.index, dtype="object")
    )


def _launches(database: Database, events: pd.DataFrame) -> pd.Series:
    """When the call of each event began; calls and events share a correlation within one process."""
    calls = read_calls(database)[["globalPid", "correlationId", "start"]].rename(columns={"start": "launch"})
    key = calls.astype("Int64").drop_duplicates(["globalPid", "correlationId"])
    wanted = events[["globalPid", "correlationId"]].assign(globalPid=events["globalPid"].fillna(0)).astype("Int64")
    return wanted.merge(key, on=["globalPid", "correlationId"], how="left")["launch"].astype("Int64")


def _steps(database: Database, texts: dict[int, str]) -> list[tuple[int, Window]]:
    """The ranges that are steps, with their process; of a step marked twice by one process the first range counts."""
    rows = database.read(RANGES, cells(ints=("start", "end", "globalTid", "textId"), texts=("text",))).dropna(
        subset=["start", "end"]
    )
    found: dict[tuple[int, int], Window] = {}
    for row in rows.sort_values("start").to_dict("records"):
        text = row["text"] or (None if pd.isna(row["textId"]) else texts.get(int(row["textId"])))
        if text and row["end"] > row["start"] and (mark := _STEP.match(text)):
            process = 0 if pd.isna(row["globalTid"]) else int(row["globalTid"]) >> THREAD_BITS << THREAD_BITS
            found.setdefault((process, int(mark[1])), Window(int(mark[1]), int(row["start"]), int(row["end"])))
    return [(process, window) for (process, _), window in found.items()]


def _origin_ns(database: Database) -> int | None:
    """When the session began, ns since 1970."""
    values = database.read("TARGET_INFO_SESSION_START_TIME", cells(ints=("utcEpochNs",)))["utcEpochNs"].dropna()
    return int(values.iloc[0]) if len(values) and 0 < int(values.iloc[0]) < 2**62 else None


def _add(rank: int, device: _Device, sink: Sink) -> None:
    kernels = device.events
    columns: dict[str, Any] = {name: kernels[name] for name in kernels.columns}
    kept = sink.add("kernels", source=device.file, rank=rank, **columns)
    sink.cover(rank, "kernels", device.file, rows=kept)
    sink.account(rank, device.file, account_of(kernels, device.lost))
    timeline = Timeline(kernels)
    whole = [Window(0, timeline.start_ns, timeline.end_ns)]
    windows = device_windows(device.steps, kernels.dropna(subset=["step"])) if device.steps else whole
    add_window_steps(sink, rank=rank, windows=windows, kernels=kernels, marks=device.steps)
    sink.cover(rank, "step times", device.file, rows=len(windows), state=None if device.steps else "partial")
    rows = kernels[kernels["kind"] == "communication"]
    if len(rows):
        sink.add(
            "collectives",
            source=device.file,
            rank=rank,
            step=rows["step"],
            name=rows["name"],
            operation=[kinds.operation_of(name) for name in rows["name"]],
            start_ns=rows["start_ns"],
            duration_ns=rows["duration_ns"],
        )
        sink.cover(rank, "collectives", device.file, rows=len(rows), state="partial")


FORMAT = Format(
    name="nsight-systems",
    title="Nsight Systems report (SQLite export)",
    looks_for=f"a SQLite file with the tables {TEXTS} and {KERNELS}, as `nsys export --type sqlite` writes it",
    detail=3,
    detect=detect,
    read=read,
)
