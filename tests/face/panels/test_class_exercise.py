"""The exercise panel: a name, an answer, hints, and everything back after a restart."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import NothingYet, header, open_panel
from perfkit.face.panels.class_exercise import PANEL, State, check, compute, hint, pick, reveal, solution, view
from perfkit.face.widgets.class_ import _memory, bulletin
from perfkit.project import create_project
from perfkit.teach import class_store, exercises, question


@pytest.fixture(params=["class", "alone", "no project"])
def place(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("PERFKIT_PROJECT", "PERFKIT_CLASS", "PERFKIT_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    _memory.cache_clear()
    if request.param != "no project":
        create_project(tmp_path, "class")
    if request.param == "class":
        monkeypatch.setenv("PERFKIT_CLASS", "2024")
        monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    return request.param


@pytest.fixture
def in_class(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    return class_store(tmp_path)


def typed(text, exercise="E01", student="s01"):
    return State(student=student, exercise=exercise, answers={**State().answers, exercise: text})


def right(state):
    here = compute(state).question
    return typed(repr(here.answer), state.exercise, state.student)


def shown(state):
    answer = view(compute(state))
    return " ".join([answer.text, *answer.notes])


@pytest.mark.usefixtures("place")
def test_without_a_name_the_page_asks_for_one():
    with pytest.raises(NothingYet, match="Type your name"):
        compute(State())


@pytest.mark.usefixtures("place")
def test_a_right_answer_is_worth_points_wherever_it_is_kept():
    state = typed("")
    assert "tokens per second" in shown(state)
    assert check(right(state)) == "Right. 11 points."
    assert "Solved: 11 points." in shown(state)


@pytest.mark.usefixtures("in_class")
def test_a_common_mistake_gets_its_own_words_and_stays_visible():
    assert check(typed("0.625")) == "That is samples; one sample is seq tokens."
    assert "one sample is seq tokens" in shown(typed(""))


@pytest.mark.usefixtures("in_class")
@pytest.mark.parametrize("text", ["", "abc", "1e999", "<b>", "5120 samples", "0,5"])
def test_what_cannot_be_read_costs_nothing(text):
    check(typed(text))
    assert check(typed("5120")) == "Right. 11 points."


@pytest.mark.usefixtures("in_class")
def test_hints_come_one_by_one_and_stay():
    assert hint(typed("")).startswith("Hint 1: One sample is a sequence")
    assert "Hint 1" in shown(typed(""))
    assert hint(typed("")) == "Hint 2: seq × sps"
    assert check(typed("5120")) == "Right. 6 points."


@pytest.mark.usefixtures("in_class")
def test_after_three_wrong_tries_a_hint_is_offered():
    for text in ("1", "2", "3"):
        check(typed(text))
    assert "3 tries so far" in shown(typed(""))


@pytest.mark.usefixtures("in_class")
def test_the_shown_answer_has_the_students_numbers_in_it():
    assert reveal(typed("")) == "The answer: 5120 tok/s/p, from seq × sps = 8192 × 0.625."
    assert check(typed("5120")) == "Right. 0 points."


@pytest.mark.usefixtures("in_class")
def test_no_answer_stands_in_what_the_page_is_sent():
    for name in exercises():
        panel = open_panel(PANEL, state=typed("", name))
        panel.wait()
        asked = question(name, 2024, "s01")
        sent = repr(panel.frame) + repr(panel.controls) + repr(panel.status)
        assert len(f"{asked.answer:.6g}") < 6 or f"{asked.answer:.6g}" not in sent + repr(panel.data)
        assert asked.exercise.idea not in repr(panel.data)
        assert solution(asked) not in repr(panel.data)


@pytest.mark.usefixtures("in_class")
def test_a_new_kernel_shows_what_was_done_before():
    first = open_panel(PANEL, state=typed("17"))
    first.wait()
    first.act("check")
    first.act("hint")
    again = open_panel(PANEL, state=State(student="s01"))
    answer = again.wait()
    assert "Hint 1" in " ".join(answer.notes)
    row = answer.tables["progress"].frame.iloc[0]
    assert (row["state"], row["wrong tries"], row["hints"]) == ("trying", 1, 1)


@pytest.mark.usefixtures("in_class")
def test_two_tabs_count_once():
    tabs = [open_panel(PANEL, state=typed("5120")) for _ in range(2)]
    for tab in tabs:
        tab.wait()
        tab.act("check")
    assert compute(typed("")).all["E01"].points == 11


@pytest.mark.usefixtures("in_class")
def test_an_answer_typed_just_before_the_button_counts():
    panel = open_panel(PANEL, state=typed(""))
    panel.wait()
    panel.set({"answers.E01": "5120"})
    panel.act("check")
    assert panel.outcome["text"] == "Right. 11 points."


@pytest.mark.usefixtures("in_class")
def test_each_exercise_keeps_its_own_box():
    panel = open_panel(PANEL, state=typed("12"))
    panel.set({"exercise": "E02"})
    panel.set({"answers.E02": "3"})
    panel.set({"exercise": "E01"})
    panel.wait()
    assert (panel.state.answers["E01"], panel.state.answers["E02"]) == ("12", "3")


@pytest.mark.usefixtures("in_class")
@pytest.mark.parametrize("name", ["李雷", "<img src=x onerror=alert(1)>", "a'; DROP TABLE attempt;--", "Zoë 😀"])
def test_names_of_any_characters_work(name):
    check(right(typed("", student=name)))
    assert compute(typed("", student=name)).all["E01"].solved
    assert not compute(typed("", student="s02")).all["E01"].solved


def test_a_closed_block_takes_no_answers_and_says_why(in_class):
    in_class.set_control("closed", ["Numbers"])
    with pytest.raises(InputError, match="not open yet"):
        check(typed("1"))
    assert in_class.rows(2024) == []


def test_what_the_instructor_says_and_shows_is_on_every_page(in_class):
    in_class.set_control("message", "Five minutes left")
    in_class.set_control("shown", ["E01"])
    assert bulletin("s01") == {"message": "Five minutes left", "state": "", "ends_ms": 0, "here": 1}
    assert header().bulletin["message"] == "Five minutes left"
    assert "The answer: 5120" in shown(typed(""))


def test_a_row_of_the_progress_opens_its_exercise():
    assert pick(State(), "progress", {"exercise": "E07"}).exercise == "E07"
    assert pick(State(), "inputs", {"input": "seq"}).exercise == "E01"


@pytest.mark.usefixtures("in_class")
def test_a_chinese_reader_is_asked_and_told_in_chinese(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    assert "日志打印 sps" in view(compute(typed(""))).text
    assert check(typed("0.625")) == "这是样本数；一个样本有 seq 个 token。"
    assert hint(typed("")) == "提示 1：一个样本就是一条 seq 个 token 的序列。"
    assert check(typed("5120")) == "正确。7.5 分。"
