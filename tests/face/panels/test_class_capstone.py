"""The capstone: a change is chosen before its evidence is shown, once."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import open_panel
from perfkit.face.panels.class_capstone import PANEL, State, choose, compute, view
from perfkit.project import create_project
from perfkit.teach import capstone


@pytest.fixture(autouse=True)
def _class(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")


def test_the_six_rounds_lead_from_1860_to_2562():
    rounds = capstone.rounds()
    assert [one.reported for one in rounds] == [1860, 2136, 2189, 2210, 2353, 2562]
    assert all(len(set(capstone.options(one.number, 1, "a"))) == 4 for one in rounds)
    assert all(one.change in capstone.options(one.number, 1, "a") for one in rounds)


def test_who_chooses_right_in_all_rounds_has_all_points():
    for one in capstone.rounds():
        choose(State(student="s01", change=one.change, predicted=str(one.reported)))
    answer = view(compute(State(student="s01")))
    assert "1860 became 2562 tokens/s/device, 1.38 times" in answer.text
    assert set(answer.tables["evidence"].frame["points"]) == {20}
    assert set(answer.tables["evidence"].frame["off by"]) == {"+0 %"}


def test_a_wrong_change_is_explained_and_the_walk_goes_on():
    wrong, why = next(iter(capstone.rounds()[0].instead.items()))
    choose(State(student="s01", change=wrong))
    answer = view(compute(State(student="s01")))
    assert any(why in note for note in answer.notes)
    assert answer.text.startswith("Round 1")


def test_the_evidence_is_not_sent_before_the_choice():
    panel = open_panel(PANEL, state=State(student="s01"))
    panel.wait()
    one = capstone.rounds()[0]
    assert one.lesson not in repr(panel.data)
    assert one.hypothesis not in repr(panel.data)
    assert str(capstone.rounds()[-1].reported) not in repr(panel.data)


def test_choosing_twice_for_one_round_is_refused():
    first = capstone.rounds()[0].change
    choose(State(student="s01", change=first))
    with pytest.raises(InputError, match="choose one of the four"):
        choose(State(student="s01", change=first))


@pytest.mark.parametrize("text", ["many", "-5", "1e999", "nan"])
def test_an_expectation_that_is_no_number_is_told(text):
    with pytest.raises(InputError, match="tokens/s/device"):
        choose(State(student="s01", change=capstone.rounds()[0].change, predicted=text))
    assert compute(State(student="s01")).choices == ()


def test_students_walk_apart():
    choose(State(student="s01", change=capstone.rounds()[0].change))
    assert compute(State(student="s02")).choices == ()
