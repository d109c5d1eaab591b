"""Decisions of a project: what a round lacks, how good predictions were, and the calibration that a run gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.compare.sides import open_side
from perfkit.project import create_project
from perfkit.project.decisions import decide_round, pending
from perfkit.project.experiments import ExperimentLog
from perfkit.project.recalibrated import keep_recalibration
from perfkit.project.sample import demo


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = create_project(tmp_path / "project", "tuning", goal_value=2000.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    log = ExperimentLog(made.folder)
    log.set_project("tuning")
    log.start("other tensor parallel size", "fewer exposed collectives in every layer")
    return made


def test_predictions_of_all_rounds_lie_beside_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = demo(tmp_path / "demo").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    found = pending()
    assert found.predictions()["name"].tolist() == [f"round {number}" for number in range(1, 6)]
    errors = ExperimentLog(folder).ladder()["error_ratio"].tolist()[1:]
    assert found.predictions()["error_ratio"].tolist() == errors
    assert "off by" in found.told()


def test_a_round_is_decided_only_with_its_evidence(project):
    assert pending().told().startswith("Round 0 (other tensor parallel size) waits for its decision: not measured yet")
    assert set(pending().to_frame()["missing"]) - {"nothing"}
    with pytest.raises(InputError, match="choose a verdict"):
        decide_round("", "")
    with pytest.raises(InputError) as refused:
        decide_round("keep", "short")
    assert len(refused.value.problems) >= 3
    assert decide_round("revert", "the collectives took longer than before") == "Round 0 is decided: revert."
    assert pending().told().startswith("All 1 rounds are decided")
    with pytest.raises(InputError, match="all rounds are decided"):
        decide_round("revert", "the collectives took longer than before")


def test_without_a_project_there_is_nothing_to_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "nothing"))
    assert pending() is None


def test_recalibration_is_refused_for_what_is_no_run_of_the_plan():
    sides = [open_side(data_folder() / "case13b" / f"round{number}.yaml") for number in (4, 5)]
    with pytest.raises(InputError, match="needs a run and its plan; chosen are a plan and a plan"):
        keep_recalibration(*sides)
