"""Ranks that several processes read give the run that one process gives."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.record import workers
from perfkit.record.load import load

TEXT = data_folder() / "traces" / "torch_npu_2rank"
DATABASE = Path(__file__).parents[1] / "data" / "traces" / "torch_npu_db" / "level1"


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> tuple[Run, list[tuple[str, int, int]]]:
    """The run and the progress that was told."""
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(workers, "MIN_ITEMS", 2)
    monkeypatch.setattr(workers, "MIN_BYTES", 0)
    monkeypatch.setenv("PERFKIT_THREADS", str(threads))
    return load(path, cache=False, progress=lambda *what: told.append(what)), told


@pytest.mark.parametrize("form", ["text", "damaged text", "database"])
def test_several_processes_and_one_read_the_same(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = DATABASE if form == "database" else Path(shutil.copytree(TEXT, tmp_path / "run"))
    if form == "damaged text":
        for table in path.rglob("kernel_details.csv"):
            table.write_bytes(table.read_bytes()[:-7])
        next(path.rglob("communication.json")).write_text("{")
    alone, told_alone = loaded(path, monkeypatch, 1)
    together, told_together = loaded(path, monkeypatch, 2)
    assert len(alone.ranks) >= 2
    assert bool(alone.dropped) == (form == "damaged text")
    for name in ("ranks", "dropped", "notes", "facts", "placement", "clock"):
        assert getattr(together, name) == getattr(alone, name), name
    assert set(together.tables) == set(alone.tables)
    for table in alone.tables:
        pd.testing.assert_frame_equal(together.frame(table), alone.frame(table))
    assert told_together[-1][1:] == told_alone[-1][1:], "all bytes are told"
