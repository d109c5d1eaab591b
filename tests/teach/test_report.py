"""The instructor's figures: progress, mistakes, who is stuck, and the CSV."""

from __future__ import annotations

import csv
import io

import pytest

from perfkit.teach import class_store, exercises, question, report


@pytest.fixture
def store(tmp_path):
    return class_store(tmp_path)


def ask(student, name="E01"):
    return question(name, 5, student)


def test_solved_and_mastery_are_counted_by_exercise(store):
    store.answer(ask("a"), repr(ask("a").answer), seconds=10)
    store.hint(ask("b"), seconds=5)
    store.answer(ask("b"), repr(ask("b").answer), seconds=25)
    store.reveal(ask("c"), seconds=3)
    store.answer(ask("c"), repr(ask("c").answer))
    store.answer(ask("d"), "1")
    row = report.by_exercise(store.rows(5))[0]
    assert (row["tried"], row["solved"], row["solved_ratio"], row["mastery_ratio"]) == (4, 2, 0.5, 0.25)
    assert row["median_s"] == 20
    states = {cell["student"]: cell["state"] for cell in report.cells(store.rows(5)) if cell["exercise"] == "E01"}
    assert states == {"a": "right", "b": "right with hint", "c": "revealed", "d": "trying"}


def test_the_most_frequent_mistake_comes_first_with_its_words(store):
    for student in ("a", "b", "c"):
        store.answer(ask(student, "E02"), repr(ask(student, "E02").wrong["divided_by_dp"]))
    store.answer(ask("c"), repr(ask("c").wrong["missing_seq"]))
    first = report.mistakes(store.rows(5))[0]
    assert (first["exercise"], first["students"], first["of"]) == ("E02", 3, 3)
    assert first["mistake"] == exercises()["E02"].wrong["divided_by_dp"]


def test_a_student_who_repeats_a_mistake_counts_once(store):
    for _ in range(3):
        store.answer(ask("a"), repr(ask("a").wrong["missing_seq"]))
    assert report.mistakes(store.rows(5))[0]["students"] == 1


def test_three_wrong_tries_or_six_minutes_are_stuck(store):
    for text in ("1", "2", "3"):
        store.answer(ask("a"), text)
    store.answer(ask("b"), "1", seconds=400)
    store.answer(ask("c"), "1", seconds=20)
    store.answer(ask("d"), repr(ask("d").answer), seconds=900)
    assert [row["student"] for row in report.stuck(store.rows(5))] == ["a", "b"]


def test_points_by_student_count_every_exercise_once(store):
    for _ in range(3):
        store.answer(ask("a"), repr(ask("a").answer))
    store.answer(ask("b"), "1")
    table = {row["student"]: row["points"] for row in report.by_student(store.rows(5))}
    assert table == {"a": 11, "b": 0}


def test_the_csv_has_every_row_and_no_formula(store):
    store.answer(ask('=HYPERLINK("x"),1'), "1")
    rows = list(csv.DictReader(io.StringIO(report.results_csv(store.rows(5)))))
    assert len(rows) == 1
    assert rows[0]["student"] == '\'=HYPERLINK("x"),1'


def test_an_anonymous_csv_has_no_name(store):
    for student in ("Zoë", "Li"):
        store.answer(ask(student), "1")
    text = report.results_csv(store.rows(5), anonymous=True)
    assert "Zoë" not in text
    assert [row["student"] for row in csv.DictReader(io.StringIO(text))] == ["s01", "s02"]


def test_a_class_without_answers_has_empty_tables():
    for table in (report.by_exercise, report.by_student, report.mistakes, report.stuck, report.cells):
        assert table([]) == []
