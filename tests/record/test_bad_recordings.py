"""Recordings that are wrong in ways that are met: no time of this recording, cut, still written, two jobs in one folder.

The law: what cannot be placed is counted, no table holds a moment of another time, and all events of a file are accounted for.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.summary import summarize
from perfkit.record import load as loading
from perfkit.record.load import load

TRACES = Path(__file__).parents[1] / "data" / "traces"
NPU = data_folder() / "traces" / "torch_npu_2rank"
DAY_NS = 24 * 3600 * 10**9
PIECES = [
    TRACES / "dlrm_8xV100" / "worker3.json.gz",
    TRACES / "hta" / "trace_diff" / "control.json.gz",
    TRACES / "kineto_h100" / "recompute.json.gz",
    TRACES / "tracelens" / "mi210" / "gpu_only_trace" / "gpu_only_trace.json.gz",
]
MOMENTS = {"host": "start_ns", "launches": "start_ns", "kernels": "start_ns", "counters": "time_ns", "memory_curve": "time_ns"}


def document() -> dict[str, Any]:
    with gzip.open(TRACES / "dlrm_8xV100" / "worker0.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def kineto(folder: Path, value: int) -> Path:
    """A trace of which three events of each category have another start."""
    trace = document()
    for category in ("kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation"):
        for event in [event for event in trace["traceEvents"] if event.get("cat") == category][:3]:
            event["ts"] = value
    (folder / "rank0.json").write_text(json.dumps(trace), encoding="utf-8")
    return folder


def ascend_text(folder: Path, value: int) -> Path:
    """Tables and a timeline of which some rows and events have another start."""
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank" / "rank0_ascend_pt", folder / "rank0_ascend_pt")
    output = folder / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    for name, column in (("kernel_details.csv", "Start Time(us)"), ("memory_record.csv", "Timestamp(us)")):
        with (output / name).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        place = [cell.strip() for cell in rows[0]].index(column)
        for row in rows[5:8]:
            row[place] = str(value)
        with (output / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def ascend_database(folder: Path, value: int) -> Path:
    """A database of which two rows of each table have another start."""
    shutil.copytree(TRACES / "torch_npu_db/level1/rank0_ascend_pt", folder / "rank0_ascend_pt")
    moments = {"TASK": "startNs", "CANN_API": "startNs", "PYTORCH_API": "startNs", "AICORE_FREQ": "timestampNs"}
    with sqlite3.connect(next(folder.rglob("ascend_pytorch_profiler_0.db"))) as database:
        for table, column in (moments | {"HBM": "timestampNs", "MEMORY_RECORD": "timestamp"}).items():
            rows = f"SELECT rowid FROM {table} ORDER BY {column} LIMIT 2 OFFSET 1"
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid IN ({rows})", (value,))
    database.close()
    return folder


def lost_of(run: Run) -> int:
    return sum(lost.count for lost in run.dropped)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("spoil", [kineto, ascend_text, ascend_database])
def test_a_start_of_0_or_minus_1_is_counted_and_in_no_table(tmp_path: Path, spoil: Callable[[Path, int], Path], value: int):
    run = load(spoil(tmp_path, value), cache=False)
    for table, column in MOMENTS.items():
        if run.has(table):
            moments = run.frame(table)[column].dropna()
            assert moments.max() - moments.min() < DAY_NS, table
    assert (run.steps()["duration_ns"] < DAY_NS).all()
    events = summarize(run)["events"]
    assert events["in_file"] == sum(events[name] for name in ("assigned", "before", "after", "lost"))
    assert lost_of(run) > 0


@pytest.mark.parametrize("value", [0, -1])
def test_what_the_later_tables_of_a_database_lose_is_counted_once(tmp_path: Path, value: int):
    run = load(ascend_database(tmp_path, value), cache=False)
    before = lost_of(run)
    whole = load(TRACES / "torch_npu_db/level1/rank0_ascend_pt", cache=False)
    missing = {table: len(whole.frame(table)) - len(run.frame(table)) for table in ("host", "counters")}
    assert missing == {"host": 4, "counters": 4}
    for _ in range(2):
        assert lost_of(run) - before == sum(missing.values())
        run.frame("host")
        run.frame("counters")
    assert {lost.table for lost in run.dropped} >= {"host", "counters", "memory_curve"}


def test_a_recording_cut_at_both_ends_keeps_what_is_between(tmp_path: Path):
    trace = document()
    starts = sorted(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "kernel")
    first, last = starts[len(starts) // 3], starts[2 * len(starts) // 3]
    kept = [event for event in trace["traceEvents"] if event.get("ph") != "X" or first <= event["ts"] < last]
    (tmp_path / "rank0.json").write_text(json.dumps({**trace, "traceEvents": kept}), encoding="utf-8")
    run = load(tmp_path, cache=False)
    kernels = [event for event in kept if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(run.frame("kernels")) == len(kernels)
    assert run.frame("kernels")["duration_ns"].sum() == 1000 * sum(event["dur"] for event in kernels)
    ends = max(event["ts"] + event["dur"] for event in kernels) - min(event["ts"] for event in kernels)
    assert run.steps()["duration_ns"].tolist() == [1000 * ends]
    events = summarize(run)["events"]
    assert events["assigned"] == events["in_file"] == sum(event.get("ph") == "X" for event in kept)


def spans_of_events(text: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Where each event of a trace starts and ends in its text, and the event, told by the standard library."""
    decoder, found = json.JSONDecoder(strict=False), []
    at = re.compile(r'"traceEvents"\s*:\s*\[\s*').search(text)
    place = at.end() if at else 0
    while text[place] == "{":
        event, end = decoder.raw_decode(text, place)
        found.append((place, end, event))
        place = end + len(re.compile(r"[\s,]*").match(text, end)[0])  # type: ignore[index]
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sample", PIECES, ids=lambda path: path.name.partition(".")[0])
def test_a_text_cut_at_both_ends_is_read_from_the_first_whole_event_to_the_last(tmp_path: Path, sample: Path, packed: bool):
    text = gzip.decompress(sample.read_bytes()).decode("utf-8", "replace").encode("ascii", "replace").decode()
    events = spans_of_events(text)
    chance = random.Random(sample.name)
    (tmp_path / "run").mkdir()
    for _ in range(3):
        first, last = sorted(chance.sample(range(len(events) // 8, len(events)), 2))
        start, stop = (chance.randrange(*events[place][:2]) for place in (first, last))
        whole = [event for event in events if event[0] >= start and event[1] <= stop]
        piece = text[start:stop].encode()
        if len(piece) < 20_000:  # without an event that tells what it is
            continue
        name = "piece.json.gz" if packed else "piece.json"
        (tmp_path / "run" / name).write_bytes(gzip.compress(piece) if packed else piece)
        run = load(tmp_path / "run", cache=False)
        told = summarize(run)["events"]
        assert told["in_file"] == sum(event.get("ph") == "X" for _, _, event in whole)
        assert told["in_file"] == sum(told[what] for what in ("assigned", "before", "after", "lost"))
        lost = {loss.what.partition(" ")[2][:10]: loss.count for loss in run.dropped if "complete event" in loss.what}
        assert lost["before the"] == whole[0][0] - start
        assert stop - whole[-1][1] - 8 <= lost.get("after the ", 0) <= stop - whole[-1][1]
        assert sum("without its beginning" in note for note in run.notes) == 1


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_that_is_still_written_is_read_as_far_as_it_goes_and_told(tmp_path: Path, monkeypatch, share: float):
    text = json.dumps(document())
    file = tmp_path / "rank0.json"
    file.write_text(text[: int(len(text) * share)], encoding="utf-8")
    listed = loading.list_files

    def then_more(root: Path) -> Any:
        listing = listed(root)
        with file.open("a", encoding="utf-8") as growing:
            growing.write(text[int(len(text) * share) :])
        return listing

    monkeypatch.setattr(loading, "list_files", then_more)
    run = load(tmp_path)
    assert any("grew while it was read" in note for note in run.notes)
    assert run.cache_key == ""
    monkeypatch.undo()
    again = load(tmp_path)
    assert len(again.frame("kernels")) == len(
        [e for e in document()["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    )
    assert len(run.frame("kernels")) <= len(again.frame("kernels"))


@pytest.mark.parametrize("apart_days", [3, 30])
def test_of_two_jobs_in_one_folder_one_is_shown_and_the_other_named(tmp_path: Path, apart_days: int):
    for rank in range(2):
        trace = document()
        trace["distributedInfo"] = {**trace.get("distributedInfo", {}), "rank": rank}
        for event in trace["traceEvents"]:
            if rank and isinstance(event.get("ts"), (int, float)):
                event["ts"] += apart_days * 24 * 3600 * 10**6
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace), encoding="utf-8")
    run = load(tmp_path, cache=False)
    assert run.ranks == (1,)
    assert run.clock in ({}, {1: 0})
    assert any("recordings of 2 jobs" in note for note in run.notes)
    assert any(f"{apart_days}.0 days earlier" in lost.what for lost in run.dropped)
    assert (run.steps()["duration_ns"] < DAY_NS).all()


@pytest.mark.parametrize("table", sorted(path.name for path in NPU.glob("rank0*/ASCEND*/*.csv")))
def test_a_line_end_within_the_header_of_any_table_is_no_foreign_error(tmp_path: Path, table: str):
    shutil.copytree(NPU, tmp_path / "run")
    path = next((tmp_path / "run").glob(f"rank0*/ASCEND*/{table}"))
    header, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(header[:9] + b"\r" + header[9:] + b"\n" + rest)
    with contextlib.suppress(PerfkitError):
        run = load(tmp_path / "run")
        for name in run.tables:
            run.frame(name)
