"""Executions whose start is no time of the recording: of every loader, each is gone from the totals and counted with its file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.summary import summarize
from perfkit.record.formats.ascend import ascend_text
from perfkit.record.load import load

TRACES = Path(__file__).parents[1] / "data" / "traces"
TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
Spoil = Callable[[Path, Any], int]


def in_table(column: str) -> Spoil:
    """Every second row of a table has another start; how many."""

    def spoil(path: Path, value: Any) -> int:
        text = path.read_text(encoding="utf-8-sig")
        rows = list(csv.reader(io.StringIO(text)))
        names = [cell.strip() for cell in rows[0]]
        place = names.index(column)
        chosen = [row for row in rows[1:] if len(row) > place][::2]
        for row in chosen:
            row[place] = str(value)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        return len(chosen)

    return spoil


def in_events(is_execution: Callable[[dict[str, Any]], bool]) -> Spoil:
    """Every second execution of a trace has another start."""

    def spoil(path: Path, value: Any) -> int:
        content = path.read_bytes()
        zipped = content[:2] == b"\x1f\x8b"
        document = json.loads(gzip.decompress(content) if zipped else content)
        events = document["traceEvents"] if isinstance(document, dict) else document
        chosen = [event for event in events if event.get("ph") == "X" and is_execution(event)][::2]
        for event in chosen:
            event["ts"] = value
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text) if zipped else text)
        return len(chosen)

    return spoil


def in_database(table: str, column: str, where: str = "1") -> Spoil:
    """Every second row of a table of a database has another start."""

    def spoil(path: Path, value: Any) -> int:
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute(f"SELECT rowid FROM {table} WHERE {where} ORDER BY {column}").fetchall()[::2]
            database.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [(value, row[0]) for row in rows])
            database.commit()
        return len(rows)

    return spoil


KERNEL = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
COMPUTED = "globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)"
LOADERS: dict[str, tuple[Path, str, Spoil]] = {
    "ascend text": (TWO_RANKS, "rank0*/**/kernel_details.csv", in_table("Start Time(us)")),
    "ascend database": (TRACES / "torch_npu_db/level1", "rank0*/**/ascend_pytorch*.db", in_database("TASK", "startNs", COMPUTED)),
    "msprof database": (TRACES / "msprof_db", "*.db", in_database("TASK", "startNs", COMPUTED)),
    "msprof table": (TRACES / "msprof_export/op_summary", "*.csv", in_table("Start Time(us)")),
    "kineto": (TRACES / "hta/critical_path/simple_add", "*.gz", in_events(lambda event: event.get("cat") in KERNEL)),
    "mindspore": (TRACES / "mindinsight/run_2", "output_timeline_data_1.txt", in_table("start_time(ms)")),
    "mindspore timeline": (
        TRACES / "mindinsight/mixed",
        "ascend_timeline_display_0.json",
        in_events(lambda event: event["pid"] < 9000),
    ),
}
ONE_FILE, OWN_CLOCK = "msprof table", "mindspore timeline"
"""A sample that is a file, not a folder; one whose kernels are in no step in any case."""
VALUES = ["abc", "1e30", "NaN", "", -1, 0]


def accounted(run: Run) -> dict[str, int]:
    counts = summarize(run)["events"]
    assert counts["in_file"] == sum(counts[part] for part in ("assigned", "before", "after", "lost"))
    return dict(counts)


@cache
def undamaged(loader: str) -> tuple[Run, dict[str, int]]:
    """The run of a sample and what became of its events."""
    sample, pattern, _ = LOADERS[loader]
    run = load(next(sample.glob(pattern)) if loader == ONE_FILE else sample, cache=False)
    return run, accounted(run)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("loader", LOADERS)
def test_an_execution_without_a_start_of_the_recording_is_counted_and_in_no_total(tmp_path: Path, loader: str, value: Any):
    sample, pattern, spoil = LOADERS[loader]
    shutil.copytree(sample, tmp_path / "run")
    path = next((tmp_path / "run").glob(pattern))
    whole, before = undamaged(loader)
    if value == 0 and whole.frame("kernels")["start_ns"].min() < 10**17:
        pytest.skip("a recording that counts from its own beginning has an event at 0")
    spoilt = spoil(path, value)
    assert spoilt > 0
    run = load(path if loader == ONE_FILE else tmp_path / "run", cache=False)
    after = accounted(run)
    assert after["in_file"] == before["in_file"]
    assert after["lost"] - before["lost"] == (0 if loader == OWN_CLOCK else spoilt)
    assert len(run.frame("kernels")) == len(whole.frame("kernels")) - spoilt
    named = [lost for lost in run.dropped if lost.file.endswith(path.name) and lost.table in ("kernels", "")]
    assert sum(lost.count for lost in named) >= spoilt


@pytest.mark.parametrize("value", ["abc", -1, "1e30"])
def test_many_ranks_count_the_same_as_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any):
    shutil.copytree(TWO_RANKS, tmp_path / "run")
    spoilt = in_table("Start Time(us)")(next((tmp_path / "run").glob("rank0*/**/kernel_details.csv")), value)
    few = load(tmp_path / "run", cache=False)
    monkeypatch.setattr(ascend_text, "MANY_RANKS", 2)
    many = load(tmp_path / "run", cache=False)
    assert len(many.frame("kernels")) == len(few.frame("kernels"))
    assert sum(lost.count for lost in many.dropped if lost.table == "kernels") >= spoilt
