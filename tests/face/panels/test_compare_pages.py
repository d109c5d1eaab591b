"""Page 21 without a browser: sentences, tables, buttons, and what is saved."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import format_change
from perfkit.face.charts.compare import waterfall_rows
from perfkit.face.panels import compare, decide
from perfkit.face.widgets.status import NothingYet
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo

DATA = data_folder()


@pytest.fixture
def project(tmp_path, monkeypatch):
    made = create_project(tmp_path / "project", "tuning", goal_value=2000.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    log = ExperimentLog(made.folder)
    log.set_project("tuning")
    log.start("other tensor parallel size", "fewer exposed collectives in every layer")
    return made


def test_page_21_opens_with_the_last_rounds_of_the_case():
    answer = compare.view(compare.compute(compare.start()))
    assert answer.text.startswith("A step is 12.9 s shorter (-11.0 %)")
    assert "computing/recompute changed most" in answer.text
    assert set(answer.tables["config"].frame["key"]) == {"context.max_device_memory", "recompute_config.recompute"}
    parts = answer.tables["parts"].frame
    assert parts["delta_s"].iloc[:-1].sum() == pytest.approx(parts["delta_s"].iloc[-1])


def test_the_waterfall_ends_where_b_is():
    answer = compare.view(compare.compute(compare.start()))
    steps = answer.charts["waterfall"].chart.datasets["steps"]
    assert steps[0]["path"] == "a"
    assert steps[-2]["end"] == pytest.approx(steps[-1]["end"])
    for before, after in pairwise(steps[1:-1]):
        assert after["start"] == pytest.approx(before["end"])


def test_two_recordings_are_compared_with_operators():
    runs = compare.State(a=str(DATA / "traces/torch_npu_2rank"), b=str(DATA / "traces/kineto_resnet"), operators=True)
    answer = compare.view(compare.compute(runs))
    assert {"parts", "operators", "only in a", "only in b"} <= set(answer.tables)
    assert any("too few steps" in note for note in answer.notes)


def test_graphs_and_hostile_names_stay_text():
    state = compare.State(a=str(DATA / "ir/silu_mul_not_in_effect.ir"), b=str(DATA / "ir/silu_mul_in_effect.ir"))
    answer = compare.view(compare.compute(state))
    assert answer.text == "Operators: 2 added, 12 removed, 8 moved, 16 changed."
    assert (answer.tables["nodes"].frame["what"] == "added").sum() == 2


def test_recalibration_is_refused_for_what_is_no_run_of_the_plan():
    with pytest.raises(InputError, match="needs a run and its plan"):
        compare.recalibrate_from_run(compare.start())


def test_the_button_to_recalibrate_shows_only_for_a_run_and_a_plan():
    action = next(action for action in compare.PANEL.actions if action.name == "recalibrate")
    assert action.visible is not None
    assert not action.visible(compare.start())
    assert action.visible(compare.State(a=str(DATA / "traces/torch_npu_2rank"), b=str(DATA / "configs/llama2_13b.toml")))


def test_a_comparison_is_kept_with_the_open_round(project):
    text = compare.save(compare.State(a=str(DATA / "case13b/round4.yaml"), b=str(DATA / "case13b/round5.yaml")))
    assert "Saved to round 0 of tuning" in text
    event = ExperimentLog(project.folder).events()[-1]
    assert (event["action"], event["detail"]["kind"]) == ("compare", "plans")


def test_nothing_chosen_is_an_empty_page():
    with pytest.raises(NothingYet):
        compare.compute(compare.State())


def test_the_rows_of_a_waterfall_leave_out_what_stayed():
    parts = pd.DataFrame({"path": ["x", "y"], "a": [1, 0], "b": [3, 0]})
    assert [row["path"] for row in waterfall_rows(parts, scale=1)["steps"]] == ["a", "x", "b"]


def test_predictions_of_all_rounds_lie_beside_what_was_measured(tmp_path, monkeypatch):
    folder = demo(tmp_path / "demo").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    answer = decide.view(decide.compute(decide.State()))
    points = answer.charts["predictions"].chart.datasets["rounds"]
    assert [point["name"] for point in points] == [f"round {number}" for number in range(1, 6)]
    errors = ExperimentLog(folder).ladder()["error_ratio"].tolist()[1:]
    assert [point["error"] for point in points] == [format_change(error) for error in errors]
    assert "off by" in answer.text


def test_a_round_is_decided_only_with_its_evidence(project):
    before = decide.view(decide.compute(decide.State()))
    assert before.text.startswith("Round 0 (other tensor parallel size) waits for its decision: not measured yet")
    with pytest.raises(InputError, match="choose a verdict"):
        decide.decide(decide.State())
    with pytest.raises(InputError) as refused:
        decide.decide(decide.State(verdict="keep", reason="short"))
    assert len(refused.value.problems) >= 3
    text = decide.decide(decide.State(verdict="revert", reason="the collectives took longer than before"))
    assert text == "Round 0 is decided: revert."
    assert decide.view(decide.compute(decide.State())).text.startswith("All 1 rounds are decided")


def test_without_a_project_there_is_nothing_to_decide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    with pytest.raises(NothingYet):
        decide.compute(decide.State())
