"""The instructor's view: the token, the tables, the switches."""

from __future__ import annotations

import time
from hashlib import sha256

import pytest

from perfkit.core.errors import InputError
from perfkit.project import create_project
from perfkit.teach import class_store, question
from perfkit.teach.instructor import (
    admitted,
    end_class,
    lesson,
    notes,
    pause,
    put_line,
    reset,
    show_answer,
    start_timer,
    switched,
    toggle_block,
)
from perfkit.teach.lesson import blocks
from perfkit.teach.session import bulletin

TOKEN = "sesame"


@pytest.fixture
def store(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_CLASS_ADMIN", sha256(b"sesame").hexdigest())
    return class_store(tmp_path)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("token", ["wrong", "sesame2", "SESAME", ""])
def test_another_token_sees_and_does_nothing(token):
    assert not admitted(token)
    acts = (
        lambda: lesson(token),
        lambda: switched(token),
        lambda: put_line(token, "x"),
        lambda: start_timer(token, 5),
        lambda: toggle_block(token, "Numbers"),
        lambda: show_answer(token, "E01"),
        lambda: reset(token, "E01", "s01"),
        lambda: pause(token),
        lambda: end_class(token),
    )
    for act in acts:
        with pytest.raises(InputError, match="token"):
            act()


def test_tables_follow_from_the_answers(store):
    for student in ("s01", "s02"):
        asked = question("E01", 2024, student)
        store.answer(asked, repr(asked.wrong["missing_seq"]))
    now = lesson(TOKEN)
    assert now.mistakes().iloc[0]["students"] == 2
    assert (len(now.by_exercise()), len(now.by_student()), len(now.stuck()), len(now.teams())) == (1, 2, 0, 0)
    assert now.typed("E01")["student"].tolist() == ["s01", "s02"]
    assert now.typed("E01", " s02 ")["student"].tolist() == ["s02"]
    assert len(now.typed("E02")) == 0
    assert "0 of 1 exercises that were begun are solved by 80 % or more" in now.told()


@pytest.mark.usefixtures("store")
def test_an_empty_class_says_so():
    assert "nobody has answered yet" in lesson(TOKEN).told()
    assert switched(TOKEN) == ("Nothing is switched: every block is open.",)


def test_switches_reach_every_page_and_turn_back(store):
    toggle_block(TOKEN, "Numbers")
    assert store.control("closed") == ["Numbers"]
    assert switched(TOKEN) == ("Closed blocks: Numbers.",)
    toggle_block(TOKEN, "Numbers")
    assert store.control("closed") == []
    assert show_answer(TOKEN, "E01") == "The answer of E01 is shown to all."
    assert store.control("shown") == ["E01"]
    put_line(TOKEN, " Break ")
    assert store.control("message") == "Break"
    assert (pause(TOKEN), end_class(TOKEN)) == ("All pages are paused.", "The class has ended.")
    assert len(switched(TOKEN)) == 4
    assert (pause(TOKEN), end_class(TOKEN)) == ("All pages go on.", "The class goes on.")
    assert (store.control("frozen"), store.control("ended")) == (False, False)


@pytest.mark.usefixtures("store")
def test_a_clock_runs_on_every_page_until_it_is_taken_away(monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    start_timer(TOKEN, 2)
    assert bulletin("")["ends_ms"] == 121_000
    start_timer(TOKEN, 0)
    assert bulletin("")["ends_ms"] == 0


def test_pages_that_are_not_heard_of_are_not_counted(store, monkeypatch):
    store.seen("s01")
    assert bulletin("s02")["here"] == 2
    later = time.time_ns() + 31_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: later)
    assert bulletin("s02")["here"] == 1


def test_the_projector_may_show_teams_and_no_names(store):
    for student, team in (("Ann", "red"), ("Bo", "red"), ("Cy", "blue")):
        store.join(student, team)
        asked = question("E01", 2024, student)
        store.answer(asked, repr(asked.answer))
    store.join("Cy", "")
    now = lesson(TOKEN)
    assert now.teams().to_dict("records") == [
        {"team": "red", "members": 2, "solved": 2, "exercises": 22.0, "game and capstone": 0.0, "points": 22.0}
    ]
    assert "Ann" not in repr(now.teams().to_dict()) + now.told()


@pytest.mark.parametrize("block", [block.title for block in blocks()])
def test_the_notes_of_every_block_can_be_read(block):
    assert {"say", "pages"} <= set(notes(block)["to"])


@pytest.mark.usefixtures("store")
def test_a_block_without_exercises_cannot_be_closed():
    with pytest.raises(InputError, match="Break has no exercises"):
        toggle_block(TOKEN, "Break")
    assert toggle_block(TOKEN, "Fault game") == "Fault game is closed now."


def test_a_reset_needs_a_student_and_keeps_the_rows(store):
    with pytest.raises(InputError, match="name the student"):
        reset(TOKEN, "E01", "")
    asked = question("E01", 2024, "s01")
    store.answer(asked, "1")
    reset(TOKEN, "E01", "s01")
    assert store.standing(asked).tries == 0
    assert len(store.rows(2024)) == 2
