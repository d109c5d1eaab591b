"""The baseline of a project: what its round keeps of a log, and its rounds as runs of so many devices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.baseline import baseline
from perfkit.project import create_project
from perfkit.project.baseline import keep_baseline, measured_runs
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from perfkit.record.load import load

LOG = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    return create_project(tmp_path, "made by a test", peak_flops_per_s=376e12)


def keep(place: Path, **how: int) -> str:
    run = load(place)
    return keep_baseline(run, baseline(run, **how), place)


def test_saving_writes_round_0_with_its_source(project):
    assert "round 0" in keep(LOG)
    round_0 = ExperimentLog(project.folder).show("json")["rounds"][0]
    metrics = {item["metric"]: item for run in round_0["runs"] for item in run["measurements"]}
    assert metrics["step_time_ns"]["value"] == 1_755_000_000
    assert metrics["step_time_ns"]["n"] == 4
    assert [run["kind"] for run in round_0["runs"]] == ["reported"], "a bundled sample is never a measurement of the user's project"


def test_a_log_of_the_user_is_saved_as_measured_and_too_few_steps_are_not(project, tmp_path: Path):
    own = Path(shutil.copy(LOG, tmp_path / "own.log"))
    with pytest.raises(InputError, match="needs 3 or more"):
        keep(own, num_warmup=4)
    keep(own)
    runs = ExperimentLog(project.folder).show("json")["rounds"][0]["runs"]
    assert [run["kind"] for run in runs] == ["measured"]


def test_rounds_of_a_project_are_runs_and_without_a_project_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "nothing"))
    assert measured_runs() == []
    demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "demo"))
    assert measured_runs()[0] == ("round 0", 8, 1860.0 * 8)
