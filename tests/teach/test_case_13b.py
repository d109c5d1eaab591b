"""The 13B case: the published arithmetic of the six rounds, and page 30 tells nothing before the guess."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pandas as pd
import pytest

from perfkit import estimate, read_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import format_change, format_count, significant
from perfkit.face.widgets.status import NothingYet
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from perfkit.teach import case_13b
from tests.notebook_format import FOLDER
from tests.page_cells import run_page

PUBLISHED = {
    # round: reported, step s, MFU full %, MFU causal without head %
    0: (1860, 4.404, 43.12, 40.15),
    1: (2136, 122.727, 49.52, 46.10),
    2: (2189, 119.755, 50.75, 47.25),
    3: (2210, 118.617, 51.24, 47.70),
    4: (2353, 111.408, 54.55, 50.79),
    5: (2562, 102.320, 59.40, 55.30),
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    monkeypatch.setattr(case_13b, "_kept_here", {})


def notes_of(number: int) -> tuple[str, ...]:
    return case_13b.revealed_notes(number, "less recomputing")


@pytest.mark.parametrize("number", PUBLISHED)
def test_every_round_has_the_published_figures(number):
    reported, step_s, mfu_full, mfu_causal = PUBLISHED[number]
    found = case_13b.case_rounds()[number]
    assert [stage.total for stage in found.stages] == pytest.approx([found.estimate.step_time_s] * len(found.stages))
    assert found.reported == reported
    assert found.step_s == pytest.approx(step_s, abs=5e-4)
    assert 100 * found.mfu_full == pytest.approx(mfu_full, abs=0.006)
    assert 100 * found.mfu_causal == pytest.approx(mfu_causal, abs=0.006)


@pytest.mark.parametrize("number", range(1, 6))
def test_what_is_predicted_is_what_the_estimate_says_of_the_configuration(number):
    plan = read_config(data_folder() / "case13b" / f"round{number}.yaml")
    plan = replace(plan, hardware=catalog.hardware_named("Ascend-910B2"))
    found = case_13b.case_rounds()[number]
    assert found.predicted == pytest.approx(estimate(plan).tokens_per_s_per_device)
    assert abs(found.error) < 0.08


def test_the_gains_are_the_published_ones_and_the_predictions_are_near():
    rounds = case_13b.case_rounds()
    assert [round(100 * item.gain, 2) for item in rounds[1:]] == [14.84, 2.48, 0.96, 6.47, 8.88]
    assert sum(abs(item.error) for item in rounds[1:]) / 5 < 0.05


@pytest.mark.parametrize("number", range(1, 6))
def test_nothing_is_told_before_the_guess_and_all_of_it_after(number):
    page = run_page("30_case_13b")
    page["number"].set(number)
    before, told = page["what_was_changed"].wait(), page["the_story_so_far"].wait()
    cells = [list(table.frame.to_numpy().ravel()) for answer in (before, told) for table in answer.tables.values()]
    for shown in (f"{PUBLISHED[number][0]}", format_count(PUBLISHED[number][0])):
        assert shown not in f"{before.text} {before.notes} {cells}"
    with pytest.raises(NothingYet):
        page["predicted_and_reported"].wait()
    page["your_guess"].set(guess=2000.0, idea="less recomputing")
    assert "is kept" in page["your_guess"].press().wait().text
    answer = page["predicted_and_reported"].wait()
    assert f"the guide reports {format_count(PUBLISHED[number][0])}" in answer.text
    rows = next(iter(answer.charts.values())).chart.datasets["answers"]
    assert [(row["who"], row["value"]) for row in rows][::2] == [("your guess", 2000.0), ("reported", PUBLISHED[number][0])]
    assert len(next(iter(page["the_story_so_far"].wait().tables.values())).frame) == number + 1


def test_round_1_says_what_micro_batches_share():
    (note,) = [note for note in notes_of(1) if "share one gradient synchronization" in note]
    before, after = (float(share) for share in re.findall(r"([\d.]+) %", note))
    assert before > 10 * after > 0


def test_round_5_ends_the_story():
    text, found = case_13b.revealed(5), case_13b.case_rounds()[5]
    predicted, error = significant(found.predicted, 4), format_change(found.error)
    assert f"predicted {predicted}, the guide reports 2\u2009562: error {error}" in text
    assert "In total +37.7 %." in text
    assert any("0.775 %" in note for note in notes_of(5))


def test_round_3_is_no_measurable_change_by_rule():
    assert any(note.startswith("+0.959 % is below the noise limit") for note in notes_of(3))


def test_without_guess_or_idea_nothing_is_revealed():
    with pytest.raises(InputError) as caught:
        case_13b.keep_guess(2, 0.0, " ")
    assert len(caught.value.problems) == 2
    assert case_13b.guesses() == {}


def test_the_guess_is_an_event_of_the_project_and_found_again(monkeypatch, tmp_path):
    folder = demo(tmp_path / "d").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    case_13b.keep_guess(4, 2345, "less recomputing")
    event = ExperimentLog(folder).events()[-1]
    assert (event["action"], event["page"], event["detail"]["value"]) == ("guess", "30_case_13b", 2345)
    assert case_13b.guesses()[4]["idea"] == "less recomputing"


def test_a_project_that_cannot_be_written_keeps_the_guess_on_the_page(monkeypatch, tmp_path):
    folder = demo(tmp_path / "d").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    before = len(ExperimentLog(folder).events())
    assert "until this page is closed" in case_13b.keep_guess(1, 2000, "pp 2")
    assert len(ExperimentLog(folder).events()) == before
    assert case_13b.guesses()[1]["value"] == 2000


def test_what_a_stage_takes_for_a_thousand_tokens_is_what_the_throughput_says():
    """Rounds have steps of 1 and of 128 micro batches: only by token do they compare."""
    for each in case_13b.case_rounds():
        taken: dict[str, float] = {}
        for row in each.work():
            taken[row["place"]] = taken.get(row["place"], 0.0) + row["seconds"]
        assert list(taken.values()) == pytest.approx([1000 / each.estimate.tokens_per_s_per_device] * len(each.stages), rel=1e-6)


def test_what_an_exercise_says_of_the_stages_is_what_the_picture_draws():
    cells = json.loads((FOLDER / "30_case_13b.ipynb").read_text(encoding="utf-8"))["cells"]
    (said,) = ("".join(cell["source"]) for cell in cells if "Exercise: round 3" in "".join(cell["source"]))
    drawn = pd.DataFrame(case_13b.case_rounds()[3].work()).set_index(["place", "work"])["seconds"]
    waits_s = drawn["round 3, stage 1", "waiting for the other stage"]
    works_s = drawn["round 3, stage 0"].drop("waiting for the other stage").sum()
    assert f"stage 0 still works {significant(works_s)} s, and stage 1 waits {significant(waits_s)} s for it" in said
    again_s = [
        sum(
            row["seconds"]
            for row in case_13b.case_rounds()[number].work()
            if row["place"].endswith("1") and row["work"] == "computed again"
        )
        for number in (2, 3)
    ]
    assert (again_s[0] - again_s[1]) / (drawn["round 3, stage 1"].sum() - waits_s + again_s[0]) == pytest.approx(0.2, abs=0.03)
