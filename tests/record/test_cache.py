"""A kept run equals the run that was read, never outlives its files, and may disappear at any moment."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import LazyTables, Run
from perfkit.core.schema import TABLES
from perfkit.record import _cache, _state, run_folder, store
from perfkit.record import entries as _entries
from perfkit.record.format import stacked
from perfkit.record.load import load

SIMULATED = data_folder() / "traces" / "cluster_16card"
SAMPLES = ["torch_npu_2rank", "cluster_16card", "kineto_resnet"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that keeps runs of any size, tables of more than a few rows as Parquet."""
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    monkeypatch.setattr(store, "FEW_ROWS", 100)
    return tmp_path / "cache"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording that a test may change."""
    return Path(shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", tmp_path / "recording"))


def assert_equal(a: Run, b: Run) -> None:
    assert (a.name, a.kind, a.format, [*a.dropped], a.notes) == (b.name, b.kind, b.format, [*b.dropped], b.notes)
    assert (dict(a.placement), dict(a.facts), dict(a.clock)) == (dict(b.placement), dict(b.facts), dict(b.clock))
    assert a.ranks == b.ranks
    assert set(a.tables) == set(b.tables)
    for name in a.tables:
        pd.testing.assert_frame_equal(a.frame(name), b.frame(name))


def is_kept(run: Run) -> bool:
    """Whether the tables of a run come from the cache, not from its files."""
    return isinstance(run.tables, LazyTables) and run.tables._sources["steps"].read.__module__ == _cache.__name__


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_kept_run_equals_the_run_that_was_read(sample: str):
    path = data_folder() / "traces" / sample
    first, second = load(path), load(path)
    assert not is_kept(first)
    assert is_kept(second)
    assert_equal(first, second)
    assert_equal(second, load(path, cache=False))


def test_parts_of_a_kept_table_are_those_of_the_whole():
    path = data_folder() / "traces" / "torch_npu_2rank"
    read, kept = load(path), load(path)
    step = int(read.steps()["step"].iloc[0])
    for part in ({"ranks": [1]}, {"columns": ["name", "duration_ns"]}, {"ranks": [1], "steps": [step], "columns": ["start_ns"]}):
        pd.testing.assert_frame_equal(read.frame("kernels", **part).reset_index(drop=True), kept.frame("kernels", **part))
    assert kept.has("kernels")
    assert not kept.has("log")
    assert kept.step_breakdown(1, step) == read.step_breakdown(1, step)


@pytest.mark.parametrize("gone", [False, True])
def test_pieces_of_a_rank_are_its_rows_also_when_they_disappear_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
):
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 50)
    monkeypatch.setattr("perfkit.record.store._parquet.ROWS_PER_GROUP", 50)
    path = data_folder() / "traces" / "torch_npu_2rank"
    load(path)
    kept = load(path)
    columns = ["name", "start_ns"]
    for rank in kept.ranks:
        pieces = kept.pieces("kernels", rank=rank, columns=columns)
        found = [next(pieces)]
        if gone:
            shutil.rmtree(folder, ignore_errors=True)
        found += pieces
        assert gone or len(found) > 2
        whole = load(path, cache=False).frame("kernels", ranks=[rank], columns=columns)
        pd.testing.assert_frame_equal(stacked(found), whole.reset_index(drop=True))


def test_only_what_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch):
    path = data_folder() / "traces" / "torch_npu_2rank"
    load(path)
    seen: list[tuple[str, object]] = []

    def spied(read: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
        def spy(file: Path, *arguments: object, **options: object) -> pd.DataFrame:
            seen.append((file.name, options["columns"]))
            return read(file, *arguments, **options)

        return spy

    for name in ("read_table", "read_rows"):
        monkeypatch.setattr(store, name, spied(getattr(store, name)))
    kept = load(path)
    assert kept.ranks == (0, 1)
    assert kept.has("kernels")
    assert seen == []
    kept.frame("kernels", columns=["duration_ns"])
    kept.steps()
    kept.steps()
    assert seen == [("kernels.parquet", ["duration_ns"]), ("steps.json", None)]


def test_a_kept_run_opens_before_pandas_is_there_and_its_steps_need_neither_the_columnar_engine_nor_a_format():
    path = data_folder() / "traces" / "kineto_resnet"
    code = f"""
