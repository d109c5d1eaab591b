"""Capstone: the six rounds of the Llama2-13B case; the change is chosen and its gain predicted before the evidence is shown."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.project.sample import read_case
from perfkit.teach._draw import digest
from perfkit.teach._store import Store

POINTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A round: the situation, what one might change, and for afterwards what was changed, reported and learned."""

    number: int
    situation: str
    change: str
    instead: Mapping[str, str]
    reported: float
    hypothesis: str
    lesson: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a student chose for a round, what tokens/s/device was expected (None: nothing was), and the points."""

    change: str
    predicted: float | None
    points: float


@cache
def rounds() -> tuple[Round, ...]:
    """The six rounds in order."""
    told = tomllib.loads((data_folder() / "class" / "capstone.toml").read_text(encoding="utf-8"))["rounds"]
    return tuple(
        Round(
            number=number,
            situation=one["situation"],
            change=real["change"],
            instead=one["instead"],
            reported=real["reported"],
            hypothesis=real["hypothesis"],
            lesson=real["lesson"],
        )
        for number, (one, real) in enumerate(zip(told, read_case()["rounds"], strict=True))
    )


def options(number: int, class_seed: int, student: str) -> tuple[str, ...]:
    """The four changes to choose from, in an order of the student's own."""
    one = rounds()[number]
    return tuple(sorted((one.change, *one.instead), key=lambda change: digest(class_seed, student, f"C{number}", change)))


def choices(store: Store, class_seed: int, student: str) -> tuple[Choice, ...]:
    """What was chosen so far, in order; a round is chosen once, so a second tab changes nothing."""
    found: dict[str, Choice] = {}
    for row in store.rows(class_seed, student):
        if row["exercise"].startswith("C") and row["answer"]:
            predicted = json.loads(row["params_json"])["predicted"]
            found.setdefault(row["exercise"], Choice(row["answer"], predicted, row["points"]))
    return tuple(found[f"C{one.number}"] for one in rounds() if f"C{one.number}" in found)


def choose(
    store: Store, class_seed: int, student: str, *, number: int, change: str, predicted: float | None, seconds: float = 0.0
) -> Choice:
    """Choose the change of the next round. Raises InputError for one that is no option or a round that is not next."""
    done = choices(store, class_seed, student)
    if number != len(done):
        raise InputError("round", [f"{number} is not next" if len(done) < len(rounds()) else "all six rounds are chosen"])
    if change not in options(number, class_seed, student):
        raise InputError("change", ["choose one of the four first"])
    right = change == rounds()[number].change
    row: dict[str, Any] = {"class_seed": class_seed, "student": student, "exercise": f"C{number}", "answer": change}
    row |= {"params_json": json.dumps({"predicted": predicted}), "correct": int(right), "matched_wrong": None, "hints": 0}
    store.write({**row, "revealed": 0, "seconds": seconds, "points": float(POINTS if right else 0)})
    return Choice(change, predicted, row["correct"] * POINTS)
