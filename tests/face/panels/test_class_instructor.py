"""The instructor's panel: the token, the tables, the switches."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import NothingYet, open_panel
from perfkit.face.panels.class_instructor import PANEL, State, compute, reset, say, show_answer, start_timer, toggle_block, view
from perfkit.face.widgets.class_ import bulletin
from perfkit.project import create_project
from perfkit.teach import class_store, question
from perfkit.teach.lesson import blocks

INSIDE = State(token="sesame", block="Numbers")


@pytest.fixture
def store(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_CLASS_ADMIN", sha256(b"sesame").hexdigest())
    return class_store(tmp_path)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("token", ["wrong", "sesame2", "SESAME"])
def test_another_token_sees_and_does_nothing(token):
    for act in (compute, say, toggle_block, show_answer, reset):
        with pytest.raises(InputError, match="token"):
            act(State(token=token, message="x", student="s01", block="Numbers"))


@pytest.mark.usefixtures("store")
def test_without_a_token_nothing_of_the_class_is_sent():
    panel = open_panel(PANEL)
    with pytest.raises(NothingYet):
        panel.wait()
    assert [control["name"] for control in panel.controls if not control.get("hidden")] == ["token"]
    assert panel.actions == []


def test_without_a_class_it_says_how_to_start_one(monkeypatch):
    monkeypatch.delenv("PERFKIT_CLASS", raising=False)
    with pytest.raises(NothingYet, match="perfkit serve FOLDER --class"):
        compute(INSIDE)


def test_tables_follow_from_the_answers(store):
    for student in ("s01", "s02"):
        asked = question("E01", 2024, student)
        store.answer(asked, repr(asked.wrong["missing_seq"]))
    answer = view(compute(INSIDE))
    assert set(answer.tables) == {"mistakes", "exercises", "students", "typed", "notes"}
    assert answer.tables["mistakes"].frame.iloc[0]["students"] == 2
    assert answer.code[0].text.count("\n") == 3


def test_an_empty_class_says_so(store):
    answer = view(compute(INSIDE))
    assert "nobody has answered yet" in answer.text
    assert set(answer.tables) == {"notes"}


def test_switches_reach_every_page_and_turn_back(store):
    toggle_block(INSIDE)
    assert store.control("closed") == ["Numbers"]
    toggle_block(INSIDE)
    assert store.control("closed") == []
    show_answer(INSIDE)
    assert store.control("shown") == ["E01"]
    say(State(token="sesame", message=" Break "))
    assert store.control("message") == "Break"
    panel = open_panel(PANEL, state=INSIDE)
    panel.wait()
    panel.act("freeze")
    assert store.control("frozen") is True
    panel.act("freeze")
    assert store.control("frozen") is False


def test_a_clock_runs_on_every_page_until_it_is_taken_away(store, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    start_timer(replace(INSIDE, minutes=2))
    assert bulletin("")["ends_ms"] == 121_000
    start_timer(replace(INSIDE, minutes=0))
    assert bulletin("")["ends_ms"] == 0


def test_pages_that_are_not_heard_of_are_not_counted(store, monkeypatch):
    store.seen("s01")
    assert bulletin("s02")["here"] == 2
    later = time.time_ns() + 31_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: later)
    assert bulletin("s02")["here"] == 1


def test_the_projector_shows_teams_and_no_names(store):
    for student, team in (("Ann", "red"), ("Bo", "red"), ("Cy", "blue")):
        store.join(student, team)
        asked = question("E01", 2024, student)
        store.answer(asked, repr(asked.answer))
    store.join("Cy", "")
    answer = view(compute(replace(INSIDE, board=True)))
    assert answer.tables["teams"].frame.to_dict("records") == [
        {"team": "red", "members": 2, "solved": 2, "exercises": 22.0, "game and capstone": 0.0, "points": 22.0}
    ]
    assert answer.charts == {}
    assert "Ann" not in repr([table.frame.to_dict() for table in answer.tables.values()]) + answer.text


@pytest.mark.parametrize("block", [block.title for block in blocks()])
def test_the_notes_of_every_block_can_be_read(store, block):
    notes = view(compute(replace(INSIDE, block=block))).tables["notes"].frame
    assert {"say", "pages"} <= set(notes["to"])


def test_a_block_without_exercises_cannot_be_closed(store):
    with pytest.raises(InputError, match="Break has no exercises"):
        toggle_block(replace(INSIDE, block="Break"))
    assert toggle_block(replace(INSIDE, block="Fault game")) == "Fault game is closed now."


def test_a_reset_needs_a_student_and_keeps_the_rows(store):
    with pytest.raises(InputError, match="name the student"):
        reset(INSIDE)
    asked = question("E01", 2024, "s01")
    store.answer(asked, "1")
    reset(State(token="sesame", student="s01"))
    assert store.standing(asked).tries == 0
    assert len(store.rows(2024)) == 2
