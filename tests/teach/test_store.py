"""The store: tries, hints, points and what is left of them after tabs, restarts and resets."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from perfkit.teach import class_store, practice_store, purge, question

ASKED = question("E01", 2024, "s01")
RIGHT = "5120"


@pytest.fixture(params=[class_store, practice_store])
def store(request, tmp_path):
    return request.param(tmp_path)


def test_the_first_try_is_worth_a_tenth_more(store):
    assert store.answer(ASKED, RIGHT).outcome == "right"
    assert store.standing(ASKED).points == 11


def test_a_wrong_try_takes_only_the_bonus(store):
    store.answer(ASKED, "0.625")
    store.answer(ASKED, RIGHT)
    assert store.standing(ASKED).points == 10


def test_a_hint_costs_a_quarter(store):
    assert [store.hint(ASKED), store.hint(ASKED), store.hint(ASKED)] == [1, 2, 2]
    store.answer(ASKED, "1")
    store.answer(ASKED, RIGHT)
    assert store.standing(ASKED).points == 5


def test_a_shown_answer_is_worth_nothing(store):
    store.reveal(ASKED)
    store.answer(ASKED, RIGHT)
    assert store.standing(ASKED).points == 0


def test_showing_the_answer_after_solving_it_costs_nothing(store):
    store.answer(ASKED, RIGHT)
    store.reveal(ASKED)
    assert store.standing(ASKED).points == 11


def test_the_same_wrong_answer_twice_is_one_try(store):
    for _ in range(3):
        store.answer(ASKED, "17")
    assert store.standing(ASKED).tries == 1


def test_what_cannot_be_read_is_not_kept(store):
    for text in ("", "abc", "1e999", "<b>"):
        assert store.answer(ASKED, text).outcome == "unread"
    assert store.rows(2024) == []


def test_solving_again_counts_once_and_both_rows_stay(store):
    store.answer(ASKED, RIGHT)
    store.answer(ASKED, "3")
    store.answer(ASKED, RIGHT)
    assert len(store.rows(2024)) == 3
    assert store.standing(ASKED).points == 11


def test_a_reset_begins_anew_and_keeps_the_rows(store):
    store.hint(ASKED)
    store.answer(ASKED, "1")
    store.reset(ASKED)
    assert store.standing(ASKED).tries == 0
    store.answer(ASKED, RIGHT)
    assert store.standing(ASKED).points == 11
    assert len(store.rows(2024)) == 4


def test_students_do_not_see_each_other(store):
    other = question("E01", 2024, "s02")
    store.answer(ASKED, RIGHT)
    assert store.standing(other).solved is False
    assert {row["student"] for row in store.rows(2024, "s01")} == {"s01"}
    assert store.rows(2024, "s02") == []


def test_another_store_on_the_same_folder_knows_everything(tmp_path):
    class_store(tmp_path).hint(ASKED)
    class_store(tmp_path).answer(ASKED, "7")
    standing = class_store(tmp_path).standing(ASKED)
    assert (standing.hints, standing.tries, standing.last) == (1, 1, "7")


def test_names_of_any_characters_come_back_as_they_were(store):
    name = "Ann'; DROP TABLE attempt;-- 李<b>|😀"
    store.answer(question("E01", 2024, name), "1")
    assert store.rows(2024, name)[0]["student"] == name


def test_many_writers_lose_no_row_and_count_no_hint_twice(tmp_path):
    names = [f"s{number:02}" for number in range(8)]
    class_store(tmp_path)

    def work(name):
        mine, store = question("E01", 1, name), class_store(tmp_path)
        for number in range(10):
            store.answer(mine, str(number + 1))
            store.hint(mine)
        return store.standing(mine)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, names))
    assert [standing.tries for standing in found] == [10] * 8
    assert [standing.hints for standing in found] == [2] * 8
    assert len(class_store(tmp_path).rows(1)) == 8 * 12


def test_a_class_is_removed_with_all_its_files(tmp_path):
    class_store(tmp_path).answer(ASKED, RIGHT)
    assert next(path.name for path in purge(tmp_path)) == "class.sqlite"
    assert list(tmp_path.iterdir()) == []


def test_the_columns_are_those_of_the_experiment_log(tmp_path):
    class_store(tmp_path)
    practice_store(tmp_path).answer(ASKED, RIGHT)

    def columns(name):
        connection = sqlite3.connect(tmp_path / name)
        found = [row[1:3] for row in connection.execute("PRAGMA table_info(attempt)")]
        connection.close()
        return found

    assert columns("class.sqlite") == columns("perfkit.sqlite")
