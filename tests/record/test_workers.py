"""Ranks read in processes, on Dask or one by one give the same; a process that dies costs at most one clear error."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.record import workers
from perfkit.record.load import load
from tests.record.worker_tasks import (
    always_die,
    chatter,
    die_once,
    fail_oddly,
    refuse_three,
    slow_first,
    square,
    unreadable,
    whereabouts,
)

KINETO = next((data_folder() / "traces" / "kineto_resnet").glob("*.json.gz"))


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for any amount of work."""
    monkeypatch.setattr(workers, "MIN_BYTES", 0)
    monkeypatch.setenv("PERFKIT_THREADS", "2")
    monkeypatch.delenv("PERFKIT_DASK", raising=False)


def run(task, items, report=lambda *_: None):
    return list(workers.each(task, items, report=report, name=lambda item: f"item {item}", num_bytes=1))


@pytest.mark.usefixtures("parallel")
def test_results_keep_their_order_and_come_from_other_processes():
    results = run(slow_first, range(6))
    assert [item for item, _ in results] == list(range(6))
    pids = {pid for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_one_item_aside_has_its_result_and_reports_and_may_be_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PERFKIT_THREADS", raising=False)
    seen: list[tuple[str, int]] = []
    assert workers.aside(square, 7, report=lambda *content: seen.append(content), name="seven") == 49
    assert seen == [("item 7", 1)]
    pid, threads = workers.aside(whereabouts, 0, report=seen.append, name="there")
    assert pid != os.getpid()
    assert threads == ""
    with pytest.raises(InputError, match="is not there"):
        workers.aside(refuse_three, 3, report=seen.append, name="three")


def test_a_process_does_not_outlive_the_one_that_started_it(tmp_path: Path):
    code = (
        "from perfkit.record import workers; from tests.record.worker_tasks import sleep_on; from pathlib import Path; "
        f"workers.aside(sleep_on, Path({str(tmp_path / 'pid')!r}), report=print, name='')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    while not (tmp_path / "pid").exists():
        assert parent.poll() is None
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    assert any(time.sleep(0.1) or not _runs(child) for _ in range(300))


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.usefixtures("parallel")
def test_reports_arrive_in_the_thread_that_asked():
    seen: set[tuple[str, int, int]] = set()
    assert run(square, range(5), lambda what, size: seen.add((what, size, threading.get_ident()))) == [0, 1, 4, 9, 16]
    assert seen == {(f"item {item}", 1, threading.get_ident()) for item in range(5)}


@pytest.mark.usefixtures("parallel")
def test_an_error_of_a_rank_is_raised_as_it_is():
    with pytest.raises(InputError) as error:
        run(refuse_three, range(6))
    assert (error.value.subject, error.value.problems) == ("rank 3", ("is empty", "is not there"))


@pytest.mark.usefixtures("parallel")
def test_an_error_that_cannot_travel_is_told_in_words():
    with pytest.raises(RuntimeError, match="odd"):
        run(fail_oddly, range(4))


@pytest.mark.usefixtures("parallel")
def test_a_result_that_cannot_be_read_here_is_an_error_and_not_waited_for():
    with pytest.raises(ValueError, match="no number"):
        run(unreadable, range(4))


@pytest.mark.usefixtures("parallel")
def test_what_a_task_prints_does_not_get_between_the_messages():
    assert run(chatter, range(4)) == [0, 1, 2, 3]


@pytest.mark.usefixtures("parallel")
def test_a_process_that_dies_once_is_replaced_and_nothing_counts_twice(tmp_path: Path):
    items = [tmp_path / f"rank{index}" for index in range(4)]
    seen: list[tuple[str, int]] = []
    assert run(die_once, items, lambda *content: seen.append(content)) == [item.name for item in items]
    assert sorted(seen) == sorted((item.name, size) for item in items for size in (10, 20))


@pytest.mark.usefixtures("parallel")
def test_a_process_that_dies_twice_is_one_clear_error():
    with pytest.raises(InputError, match=r"(?s)item 2: 1 problem.*ended twice \(exit status 7.*PERFKIT_THREADS=1"):
        run(always_die, range(4))


@pytest.mark.parametrize(("items", "num_bytes", "threads"), [(3, 1 << 40, "8"), (8, 10, "8"), (8, 1 << 40, "1")])
def test_little_work_stays_in_this_process(items: int, num_bytes: int, threads: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_THREADS", threads)
    monkeypatch.delenv("PERFKIT_DASK", raising=False)
    found = workers.each(slow_first, range(items), report=lambda *_: None, name=str, num_bytes=num_bytes)
    assert {pid for _, pid in found} == {os.getpid()}


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """A Kineto run of four ranks."""
    for rank in range(4):
        shutil.copy(KINETO, tmp_path / f"rank{rank}.json.gz")
    return tmp_path


def small_ranks(folder: Path) -> Path:
    """Four ranks of a few hundred kernels, each of another length."""
    for rank in range(4):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 1.5 + rank, "args": {"stream": 7}}
        events = [kernel | {"ts": 100.25 + 10 * at} for at in range(300)]
        (folder / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    return folder


def assert_equal(a, b):
    assert (a.ranks, a.notes, a.dropped, dict(a.facts)) == (b.ranks, b.notes, b.dropped, dict(b.facts))
    assert list(a.tables) == list(b.tables)
    for name in a.tables:
        pd.testing.assert_frame_equal(a.frame(name), b.frame(name))


def test_a_run_read_by_processes_equals_one_read_by_one(ranks: Path, monkeypatch: pytest.MonkeyPatch):
    serial = load(ranks, cache=False)
    monkeypatch.setattr(workers, "MIN_BYTES", 0)
    monkeypatch.setenv("PERFKIT_THREADS", "3")
    seen: list[tuple[str, int, int]] = []
    assert_equal(serial, load(ranks, cache=False, progress=lambda *report: seen.append(report)))
    assert seen[-1][1] == seen[-1][2] == sum(file.stat().st_size for file in ranks.iterdir())


def test_a_missing_dask_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_DASK", "tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"Dask is not installed; install perfkit\[dask\]"):
        run(square, range(2))


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_even_if_a_worker_is_killed_midway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from distributed import LocalCluster

    ranks = small_ranks(tmp_path)
    serial = load(ranks, cache=False)
    assert serial.ranks == (0, 1, 2, 3)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        monkeypatch.setenv("PERFKIT_DASK", cluster.scheduler_address)
        victims = [worker.process.pid for worker in cluster.workers.values()]
        killed: list[float] = []

        def kill_one(what: str, done: int, total: int) -> None:
            if not killed:  # a rank has come back, the others are running, waiting or lie in the memory of their worker
                os.kill(victims[1], signal.SIGKILL)
                killed.append(done / total)

        assert_equal(serial, load(ranks, cache=False, progress=kill_one))
        assert 0 < killed[0] < 1
        with pytest.raises(ProcessLookupError):
            os.kill(victims[1], 0)
