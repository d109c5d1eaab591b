"""A file of a run that cannot be recognised is a rank less, and that is said."""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.record.load import load

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
DATABASE = TRACES / "torch_npu_db" / "level1"
KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100.5, "dur": 10.25}


def _traces(folder: Path) -> list[Path]:
    paths = [folder / f"rank{rank}.json" for rank in range(3)]
    for path in paths:
        path.write_text(json.dumps({"traceEvents": [KERNEL | {"name": f"gemm {number}"} for number in range(99)]}, indent=1))
    return paths


@pytest.mark.parametrize("spoil", [lambda text: b"", lambda text: text[:9], lambda text: b"junk"])
def test_a_trace_without_its_beginning_is_counted(tmp_path: Path, spoil):
    path = _traces(tmp_path)[1]
    path.write_bytes(spoil(path.read_bytes()))
    run = load(tmp_path, cache=False)
    assert list(run.ranks) == [0, 2]
    assert [(lost.count, lost.file) for lost in run.dropped] == [(1, "rank1.json")]


def test_a_trace_of_another_name_without_its_beginning_is_counted(tmp_path: Path):
    path = _traces(tmp_path)[1]
    (tmp_path / "other.json").write_bytes(path.read_bytes()[3000:])
    assert [lost.file for lost in load(tmp_path, cache=False).dropped] == ["other.json"]


def test_a_rank_without_its_beginning_is_read_where_its_name_says_the_rank(tmp_path: Path):
    path = _traces(tmp_path)[1]
    whole = load(tmp_path, cache=False).frame("kernels")
    text = path.read_bytes()
    path.write_bytes(text[3000:])
    run = load(tmp_path, cache=False)
    kernels = run.frame("kernels")
    assert list(run.ranks) == [0, 1, 2]
    assert (
        kernels[kernels["rank"] == 1]["name"].tolist()
        == whole[whole["rank"] == 1]["name"].tolist()[-(kernels["rank"] == 1).sum() :]
    )
    assert 0 < (kernels["rank"] == 1).sum() == text[3000:].count(b'"ph"') - (b'"ph"' in text[3000:].partition(b"{")[0])
    assert [(lost.count, lost.file) for lost in run.dropped] == [(text[3000:].index(b"{"), "rank1.json")]


def test_files_of_other_kinds_beside_a_recording_are_not_counted(tmp_path: Path):
    _traces(tmp_path)
    (tmp_path / "README.md").write_text("# notes 1")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "summary.json").write_text('{"loss": 1.5}')
    assert not load(tmp_path, cache=False).dropped


def test_a_gzip_file_that_ends_between_events_is_counted(tmp_path: Path):
    path = _traces(tmp_path)[0]
    whole = gzip.compress(path.read_bytes())
    (tmp_path / "rank7.json.gz").write_bytes(whole[:-4])
    assert any(lost.file == "rank7.json.gz" for lost in load(tmp_path, cache=False).dropped)


def test_a_database_cut_short_beside_a_recording_is_counted(tmp_path: Path):
    _traces(tmp_path)
    (tmp_path / "recorded.db").write_bytes(b"SQLite format 3\0" + bytes(50))
    assert any(lost.file == "recorded.db" for lost in load(tmp_path, cache=False).dropped)


def test_a_dump_beside_one_of_another_kind_is_counted(tmp_path: Path):
    folder = Path(__file__).parents[1] / "data" / "traces" / "memscope"
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[400 if path.suffix == ".csv" else 0 :])
    assert [lost.file for lost in load(tmp_path, cache=False).dropped] == ["memscope_dump_20250428113810.csv"]


@pytest.mark.parametrize("inside", [True, False])
def test_a_timeline_of_msprof_without_its_beginning_is_counted(tmp_path: Path, inside: bool):
    traces = Path(__file__).parents[1] / "data" / "traces" / "msprof_export" / "alexnet"
    folder = next(traces.glob("PROF_*_GQFAMHBKGODKJMLA"))
    shutil.copytree(folder, tmp_path / folder.name)
    path = next(tmp_path.rglob("step_trace_1_0_1.json.gz"))
    content = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(content)[300:]) if inside else content[300:])
    assert [lost.file.rpartition("/")[2] for lost in load(tmp_path, cache=False).dropped] == [path.name]


