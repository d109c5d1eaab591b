"""Predictions of a round: why none can be written down, told before somebody presses the button."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.predictions import nothing_to_predict, predict_goal
from perfkit.record.load import load

RUN = str(data_folder() / "traces" / "torch_npu_2rank")


def test_what_stands_against_a_prediction_is_said_exactly_where_it_would_be_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)

    def refused() -> bool:
        try:
            predict_goal(2000.0)
        except InputError:
            return True
        return False

    assert nothing_to_predict().startswith("There is no project")
    assert refused()
    made = create_project(tmp_path / "project", "tuning", goal_value=2000.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    log = ExperimentLog(made.folder)
    log.set_project("tuning")
    assert nothing_to_predict() == "No round is open; the next one begins on page 00."
    assert refused()
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    assert nothing_to_predict() == "The project is only read: nothing is written to it."
    assert refused()
    monkeypatch.delenv("PERFKIT_READ_ONLY")
    number = log.start("Baseline", "what the training does before anything is changed")
    assert nothing_to_predict() == ""
    assert not refused()
    stated = (made.folder / "perfkit.toml").read_text(encoding="utf-8")
    (made.folder / "perfkit.toml").write_text("[project", encoding="utf-8")
    assert nothing_to_predict() == "", "what is wrong with the file is said where the button is pressed"
    assert refused()
    (made.folder / "perfkit.toml").write_text(stated, encoding="utf-8")
    log.attach(number, RUN, "run", run=load(RUN))
    assert nothing_to_predict() == f"Round {number} has a run, so what it predicts is locked."
    with pytest.raises(InputError, match="has a run already"):
        predict_goal(2000.0)
