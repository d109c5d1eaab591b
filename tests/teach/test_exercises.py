"""The 41 exercises: published answers, an independent formula over 200 seeds, and one reading of every answer."""

from __future__ import annotations

import ast
import csv
from functools import cache
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.teach import answers, exercises, question
from perfkit.teach._draw import digest, draw, student_name
from perfkit.teach._mark import close, mark
from tests.teach._formulas import FORMULAS

WORKED = Path(__file__).parents[1] / "data" / "class" / "answers_seed1.csv"
NUM_SEEDS = 200
S01 = {
    "E01": 5120, "E02": 0.042633, "E03": 1753, "E04": 0.394231, "E05": 64.3131, "E06": 141.175, "E07": 68976648192, "E08": 438.305,
    "E09": 898.389, "E10": 50.6444, "E11": 69.3288, "E12": 0.666667, "E13": 682.667, "E14": 315, "E15": 50.7607, "E16": 6208,
    "E17": 68, "E18": 17.5, "E19": 6182, "E20": 6.87119, "E21": 4096, "E22": 4.15192, "E23": 432, "E24": 90.566, "E25": 5,
    "E26": 27.2727, "E27": 4.47761, "E28": 648, "E29": 256, "E30": 17, "E31": 384, "E32": 161.061, "E33": 448, "E34": 2.93742,
    "E35": 24.2424, "E36": 85, "E37": 7, "E38": 60, "E39": 9.44713, "E40": 0.1875, "E41": 0.615764,
}  # fmt: skip
"""Class seed 2024, student s01."""


@cache
def worked():
    with WORKED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", FORMULAS)
def test_the_worked_answers_inputs_and_wrong_values_come_out(name):
    rows = [row for row in worked() if row["exercise"] == name]
    assert len(rows) == 6
    for row in rows:
        asked = question(name, int(row["class_seed"]), row["student"])
        assert dict(asked.params) == ast.literal_eval(row["params"])
        assert asked.answer == pytest.approx(float(row["answer"]), rel=1e-5)
        assert dict(asked.wrong) == pytest.approx(ast.literal_eval(row["wrong"]), rel=1e-5)
        assert (asked.exercise.unit, asked.exercise.tolerance) == (row["unit"], float(row["tol_rel"]))


def test_student_s01_of_class_2024_gets_the_published_answers():
    found = {row["exercise"]: row["answer"] for row in answers(2024, "s01")}
    assert found == pytest.approx(S01, rel=1e-5)


def test_the_draw_is_the_digest_of_seed_student_and_exercise():
    assert digest(2024, "s01", "E01").hex().startswith("3e966d85")
    assert draw(2024, "s01", "E01", exercises()["E01"].draws) == {"seq": 8192, "sps": 0.625}


@pytest.mark.parametrize("name", FORMULAS)
def test_every_exercise_is_solvable_and_unambiguous_over_200_seeds(name):
    exercise = exercises()[name]
    seen = set()
    for seed in range(NUM_SEEDS):
        drawn = draw(seed, f"student {seed}", name, exercise.draws)
        key = tuple(drawn.values())
        if key in seen:
            continue
        seen.add(key)
        asked = question(name, seed, f"student {seed}")
        expected = float(FORMULAS[name](drawn))
        assert asked.answer == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert mark(asked, repr(expected)).outcome == "right"
        for value in asked.wrong.values():
            assert not close(value, asked.answer, 2 * exercise.tolerance)
            answered = mark(asked, repr(float(value)))
            assert answered.outcome == "wrong"
            assert answered.text == exercise.wrong[answered.mistake]
    assert len(seen) > 1


def test_every_choice_of_every_draw_gives_an_exercise():
    for name, exercise in exercises().items():
        first = {parameter: options[0] for parameter, options in exercise.draws.items()}
        for parameter, options in exercise.draws.items():
            for option in options:
                drawn = {**first, parameter: option}
                assert exercise.work(drawn).answer == pytest.approx(float(FORMULAS[name](drawn)), rel=1e-9)


def test_every_mistake_has_its_sentence_and_every_sentence_its_mistake():
    for name, exercise in exercises().items():
        found = set()
        for seed in range(NUM_SEEDS):
            found |= set(exercise.work(draw(seed, "s", name, exercise.draws)).wrong)
            if found >= set(exercise.wrong):
                break
        assert found == set(exercise.wrong), name


def test_there_are_41_exercises_of_three_levels_each_with_two_hints():
    assert list(exercises()) == [f"E{number:02}" for number in range(1, 42)]
    for exercise in exercises().values():
        assert exercise.level in (1, 2, 3)
        assert all(exercise.hints)
        assert exercise.text


def test_an_exercise_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="'E99' does not exist; there are E01 to E41"):
        question("E99", 1, "a01")


@pytest.mark.parametrize("name", ["李雷", "O'Brien; DROP TABLE attempt;--", "<b>x</b>", "a|b", "Zoë", "😀"])
def test_names_of_any_script_draw_an_exercise(name):
    assert question("E01", 1, student_name(name)).answer > 0


def test_two_ways_to_write_a_letter_are_one_name():
    assert student_name("  Zoe\u0308 ") == student_name("Zo\u00eb")


@pytest.mark.parametrize("name", ["", "   ", "a\x00b", "x" * 81])
def test_names_that_cannot_be_kept_are_refused(name):
    with pytest.raises(InputError, match="student"):
        student_name(name)
