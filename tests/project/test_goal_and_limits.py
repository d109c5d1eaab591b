"""Goal and limits of a project as they are typed: made, changed, and told beside what is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.project import open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goal_and_limits import Settings, beside_saved, limits_on, save_settings, settings_of_project


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    return tmp_path


def test_the_first_save_makes_a_project(folder):
    asked = Settings(name="größer & <b>schneller</b> 快", goal_value=2200.0)
    assert "No project is open" in beside_saved(asked).told()[0]
    assert "Made the project" in save_settings(asked)
    project = open_project(folder)
    assert project.name == asked.name
    assert (project.goal_value, project.goal_op, project.device_memory_bytes) == (2200.0, ">=", 64 * 2**30)


def test_the_second_save_changes_what_differs_and_says_so(folder):
    save_settings(Settings(name="one"))
    asked = replace(settings_of_project(), goal_metric="step_time_ns", goal_value=1500.0)
    beside = beside_saved(asked)
    assert set(beside.to_frame()["setting"]) == {"goal metric", "goal op", "goal value"}
    assert "3 settings are not saved yet." in beside.told()[0]
    assert save_settings(asked).startswith("Saved 3 settings to ")
    assert open_project(folder).goal_value == 1_500_000_000.0
    assert "Everything is saved" in beside_saved(settings_of_project()).told()[0]


def test_a_device_preset_fills_peak_and_memory(folder):
    on_device = limits_on("Ascend 313")
    assert on_device.peak_tflops_per_s == pytest.approx(313.0)
    assert on_device.usable_gib <= on_device.memory_gib
    save_settings(Settings(name="one", peak_tflops_per_s=320.0, usable_gib=50.0))
    assert (limits_on("custom").peak_tflops_per_s, limits_on("custom").usable_gib) == (320.0, 50.0)
    assert limits_on("Ascend 313").usable_gib == min(50.0, on_device.memory_gib)
    assert folder.exists()


@pytest.mark.usefixtures("folder")
def test_what_contradicts_is_refused_with_both_numbers_and_not_saved():
    for do in (beside_saved, save_settings):
        with pytest.raises(InputError, match=r"70.0 GiB, is more than the device has, 64.0 GiB"):
            do(Settings(usable_gib=70.0))
        with pytest.raises(InputError) as error:
            do(Settings(name=" ", usable_gib=70.0))
        assert len(error.value.problems) == 2
    assert "No project is open" in beside_saved(Settings()).told()[0]


def test_the_log_judges_by_the_goal_that_was_saved(folder):
    save_settings(Settings(name="by hand", goal_value=2300.0, accuracy="re-association"))
    project = ExperimentLog(folder).show("json")["project"]
    assert (project["goal_value"], project["accuracy_rule"]["max_relative"]) == (2300.0, 0.005)
    assert settings_of_project().accuracy == "re-association"
