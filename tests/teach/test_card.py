"""The card of an exercise: a name, an answer, hints, and all of it wherever answers are kept."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.face import widgets
from perfkit.project import create_project
from perfkit.teach import question
from perfkit.teach.card import card, check, hint, progress, reveal
from perfkit.teach.session import _memory, bulletin, session_of


@pytest.fixture(params=["class", "alone", "no project"])
def anywhere(request, tmp_path, monkeypatch):
    """A student in a class, with a project of one's own, and without one."""
    monkeypatch.chdir(tmp_path)
    for name in ("PERFKIT_PROJECT", "PERFKIT_CLASS", "PERFKIT_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    _memory.cache_clear()
    if request.param != "no project":
        create_project(tmp_path, "class")
    if request.param == "class":
        monkeypatch.setenv("PERFKIT_CLASS", "2024")
        monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    return session_of("s01")


def shown(here, exercise="E01"):
    return " ".join(card(here, exercise).told())


def right(here, exercise="E01"):
    return repr(question(exercise, here.class_seed, here.student).answer)


def test_a_right_answer_is_worth_points_wherever_it_is_kept(anywhere):
    assert "tokens per second" in shown(anywhere)
    assert check(anywhere, "E01", right(anywhere)) == "Right. 11 points."
    assert "Solved: 11 points." in shown(anywhere)
    assert progress(anywhere).told() == "So far 1 of 41 solved, 11 points."
    assert list(progress(anywhere).to_frame()["points"][:2]) == ["11 / 10", "0 / 20"]
    kept = {"class.sqlite": "class.sqlite", "the project's log": "the project's log"}.get(anywhere.store.place, "only as long")
    assert kept in anywhere.told()


def test_a_common_mistake_gets_its_own_words_and_stays_visible(here):
    assert check(here, "E01", "0.625") == "That is samples; one sample is seq tokens."
    assert "one sample is seq tokens" in shown(here)


@pytest.mark.parametrize("text", ["", "abc", "1e999", "<b>", "5120 samples", "0,5"])
def test_what_cannot_be_read_costs_nothing(here, text):
    check(here, "E01", text)
    assert check(here, "E01", "5120") == "Right. 11 points."


def test_hints_come_one_by_one_and_stay(here):
    assert hint(here, "E01").startswith("Hint 1: One sample is a sequence")
    assert "Hint 1" in shown(here)
    assert hint(here, "E01") == "Hint 2: seq × sps"
    assert check(here, "E01", "5120") == "Right. 6 points."


def test_after_three_wrong_tries_a_hint_is_offered(here):
    for text in ("1", "2", "3"):
        check(here, "E01", text)
    assert "3 tries so far" in shown(here)


def test_the_shown_answer_has_the_students_numbers_in_it(here):
    assert reveal(here, "E01") == "The answer: 5120 tok/s/p, from seq × sps = 8192 × 0.625."
    assert check(here, "E01", "5120") == "Right. 0 points."


@pytest.mark.parametrize("name", ["李雷", "<img src=x onerror=alert(1)>", "a'; DROP TABLE attempt;--", "Zoë 😀"])
@pytest.mark.usefixtures("store")
def test_names_of_any_characters_work(name):
    check(session_of(name), "E01", right(session_of(name)))
    assert progress(session_of(name)).standings["E01"].solved
    assert not progress(session_of("s02")).standings["E01"].solved


def test_a_closed_block_takes_no_answers_and_says_why(here, store):
    store.set_control("closed", ["Numbers"])
    for act in (lambda: check(here, "E01", "1"), lambda: hint(here, "E01"), lambda: reveal(here, "E01")):
        with pytest.raises(InputError, match="not open yet"):
            act()
    assert store.rows(2024) == []


def test_what_the_instructor_says_and_shows_is_on_every_page(here, store):
    store.set_control("message", "Five minutes left")
    store.set_control("shown", ["E01"])
    assert bulletin("s01") == {"message": "Five minutes left", "state": "", "ends_ms": 0, "here": 1}
    assert widgets.header().bulletin["message"] == "Five minutes left"
    assert "The answer: 5120" in shown(here)


def test_a_chinese_reader_is_asked_and_told_in_chinese(here, monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    assert "日志打印 sps" in shown(here)
    assert check(here, "E01", "0.625") == "这是样本数；一个样本有 seq 个 token。"
    assert hint(here, "E01") == "提示 1：一个样本就是一条 seq 个 token 的序列。"
    assert check(here, "E01", "5120") == "正确。7.5 分。"
