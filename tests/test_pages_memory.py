"""Pages on memory as notebooks: on a log or recording of the reader's own they leave the objects that scripts get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit import load
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.widgets.page_state import page_state
from perfkit.project import open_project, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from tests.page_cells import run_page

DRYRUN = data_folder() / "dryrun"
PROFILE = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture(autouse=True)
def _own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


def test_page_19_judges_a_log_of_ones_own_and_says_how_to_simulate_more():
    page = run_page("19_dryrun", path=DRYRUN / "guide.log")
    assert page["judged"].fullest.actual_bytes == 48_874 * 2**20
    assert page["plan"] is None
    page["open_log"].choose(DRYRUN / "qwen2.5_7b" / "as_trained")
    commands = page["how_to_simulate_more"].value
    assert any("RANK_SIZE=4 RANK_ID=2" in text and "MS_KERNEL_LAUNCH_SKIP=all" in text for text in commands.values())
    older = page["how_to_simulate_more"].set(version="2.4", ranks="2").value
    assert "ENABLE_CELL_REUSE=1" in next(iter(older.values()))
    assert not any("RANK_ID=0" in text for text in older.values())
    with pytest.raises(InputError, match="rank"):
        page["how_to_simulate_more"].set(ranks="99").wait()


def test_page_19_writes_the_peak_to_the_open_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = demo(tmp_path / "d").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    keep = run_page("19_dryrun", path=DRYRUN / "guide.log")["the_peak_of_the_round"]
    with pytest.raises(InputError, match="decided already"):
        keep.press().wait()
    number = ExperimentLog(folder).start("a dry run first")
    save(replace(open_project(folder), open_round=number))
    assert keep.press().value.startswith(f"Round {number} now predicts")
    (kept,) = ExperimentLog(folder).show("json")["rounds"][-1]["predictions"]
    assert (kept["metric"], kept["value"]) == ("peak_memory_bytes", 48_874 * 2**20)


def test_page_15_follows_its_recording_rank_and_plan():
    page = run_page("15_memory_profile", path=PROFILE)
    answer = load(PROFILE).memory(rank=0)
    assert f"{answer['allocated_bytes'].max() / 2**30:.3g} GiB" in page["how_memory_went"].wait().text
    assert page["blocks"]["name"].iloc[0] == "aten::mm"
    page["how_memory_went"].set(rank=1)
    assert "Rank 1 allocated" in page["how_memory_went"].wait().text
    assert "No plan" in page["against_the_plan"].value
    page["open_plan"].choose("llama2-7b")
    assert "The plan predicts" in page["against_the_plan"].value
    page["open_run"].choose(data_folder() / "traces" / "memory_tracker")
    assert "Rank 0 allocated up to 46.0 MiB" in page["how_memory_went"].wait().text
