"""Page 10 without a browser: what is there, what is missing, what could not be read, and the lines that collect it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.panels import collect, load_run
from perfkit.face.panels.load_run import State
from perfkit.project import create_project, open_project

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"


def test_the_sentence_says_what_was_found():
    text = load_run.view(load_run.compute(State(run=str(SAMPLE)))).text
    assert "2 ranks, 1 step" in text
    assert "Nothing was dropped" in text
    assert "sum to it exactly" in text


def test_ranks_that_are_not_here_are_said():
    answer = load_run.view(load_run.compute(State(run=str(SAMPLE), num_expected=8)))
    assert "2 of 8 ranks" in answer.text
    assert any("6 of 8 ranks are not here" in note for note in answer.notes)


def test_every_missing_part_has_the_way_to_collect_it():
    result = load_run.compute(State(run=str(data_folder() / "traces" / "cluster_16card")))
    assert result.missing
    frame = load_run.view(result).tables["missing"].frame
    assert frame["not recorded"].tolist() == list(result.missing)
    assert frame["how to collect it"].str.len().min() > 20


def test_damage_is_listed_and_the_rest_is_read(tmp_path: Path):
    shutil.copytree(SAMPLE, tmp_path / "run")
    broken = next((tmp_path / "run").rglob("communication.json"))
    broken.write_bytes(broken.read_bytes()[:200])
    answer = load_run.view(load_run.compute(State(run=str(tmp_path / "run"))))
    lost = answer.tables["dropped"].frame
    assert lost["file"].str.contains("communication.json").any()
    assert "2 ranks" in answer.text
    assert "could not be read" in answer.text


def test_an_unknown_folder_says_what_was_looked_for(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("nothing to see", encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_run.compute(State(run=str(tmp_path)))
    assert "notes.txt" in str(error.value)
    assert sum(problem.startswith("looked for") for problem in error.value.problems) >= 5


def test_the_project_remembers_a_recording_but_not_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    create_project(tmp_path, "made by a test")
    load_run.compute(State(run=str(SAMPLE)))
    assert open_project(tmp_path).open_run is None
    shutil.copytree(SAMPLE, tmp_path / "own")
    load_run.compute(State(run=str(tmp_path / "own")))
    assert open_project(tmp_path).open_run == tmp_path / "own"
    assert load_run.start().run == str(tmp_path / "own")


def test_the_written_profile_lines_are_yaml_with_the_asked_window():
    answer = collect.view(collect.compute(collect.State(start_step=6, stop_step=8)))
    keys = yaml.safe_load(answer.code[0].text)
    assert (keys["profile"], keys["profile_start_step"], keys["profile_stop_step"]) == (True, 6, 8)


def test_a_window_that_compiles_or_is_long_is_said():
    notes = collect.view(collect.compute(collect.State(start_step=1, stop_step=10))).notes
    assert any("profile-start-compile" in note for note in notes)
    assert any("profile-window-long" in note for note in notes)


def test_a_window_without_a_step_is_refused():
    with pytest.raises(InputError):
        collect.compute(collect.State(start_step=7, stop_step=5))


def test_a_dry_run_offers_both_sets_of_variables():
    answer = collect.view(collect.compute(replace(collect.State(), what="dry run")))
    assert len(answer.code) == 2
    assert "MS_SIMULATION_LEVEL=1" in answer.code[0].text
