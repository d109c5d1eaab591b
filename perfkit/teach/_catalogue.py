"""Catalogue: the exercises as data/class/exercises.toml describes them, each with its formula, and one student's question."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfkit.core.discover import constants
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.teach._draw import draw
from perfkit.teach.worked import Formula, Group

POINTS_A_LEVEL = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """An exercise: text, unit, relative tolerance (0: exact), hints, and what is drawn in which order.

    `page` is the number of the page that can compute it, `step` the function of its step there. `wrong` says by name what to tell
    those who made a common mistake.
    """

    name: str
    group: str
    title: str
    level: int
    page: str
    step: str
    text: str
    unit: str
    tolerance: float
    draws: Mapping[str, Sequence[Any]]
    idea: str
    formula: str
    wrong: Mapping[str, str]
    work: Formula

    @property
    def points(self) -> int:
        """What a right answer without hints is worth."""
        return POINTS_A_LEVEL * self.level

    @property
    def hints(self) -> tuple[str, str]:
        """The idea, then the formula."""
        return self.idea, self.formula


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """An exercise with one student's numbers; `wrong` has only values that cannot be taken for the right one."""

    exercise: Exercise
    class_seed: int
    student: str
    params: Mapping[str, Any]
    answer: float
    wrong: Mapping[str, float]


@cache
def exercises() -> Mapping[str, Exercise]:
    """All exercises by name, in the order of the names."""
    table = tomllib.loads((data_folder() / "class" / "exercises.toml").read_text(encoding="utf-8"))
    found = {}
    for group in groups():
        for name, work in group.formulas.items():
            found[name] = Exercise(name=name, group=group.title, work=work, **table[name])
    return dict(sorted(found.items()))


def groups() -> tuple[Group, ...]:
    """The blocks of the lesson in their order."""
    return tuple(sorted(constants("perfkit.teach.formulas", "GROUP"), key=lambda group: group.order))


def exercise_named(name: str) -> Exercise:
    """An exercise by name; raises InputError that says which there are."""
    if name not in exercises():
        first, *_, last = exercises()
        raise InputError("exercise", [f"{name!r} does not exist; there are {first} to {last}"])
    return exercises()[name]


def question(name: str, class_seed: int, student: str) -> Question:
    """The exercise `name` with the numbers of `student` in the class `class_seed`."""
    exercise = exercise_named(name)
    worked = exercise.work(draw(class_seed, student, name, exercise.draws))
    right, margin = worked.answer, 2 * exercise.tolerance * abs(worked.answer)
    apart = {mistake: value for mistake, value in worked.wrong.items() if abs(value - right) > margin}
    return Question(exercise=exercise, class_seed=class_seed, student=student, params=worked.params, answer=right, wrong=apart)


def answers(class_seed: int, student: str) -> list[dict[str, Any]]:
    """All inputs and right answers of a student, for instructors: rows of exercise, params, answer, unit and tolerance."""
    rows = []
    for name, exercise in exercises().items():
        asked = question(name, class_seed, student)
        row = {"exercise": name, "params": dict(asked.params), "answer": _plain(asked.answer)}
        rows.append({**row, "unit": exercise.unit, "tolerance": exercise.tolerance})
    return rows


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value
