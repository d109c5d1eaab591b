"""Page 00 without a browser: making a project, changing its goal, the ladder of the sample project."""

from __future__ import annotations

from dataclasses import replace

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.face.panels import project_settings, rounds
from perfkit.face.panels.project_settings import State
from perfkit.face.widgets.status import NothingYet
from perfkit.project import open_project
from perfkit.project.sample import demo


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    return tmp_path


def test_the_first_save_makes_a_project(folder):
    state = State(name="größer & <b>schneller</b> 快", goal_value=2200.0)
    assert "No project is open" in project_settings.view(project_settings.compute(state)).text
    assert "Made the project" in project_settings.save_project(state)
    project = open_project(folder)
    assert project.name == state.name
    assert (project.goal_value, project.goal_op, project.device_memory_bytes) == (2200.0, ">=", 64 * 2**30)


def test_the_second_save_changes_what_differs_and_says_so(folder):
    project_settings.save_project(State(name="one"))
    state = replace(project_settings.start(), goal_metric="step_time_ns", goal_value=1500.0)
    answer = project_settings.view(project_settings.compute(state))
    assert set(answer.tables["changes"].frame["setting"]) == {"goal metric", "goal op", "goal value"}
    project_settings.save_project(state)
    assert open_project(folder).goal_value == 1_500_000_000.0
    assert "Everything is saved" in project_settings.view(project_settings.compute(project_settings.start())).text


def test_a_device_preset_fills_peak_and_memory():
    state = replace(State(), device="Ascend 313")
    assert state.peak_tflops_per_s == pytest.approx(313.0)
    assert state.usable_gib <= state.memory_gib


def test_a_limit_above_the_device_memory_is_refused_with_both_numbers():
    with pytest.raises(InputError, match=r"70.0 GiB, is more than the device has, 64.0 GiB"):
        project_settings.compute(State(usable_gib=70.0))


def test_without_rounds_the_page_says_what_to_do_next(folder):
    with pytest.raises(NothingYet, match="page 10"):
        rounds.compute({})
    project_settings.save_project(State(name="one"))
    with pytest.raises(NothingYet, match="page 01"):
        rounds.compute({})


def test_the_sample_project_shows_its_published_ladder(tmp_path, monkeypatch):
    demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "demo"))
    answer = rounds.view(rounds.compute({}))
    assert "round 5" in answer.text
    assert "+37.7 %" in answer.text
    values = [row["value"] for row in answer.charts["ladder"].chart.datasets["rounds"]]
    assert values == [1860, 2136, 2189, 2210, 2353, 2562]
    error = perfkit.ExperimentLog(tmp_path / "demo").ladder()["error_ratio"].tolist()[1]
    assert answer.tables["rounds"].frame["error_ratio"].tolist()[1] == error
