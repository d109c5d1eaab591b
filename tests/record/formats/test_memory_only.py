"""Profiles of memory alone, counters of other kinds, and archives with the separators of Windows."""

import shutil
import sqlite3
import zipfile
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.record.load import load

DATA = Path(__file__).parents[2] / "data" / "traces"
MEMORY = DATA / "ascend_memory"
TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"


def test_a_folder_with_memory_files_alone_is_a_run(tmp_path: Path):
    source = next(MEMORY.rglob("memory_record.csv")).parent
    output = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    for name in ("memory_record.csv", "operator_memory.csv"):
        shutil.copy(source / name, output / name)
    run = load(tmp_path, cache=False)
    assert run.format == "ascend-text"
    assert len(run.frame("memory_curve"))
    assert len(run.frame("memory_blocks"))
    whole = load(source, cache=False)
    assert len(run.frame("memory_blocks")) == len(whole.frame("memory_blocks"))


@pytest.mark.parametrize("name", ["memory_record.csv", "operator_memory.csv"])
def test_one_of_these_files_alone_is_a_run(name: str):
    assert load(next(MEMORY.rglob(name)), cache=False).format == "ascend-text"


def test_a_database_with_other_metrics_has_an_empty_table_of_units(tmp_path: Path):
    source = next(DATA.rglob("ascend_pytorch_profiler_*.db"))
    copy = Path(shutil.copy(source, tmp_path))
    copy.chmod(0o644)
    with sqlite3.connect(copy) as database:
        task = database.execute("SELECT globalTaskId FROM COMPUTE_TASK_INFO").fetchone()[0]
        database.execute("INSERT INTO STRING_IDS VALUES (999999, 'l2_cache_hit_rate')")
        database.execute("DROP TABLE IF EXISTS TASK_PMU_INFO")
        database.execute("CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC)")
        database.execute("INSERT INTO TASK_PMU_INFO VALUES (?, 999999, 0.5)", (task,))
    database.close()
    assert load(tmp_path, cache=False).frame("utilization").empty


def test_an_archive_with_backslashes_is_unpacked_into_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "ranks.zip", "w") as archive:
        for path in sorted(TWO_RANKS.rglob("*")):
            if path.is_file():
                member = zipfile.ZipInfo("x")
                member.filename = str(path.relative_to(TWO_RANKS)).replace("/", "\\")
                archive.writestr(member, path.read_bytes())
    run = load(tmp_path / "ranks.zip", cache=False)
    assert run.frame("kernels").astype(str).equals(load(TWO_RANKS, cache=False).frame("kernels").astype(str))