def test_what_a_reader_of_a_database_leaves_beside_it_is_not_counted(tmp_path: Path):
    copy = Path(shutil.copytree(DATABASE, tmp_path / "run"))
    databases = [path for path in copy.rglob("*.db") if "profiler" in path.name]
    for path in databases:
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).write_bytes(b"")
    assert databases
    assert not load(copy, cache=False).dropped


def _log(path: Path, steps: Iterable[int], last: int = 200) -> None:
    path.write_text("".join(f" iteration {step:8}/ {last} | elapsed time per iteration (ms): 1380.5 |\n" for step in steps))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (range(30, 210, 10), "begins with step 30; what came before is not in it"),
        (range(10, 160, 10), "ends with step 150 of 200"),
        ([10, 20, 30, 60, *range(70, 210, 10)], "lacks 2 line(s) of steps between those that it prints"),
    ],
)
def test_a_log_says_which_steps_of_its_job_it_does_not_hold(tmp_path: Path, steps: Iterable[int], said: str):
    log = tmp_path / "train.log"
    _log(log, range(10, 210, 10))
    assert not load(log, cache=False).notes
    _log(log, [1, *range(10, 210, 10)])  # as torchtitan prints them
    assert not load(log, cache=False).notes
    _log(log, steps)
    assert list(load(log, cache=False).notes) == [f"train.log: {said}"]


def test_logs_without_a_known_line_beside_one_that_is_read_are_named(tmp_path: Path):
    _log(tmp_path / "worker_0.log", range(1, 9), last=8)
    assert not load(tmp_path, cache=False).notes
    for number in range(1, 6):
        (tmp_path / f"worker_{number}.log").write_text("Building the model\n")
    (tmp_path / "README.md").write_text("# notes")
    notes = [note for note in load(tmp_path, cache=False).notes if "not read" in note]
    assert notes == ["logs without a line that is known, which were not read: worker_1.log, worker_2.log, worker_3.log and 2 more"]


def test_a_timeline_that_begins_within_its_events_is_counted(tmp_path: Path):
    folder = shutil.copytree(next((TRACES / "msprof_export" / "alexnet").glob("PROF_*")), tmp_path / "PROF_000001_a")
    path = next(folder.rglob("step_trace_*.json.gz"))
    whole = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(whole[whole.index(b'{"name"', len(whole) // 2) :]))
    assert [lost.file for lost in load(folder, cache=False).dropped] == [str(path.relative_to(folder))]


def test_a_database_whose_damage_is_told_in_bytes_is_refused_in_words(tmp_path: Path):
    path = tmp_path / "msprof.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE TASK (a integer)")
        connection.execute("CREATE TABLE STRING_IDS (a integer)")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE TASK", b"CREATE \xc5ABLE TASK"))
    with pytest.raises(InputError):
        load(path, cache=False)


def test_a_number_of_an_operation_or_a_block_that_is_none_is_counted(tmp_path: Path):
    for sample, name, number, column in (
        (TRACES / "mindinsight" / "cluster_propose", "step_trace_raw_0_detail_time.csv", b"1162470748938", "_start_point"),
        (data_folder() / "traces" / "memory_tracker", "memory_block.csv", b"13107200", "actual_peak_memory"),
    ):
        folder = shutil.copytree(sample, tmp_path / sample.name)
        path = next(folder.rglob(name))
        path.write_bytes(path.read_bytes().replace(number, b"1.5.2", 1))
        found = [lost for lost in load(folder, cache=False).dropped if f"{column}: not a number" in lost.what]
        assert [(lost.count, lost.file.rpartition("/")[2]) for lost in found] == [(1, name)]


def test_a_task_of_a_process_that_no_line_names_is_counted(tmp_path: Path):
    folder = shutil.copytree(TRACES / "ascend_trace_view" / "single_npu", tmp_path / "own")
    path = folder / "trace_view.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))
    task = next(event for event in events if "Task Type" in event.get("args", {}))
    task["pid"] = -5
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    found = {lost.what: lost.count for lost in load(folder, cache=False).dropped}
    assert found == {"task of a process without a name": 1}


def test_a_database_that_is_shorter_than_it_says_is_counted(tmp_path: Path):
    folder = shutil.copytree(DATABASE, tmp_path / "own")
    assert not load(folder, cache=False).dropped
    path = next(folder.rglob("ascend_pytorch_profiler_*.db"))
    path.write_bytes(path.read_bytes()[:-9])
    found = {lost.what: lost.count for lost in load(folder, cache=False).dropped}
    assert found["bytes that its header counts and that are not there"] == 9
