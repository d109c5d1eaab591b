"""Page 40 as a notebook: students answer, play and choose, an instructor looks on; what is true is not sent before."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets import class_entries
from perfkit.face.widgets.page_state import page_state
from perfkit.project import create_project
from perfkit.teach import capstone, class_store, exercises, game, question
from perfkit.teach._store import PRACTICE_SEED, Store, practice_store
from perfkit.teach.card import solution
from tests.notebook_format import pages
from tests.page_cells import code_cells, run_page, views


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_CLASS_ADMIN", sha256(b"sesame").hexdigest())
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    return class_store(tmp_path)


def page_of(student: str) -> dict[str, Any]:
    page = run_page("40_class")
    if student:
        page["choose_name"].set(student=student).wait()
    return page


def sent(view: Any) -> str:
    return repr((view.data, view.details, view.frame, view.controls, view.status))


@pytest.mark.usefixtures("store")
def test_without_a_name_or_token_every_step_says_what_to_do_and_shows_nothing_to_press():
    for name, view in views(page_of("")).items():
        with pytest.raises(PerfkitError):
            view.wait()
        assert view.status["state"] == "empty", name
        expected = ["Join team"] if name == "choose_name" else []
        assert [action["label"] for action in view.actions] == expected
    assert "Type your name" in views(page_of(""))["choose_name"].status["text"]


def test_without_a_class_a_guest_begins_at_once_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = create_project(tmp_path, "mine")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    page = page_of("")
    assert page["choose_name"].wait().text.startswith("You are a guest")
    asked = question("E01", PRACTICE_SEED, "guest")
    page["the_exercise"].set(E01=f"{asked.answer:.9g}").press("Check")
    assert page["how_far_you_are"].wait().text.startswith("So far 1 of 41 solved")
    assert "30 of 30 min are left" in page["what_you_see"].wait().text
    assert practice_store(project.folder).rows(PRACTICE_SEED, "guest") == []


@pytest.mark.usefixtures("store")
def test_a_name_that_the_server_knows_is_not_typed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_STUDENT", "Li")
    page = page_of("")
    assert page["choose_name"].wait().text.startswith("You are Li.")
    assert [control["name"] for control in page["choose_name"].view.controls if not control.get("hidden")] == ["team"]
    assert page["the_exercise"].wait().tables


@pytest.mark.usefixtures("store")
def test_an_answer_typed_just_before_the_button_counts_and_each_exercise_keeps_its_own_box():
    page = page_of("s01")
    card, progress = page["the_exercise"], page["how_far_you_are"]
    card.wait()
    card.set(E01="5120").press("Check")
    assert card.view.outcome["text"] == "Right. 11 points."
    assert progress.wait().text == "So far 1 of 41 solved, 11 points."
    card.set(exercise="E02").set(E02="3").set(exercise="E01").wait()
    seen = [control["name"] for control in card.view.controls if not control.get("hidden")]
    assert (seen, card.view.state["E01"], card.view.state["E02"]) == (["exercise", "E01"], "5120", "3")
    progress.view.on_message({"type": "row", "table": "All exercises (choose a row to open it)", "row": 6})
    assert card.wait().text.startswith("E07, ")
    assert page_state().values["exercise"] == "E07"


@pytest.mark.usefixtures("store")
def test_a_new_kernel_shows_what_was_done_before_and_two_tabs_count_once():
    first, second = page_of("s01"), page_of("s01")
    for page in (first, second):
        page["the_exercise"].wait()
        page["the_exercise"].set(E01="5120").press("Check").wait()
    first["the_exercise"].set(exercise="E03").wait()
    first["the_exercise"].set(E03="17").press("Check").press("Hint").wait()
    again = page_of("s01")
    table = again["how_far_you_are"].wait().tables["All exercises (choose a row to open it)"].frame.set_index("exercise")
    assert table.loc["E01", ["state", "points"]].tolist() == ["solved", "11 / 10"]
    assert table.loc["E03", ["state", "wrong tries", "hints"]].tolist() == ["trying", 1, 1]


@pytest.mark.usefixtures("store")
def test_no_answer_stands_in_what_the_page_is_sent():
    card = page_of("s01")["the_exercise"]
    for name in exercises():
        card.set(exercise=name).wait()
        asked = question(name, 2024, "s01")
        assert len(f"{asked.answer:.6g}") < 6 or f"{asked.answer:.6g}" not in sent(card.view)
        assert asked.exercise.idea not in sent(card.view)
        assert solution(asked) not in sent(card.view)


@pytest.mark.parametrize("name", exercises())
def test_an_exercise_leads_to_a_step_that_there_is(name: str):
    asked = exercises()[name]
    (page,) = (path.stem for path in pages() if path.name.startswith(asked.page))
    assert any(f"def {asked.step}(" in "".join(cell["source"]) for cell in code_cells(page))
    table = class_entries.explained(name)
    assert table.attrs["links"]["page"] == [f"{page}.ipynb#at={asked.step.replace('_', '-')}"]


@pytest.mark.usefixtures("store")
def test_the_game_is_played_by_its_steps_and_its_truth_is_not_sent_before():
    page, true = page_of("s01"), game.case("1", 1, 2024, "s01").truths[0]
    look, said = page["what_you_see"], page["what_was_true"]
    look.wait(), said.wait()
    assert true.action not in sent(look.view) + sent(said.view)
    assert f"{true.cost_ms:.1f}" not in sent(look.view) + sent(said.view)
    look.set(view="ranks").press("Look")
    assert list(look.wait().tables) == ["Parts of a step by rank: today and last week"]
    seen = [control["name"] for control in said.view.controls if not control.get("hidden")]
    assert seen == ["kind_1"]
    said.set(kind_1=true.kind, place_1=",".join(map(str, true.ranks)), amount_1=f"{true.cost_ms:.1f} ms").wait()
    said.set(action_1=true.action).press("Answer")
    assert said.wait().text == "Round 1: 100 of 100 points."
    assert "round 2" in look.wait().text
    look.set(level="3").wait(), said.wait()
    assert [control["name"] for control in said.view.controls if not control.get("hidden")][-1] == "kind_2"


@pytest.mark.usefixtures("store")
def test_the_evidence_of_a_round_is_not_sent_before_the_choice():
    rounds, first = page_of("s01")["the_six_rounds"], capstone.rounds()[0]
    rounds.wait()
    for secret in (first.lesson, first.hypothesis, str(capstone.rounds()[-1].reported)):
        assert secret not in sent(rounds.view)
    rounds.set(change=first.change, expected="1,800").press("Choose")
    assert rounds.view.outcome["text"] == "That is what was done."
    assert f"Learned: {first.lesson}" in rounds.wait().notes


def test_an_instructor_sees_the_class_and_switches_it(store: Store):
    asked = question("E01", 2024, "Ann")
    store.answer(asked, repr(asked.wrong["missing_seq"]))
    store.join("Ann", "red")
    page = page_of("")
    now, switches = page["the_class"], page["what_all_pages_follow"]
    assert [control["name"] for control in now.view.controls if not control.get("hidden")] == ["token"]
    assert "Ann" not in sent(now.view)
    now.set(token="sesame")
    answer = now.wait()
    assert list(answer.charts) == ["Who is where (numbers are wrong tries)"]
    assert {"Teams", "By student", "What was typed at E01"} <= set(answer.tables)
    assert (answer.code[0].title, answer.code[0].text.count("\n")) == ("results.csv: all rows", 2)
    assert "Ann" not in now.set(anonymous=True).wait().code[0].text
    assert list(now.set(board=True).wait().tables) == ["Teams"]
    switches.wait()
    switches.set(message="Break").press("Say")
    assert store.control("message") == "Break"
    switches.press("Pause")
    assert store.control("frozen") is True
    assert "All pages are paused." in " ".join((switches.wait().text, *switches.wait().notes))
    assert switches.set(block="Memory").wait().tables


def test_without_a_class_an_instructor_is_told_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    now = page_of("s01")["the_class"]
    with pytest.raises(PerfkitError, match="perfkit serve FOLDER --class"):
        now.wait()
