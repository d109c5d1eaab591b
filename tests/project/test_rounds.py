"""Rounds by hand: start, prediction, measurement, decision; where the project stands; and two people at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config.presets import published_plan
from perfkit.core.errors import InputError
from perfkit.face import widgets
from perfkit.face.widgets.entries import Button
from perfkit.face.widgets.log import changed_since, seen
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.project_entries import round_entries
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import estimate
from perfkit.project import create_project, open_project
from perfkit.project.experiments import ExperimentLog, Measurement
from perfkit.project.predictions import expected, predict_goal, predictions_table
from perfkit.project.rounds import abandon_round, can_start, is_open, skip_state, standing, start_round, story, why_no_round
from perfkit.project.sample import demo

HYPOTHESIS = "two stages amortise the update over more micro batches"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = create_project(tmp_path / "p", "by hand", goal_value=2200.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    return made.folder


def test_a_whole_round_by_hand(folder):
    assert story() is None
    assert "round 0 is what you begin with" in why_no_round()
    with pytest.raises(InputError, match="no round is open"):
        predict_goal(2250)
    start_round("pp 2", HYPOTHESIS)
    assert open_project(folder).open_round == 0
    assert predictions_table().empty
    assert "now predicts 2\u2009250 tokens/s" in predict_goal(2250, 2150, 2350, "a guess")
    assert len(predictions_table()) == 1
    log = ExperimentLog(folder)
    log.add_run(0, [Measurement(metric="tokens_per_s_per_device", value=2189.0, source="log")], kind="measured")
    with pytest.raises(InputError, match="has a run already"):
        predict_goal(2200, method="too late")
    assert "(prediction +2.79 %)" in story().to_frame()["of_this_round"].tolist()[3]


def test_everything_wrong_with_a_prediction_is_said_at_once(folder):
    start_round("pp 2", HYPOTHESIS)
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
    start_round("pp 2", HYPOTHESIS)
    with pytest.raises(InputError, match="round 0 is open"):
        start_round("tp 2", HYPOTHESIS)
    with pytest.raises(InputError, match="at least 15 characters"):
        abandon_round("no")
    assert "stays in the table" in abandon_round("the queue was full for a week")
    start_round("tp 2", HYPOTHESIS)
    assert ExperimentLog(folder).show("json")["rounds"][0]["verdict"] == "revert"


def test_a_decided_round_can_be_looked_at_with_its_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "d").folder))
    second = story(2)
    assert second.told().startswith("Round 2 (Selective recompute of twenty patterns) was decided: keep.")
    assert "select_recompute" in str(second.differing())
    assert story().row["number"] == 5


def test_a_state_that_lacks_its_evidence_is_passed_over_with_a_reason(folder):
    with pytest.raises(InputError, match="no round is open"):
        skip_state("the queue was full for a week")
    start_round("pp 2", HYPOTHESIS)
    lacking = story().missing
    first = next(name for name, what in lacking.items() if what and name not in ("goal", "decide"))
    assert skip_state("the queue was full for a week") == f"Round 0: {first} is skipped; the reason is kept."
    rows = story().to_frame().set_index("what")["of_this_round"]
    assert rows[f"skipped {first}"].startswith("the queue was full for a week (")


def test_without_rounds_it_is_said_what_to_do_next(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "nothing"))
    assert "page 10" in standing().told()[0]
    assert "No project is open" in why_no_round()
    assert (can_start(), is_open()) == (False, False)
    monkeypatch.setenv("PERFKIT_PROJECT", str(create_project(tmp_path / "p", "one").folder))
    assert "page 01" in standing().told()[0]
    assert (can_start(), is_open()) == (True, False)


def test_the_sample_project_stands_on_its_published_ladder(tmp_path, monkeypatch):
    demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "demo"))
    stands = standing()
    best, *notes = stands.told()
    assert "round 5" in best
    assert "+37.7 %" in best
    assert any("published figures" in note for note in notes)
    assert stands.ladder()["value"].tolist() == [1860, 2136, 2189, 2210, 2353, 2562]
    error = ExperimentLog(tmp_path / "demo").ladder()["error_ratio"].tolist()[1]
    assert stands.to_frame()["error_ratio"].tolist()[1] == error


def test_what_another_kernel_changed_is_told_with_its_author(folder):
    start_round("pp 2", HYPOTHESIS)
    view = widgets.header("00_start_here")
    view.look(folder)
    assert view.changed == ""
    ExperimentLog(folder, author="B").decide(0, "revert", "the queue was full for a week")
    view.look(folder)
    assert view.changed.startswith("Changed by B 0 s ago: decide, round 0")


def test_what_this_page_wrote_is_not_told_but_shown(folder):
    page_state.cache_clear()
    view = widgets.header("00_start_here")

    @widgets.step(**round_entries(), buttons=[Button(label="Start the round", run=start_round, visible=can_start)])
    def the_round(round, **_):
        return story(round) or why_no_round()

    assert the_round.wait().text == why_no_round()
    the_round.set(lever="pp 2", hypothesis=HYPOTHESIS).press("Start the round")
    view.look(folder)
    assert view.changed == ""
    assert view.content["round"] == "Round 0"
    assert the_round.wait().text.startswith("Round 0 (pp 2) is open.")
    assert the_round.view.actions == []


def test_a_recording_that_this_page_opens_is_no_change_from_elsewhere(folder, monkeypatch):
    page_state.cache_clear()
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    view = widgets.header("10_load_run")
    recording = Path(__file__).parents[1] / "data" / "traces" / "mindinsight" / "run_3"
    assert widgets.choose_recording(recording, remember=True).value.name == "run_3"
    view.look(folder)
    assert open_project(folder).open_run == recording
    assert view.changed == ""


def test_settings_that_were_written_elsewhere_are_told(folder):
    before = seen(folder)
    file = folder / "perfkit.toml"
    file.write_text(file.read_text() + "\n# by hand\n")
    assert changed_since(folder, before) == "The settings of the project were changed elsewhere"


def test_the_name_of_the_visitor_is_the_author(folder, monkeypatch):
    monkeypatch.setenv("PERFKIT_AUTHOR", "Ada")
    start_round("pp 2", HYPOTHESIS)
    assert ExperimentLog(folder).show("json")["rounds"][0]["author"] == "Ada"