import sys
from perfkit.core import discover
from perfkit.core.schema import TABLES
from perfkit.record import _state
_state.MIN_BYTES = 0
from perfkit.record.load import load
run = load({str(path)!r})
libraries = sorted({{"numpy", "pandas"}} & {{*sys.modules}})
run.steps()
others = {{"perfkit.record._left_over", "perfkit.record._elsewhere"}}
formats = {{*discover.modules("perfkit.record.formats", "FORMAT").values(), *others}}
print(libraries, sorted(name for name in sys.modules if name == "polars" or name in formats))
"""
    first, second = (subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(2))
    assert "perfkit.record.formats.ascend.ascend_text" in first.stdout
    assert "perfkit.record._left_over" in first.stdout
    assert second.stdout.strip() == "[] []"


@pytest.mark.parametrize("sample", SAMPLES)
def test_small_tables_are_the_same_as_json_and_as_parquet(sample: str, tmp_path: Path):
    run = load(data_folder() / "traces" / sample, cache=False)
    for name in run.tables:
        store.write_rows(run.tables[name], tmp_path / "a.json")
        store.write_table(run.tables[name], tmp_path / "a.parquet")
        for part in ({}, {"ranks": [run.ranks[-1]], "columns": [column.name for column in TABLES[name].columns][:2]}):
            few = store.read_rows(tmp_path / "a.json", TABLES[name], **part)
            pd.testing.assert_frame_equal(few, store.read_table(tmp_path / "a.parquet", TABLES[name], **part))


def test_a_run_that_perfkit_wrote_is_no_work_to_read_and_stays_what_it_is(tmp_path: Path, folder: Path):
    written = run_folder.write_run(replace(load(SIMULATED, cache=False), kind="simulated"), tmp_path / "run")
    assert [load(written).kind for _ in range(2)] == ["simulated", "simulated"]
    assert not entries(folder)


def test_small_recordings_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_state, "MIN_BYTES", 1 << 40)
    load(data_folder() / "traces" / "torch_npu_2rank")
    assert not folder.exists()


def test_a_changed_file_is_read_anew_even_with_its_old_time_and_size(recording: Path):
    load(recording)
    file = next(recording.rglob("step_trace_time.csv"))
    status, text = file.stat(), file.read_text()
    digit = next(index for index, char in enumerate(text) if char.isdigit() and char != "9" and index > text.index("\n"))
    file.write_text(text[:digit] + "9" + text[digit + 1 :])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert not is_kept(load(recording))


def test_other_reading_code_never_meets_old_tables(recording: Path, monkeypatch: pytest.MonkeyPatch):
    load(recording)
    monkeypatch.setattr(_state, "readers", lambda: "of another version")
    assert not is_kept(load(recording))


def test_a_kept_run_survives_the_deletion_of_its_tables(recording: Path, folder: Path):
    read, kept = load(recording), load(recording)
    shutil.rmtree(folder)
    assert_equal(read, kept)


def test_after_the_deletion_changed_files_are_not_mixed_with_the_open_run(recording: Path, folder: Path):
    load(recording)
    kept = load(recording)
    shutil.rmtree(folder)
    next(recording.rglob("kernel_details.csv")).unlink()
    with pytest.raises(InputError, match="changed since the run was opened"):
        kept.frame("kernels")


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage"])
def test_a_damaged_cache_is_no_worse_than_none(recording: Path, folder: Path, damage: str):
    read = load(recording)
    for file in entries(folder)[0].iterdir():
        content = file.read_bytes()
        file.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "garbage": b'{"tables": 3}'}[damage])
    assert_equal(read, load(recording))


def test_a_manifest_tells_what_was_kept(recording: Path, folder: Path):
    load(recording)
    manifest = json.loads((entries(folder)[0] / "manifest.json").read_text())
    assert manifest["format"] == "ascend-text"
    assert manifest["tables"]["steps"] == {"rows": 2, "ranks": [0, 1]}
    assert all(set(file) == {"name", "bytes", "mtime_ns"} for file in manifest["files"])


def test_a_conversion_that_breaks_off_leaves_nothing_to_be_read(recording: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(store, "write_table", full)
    assert load(recording).has("steps")
    assert not entries(folder)
    assert not list((folder / "work").iterdir())


def test_a_cache_that_cannot_be_written_is_no_error(recording: Path, folder: Path):
    folder.write_text("a file where the folder should be")
    assert load(recording).has("steps")


@pytest.mark.parametrize("few_rows", [0, 10**6])
def test_text_that_is_no_unicode_is_simply_not_kept(recording: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, few_rows: int):
    monkeypatch.setattr(store, "FEW_ROWS", few_rows)
    run = load(recording, cache=False)
    frame = run.frame("kernels").assign(name=pd.Categorical(["\ud800"] * len(run.frame("kernels"))))
    odd = Run(name="odd", kind="measured", format="odd", tables={"kernels": frame})
    assert not _cache.keep("odd", odd, [])
    assert not entries(folder)


def test_the_least_recently_used_runs_go_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sample = data_folder() / "traces" / "torch_npu_2rank"
    copies = [Path(shutil.copytree(sample, tmp_path / name)) for name in "abc"]
    for age, copy in enumerate(copies[:2]):
        load(copy)
        newest = max(entries(folder), key=lambda entry: entry.stat().st_mtime_ns)
        os.utime(newest, (1000 + age, 1000 + age))
    assert is_kept(load(copies[0]))  # used now, so that b is the oldest
    size_bytes = sum(file.stat().st_size for file in entries(folder)[0].iterdir())
    monkeypatch.setenv("PERFKIT_CACHE_LIMIT", str(int(size_bytes * 2.5)))
    load(copies[2])
    assert [is_kept(load(copy, cache=True)) for copy in (copies[0], copies[2])] == [True, True]
    assert len(entries(folder)) == 2


def test_a_limit_of_nothing_keeps_nothing(recording: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE_LIMIT", "0")
    load(recording)
    assert not entries(folder)


def test_a_limit_that_is_no_size_is_named(recording: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE_LIMIT", "plenty")
    with pytest.raises(InputError, match="PERFKIT_CACHE_LIMIT: 'plenty' is no"):
        load(recording)


def test_two_processes_that_make_one_entry_leave_one_whole_entry(folder: Path):
    target = _entries.entry("runs", "same")
    with _entries.new_entry(target) as mine:
        (mine / "content").write_text("mine")
        with _entries.new_entry(target) as other:
            (other / "content").write_text("other")
    assert (target / "content").read_text() == "other"
    assert not list((folder / "work").iterdir())


def test_progress_reports_all_bytes_of_a_kept_run(recording: Path):
    load(recording)
    seen: list[tuple[str, int, int]] = []
    load(recording, progress=lambda *report: seen.append(report))
    assert len(seen) == 1
    assert seen[0][1] == seen[0][2] > 0
