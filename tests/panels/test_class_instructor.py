"""The instructor's panel: the token, the tables, the switches."""

from __future__ import annotations

from hashlib import sha256

import pytest

from perfkit.classroom import class_store, question
from perfkit.errors import InputError
from perfkit.panels import NothingYet, open_panel
from perfkit.panels.class_instructor import PANEL, State, compute, reset, say, show_answer, toggle_block, view
from perfkit.project import create_project

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
    assert set(answer.tables) == {"mistakes", "exercises", "students", "typed"}
    assert answer.tables["mistakes"].frame.iloc[0]["students"] == 2
    assert answer.code[0].text.count("\n") == 3


def test_an_empty_class_says_so(store):
    answer = view(compute(INSIDE))
    assert "nobody has answered yet" in answer.text
    assert answer.tables == {}


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


def test_a_reset_needs_a_student_and_keeps_the_rows(store):
    with pytest.raises(InputError, match="name the student"):
        reset(INSIDE)
    asked = question("E01", 2024, "s01")
    store.answer(asked, "1")
    reset(State(token="sesame", student="s01"))
    assert store.standing(asked).tries == 0
    assert len(store.rows(2024)) == 2
