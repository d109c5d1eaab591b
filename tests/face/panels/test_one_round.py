"""A whole round by hand, on the pages: goal, start, prediction, measurement, decision; and two people at once."""

from __future__ import annotations

import pytest

from perfkit.config.presets import published_plan
from perfkit.core.errors import InputError
from perfkit.face.panels import header, one_round, open_panel, project_settings
from perfkit.face.widgets.log import changed_since, seen
from perfkit.face.widgets.status import NothingYet
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import estimate
from perfkit.project import create_project, open_project
from perfkit.project.experiments import ExperimentLog, Measurement
from perfkit.project.predictions import expected, predict_goal, predictions_table
from perfkit.project.sample import demo

HYPOTHESIS = "two stages amortise the update over more micro batches"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = create_project(tmp_path / "p", "by hand", goal_value=2200.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    return made.folder


def test_a_whole_round_by_hand(folder):
    with pytest.raises(NothingYet, match="round 0 is what you begin with"):
        one_round.compute(one_round.State())
    with pytest.raises(InputError, match="no round is open"):
        predict_goal(2250)
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    assert open_project(folder).open_round == 0
    assert predictions_table().empty
    assert "now predicts 2\u2009250 tokens/s" in predict_goal(2250, 2150, 2350, "a guess")
    assert len(predictions_table()) == 1
    log = ExperimentLog(folder)
    log.add_run(0, [Measurement(metric="tokens_per_s_per_device", value=2189.0, source="log")], kind="measured")
    with pytest.raises(InputError, match="has a run already"):
        predict_goal(2200, method="too late")
    assert "(prediction +2.79 %)" in str(one_round.view(one_round.compute(one_round.State())).tables["story"].frame)


def test_everything_wrong_with_a_prediction_is_said_at_once(folder):
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    with pytest.raises(InputError) as error:
        predict_goal(0, method=" ")
    assert len(error.value.problems) == 2
    with pytest.raises(InputError, match="does not hold the value"):
        predict_goal(5, 6, 7)


def test_a_prediction_is_filled_from_the_estimate_with_its_interval():
    found = estimate(changed_plan(published_plan("llama2-13b"), device="Ascend-910B2"))
    for metric in ("tokens_per_s_per_device", "step_time_ns", "mfu"):
        value, low, high = expected(found, metric)
        assert low < value < high
    assert expected(found, "tokens_per_s_per_device")[0] == pytest.approx(found.tokens_per_s_per_device, rel=1e-3)


def test_a_second_round_waits_until_the_first_is_decided_or_abandoned(folder):
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    with pytest.raises(InputError, match="round 0 is open"):
        one_round.start_round(one_round.State(title="tp 2", hypothesis=HYPOTHESIS))
    with pytest.raises(InputError, match="at least 15 characters"):
        one_round.abandon_round(one_round.State(reason="no"))
    assert "stays in the table" in one_round.abandon_round(one_round.State(reason="the queue was full for a week"))
    one_round.start_round(one_round.State(title="tp 2", hypothesis=HYPOTHESIS))
    assert ExperimentLog(folder).show("json")["rounds"][0]["verdict"] == "revert"


def test_a_decided_round_can_be_looked_at_with_its_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "d").folder))
    answer = one_round.view(one_round.compute(one_round.State(round=2)))
    assert "Round 2" in answer.text
    assert "select_recompute" in str(answer.tables["changed"].frame)
    assert one_round.compute(one_round.State()).row["number"] == 5


def test_the_log_judges_by_the_goal_of_the_page(folder):
    state = project_settings.State(name="by hand", goal_value=2300.0, accuracy="re-association")
    project_settings.save_project(state)
    project = ExperimentLog(folder).show("json")["project"]
    assert (project["goal_value"], project["accuracy_rule"]["max_relative"]) == (2300.0, 0.005)
    assert project_settings.start().accuracy == "re-association"
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    assert ExperimentLog(folder).missing(0)["goal"] == ["measurement of round 0"]


def test_what_another_kernel_changed_is_told_with_its_author(folder):
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    view = header("00_start_here")
    view.look(folder)
    assert view.changed == ""
    ExperimentLog(folder, author="B").decide(0, "revert", "the queue was full for a week")
    view.look(folder)
    assert view.changed.startswith("Changed by B 0 s ago: decide, round 0")


def test_what_this_page_wrote_is_not_told_but_shown(folder):
    view, panel = header("00_start_here"), open_panel(one_round.PANEL)
    panel.set({"title": "pp 2", "hypothesis": HYPOTHESIS})
    panel.act("start")
    view.look(folder)
    assert view.changed == ""
    assert view.content["round"] == "Round 0"


def test_settings_that_were_written_elsewhere_are_told(folder):
    before = seen(folder)
    file = folder / "perfkit.toml"
    file.write_text(file.read_text() + "\n# by hand\n")
    assert changed_since(folder, before) == "The settings of the project were changed elsewhere"


def test_the_name_of_the_visitor_is_the_author(folder, monkeypatch):
    monkeypatch.setenv("PERFKIT_AUTHOR", "Ada")
    one_round.start_round(one_round.State(title="pp 2", hypothesis=HYPOTHESIS))
    assert ExperimentLog(folder).show("json")["rounds"][0]["author"] == "Ada"
