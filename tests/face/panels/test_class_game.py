"""The game's panel: looks cost minutes, answers are judged, nothing true is sent before."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import open_panel, show
from perfkit.face.panels.class_game import PANEL, Form, State, compute, join, submit, take_look, view
from perfkit.project import create_project
from perfkit.teach import game


@pytest.fixture(autouse=True)
def _class(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")


def truth():
    return game.case("1", 1, 2024, "s01").truths[0]


def test_a_look_costs_minutes_and_opens_a_table():
    assert view(compute(State(student="s01"))).tables == {}
    assert take_look(State(student="s01", view="ranks")) == "Parts of a step by rank is open below; 25 min are left."
    assert set(view(compute(State(student="s01"))).tables) == {"ranks"}


def test_an_answer_is_judged_and_the_next_round_opens():
    true = truth()
    form = Form(kind=true.kind, place=",".join(map(str, true.ranks)), amount=f"{true.cost_ms:.1f} ms", action=true.action)
    assert submit(State(student="s01", forms=(form, Form(), Form()))).startswith("100 of 100")
    answer = view(compute(State(student="s01")))
    assert "round 2" in answer.text
    assert answer.tables["judged"].frame.iloc[0]["what to do"] == true.action
    assert any("perfkit diagnose said" in note for note in answer.notes)


@pytest.mark.parametrize("form", [Form(), Form(kind="jitter", amount="much"), Form(kind="slow_rank", place="left")])
def test_what_cannot_be_read_is_told_and_does_not_close_the_round(form):
    with pytest.raises(InputError):
        submit(State(student="s01", forms=(form, Form(), Form())))
    assert compute(State(student="s01")).round.number == 1


def test_the_truth_is_not_sent_before_the_answer():
    panel = open_panel(PANEL, state=State(student="s01"))
    panel.wait()
    assert truth().action not in repr(panel.data) + repr(panel.controls)
    assert f"{truth().cost_ms:.1f}" not in repr(panel.data)


@pytest.mark.parametrize("name", ["class-exercise", "class-game", "class-capstone", "class-instructor"])
def test_every_panel_of_the_page_opens_without_a_name(name):
    assert show(name).answer is None


def test_a_team_is_joined_and_sees_its_points():
    true = truth()
    form = Form(kind=true.kind, place=",".join(map(str, true.ranks)), amount=f"{true.cost_ms:.1f} ms", action=true.action)
    submit(State(student="s01", forms=(form, Form(), Form())))
    assert join(State(student="s01", team=" red ")) == "You play for red."
    join(State(student="s02", team="red"))
    assert "Team red, 2 members: 100 points in all." in view(compute(State(student="s02"))).notes
    assert join(State(student="s02")) == "You play for yourself."
    assert not any("Team" in note for note in view(compute(State(student="s02"))).notes)
