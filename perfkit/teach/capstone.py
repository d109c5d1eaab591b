"""Capstone: the six rounds of the Llama2-13B case; the change is chosen and its gain predicted before the evidence is shown."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.texts import Said, say
from perfkit.core.units import format_change, format_entry, significant
from perfkit.project.sample import read_case
from perfkit.teach._draw import digest
from perfkit.teach._store import Store
from perfkit.teach.session import Session, check_open, opened, spent_s

POINTS = 20
BLOCK = "Capstone"


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


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a student has come through the rounds; of a round that was not chosen yet nothing but its situation is told."""

    choices: tuple[Choice, ...]

    def told(self) -> tuple[str, ...]:
        """The situation that comes next, why the last choice was right or not, and the points."""
        points = sum(chosen.points for chosen in self.choices)
        most = str(POINTS * len(rounds()))
        return self._next(), *self._last(), say("{points} of {most} points.", points=format_entry(points), most=most)

    def _next(self) -> Said:
        done = len(self.choices)
        if done < len(rounds()):
            asked = "Round {number}: {situation} What do you change, and what do you expect?"
            return say(asked, number=str(done), situation=rounds()[done].situation)
        first, last = rounds()[0].reported, rounds()[-1].reported
        ended = "All six rounds are done: {first} became {last} tokens/s/device, {times} times."
        return say(ended, first=format_entry(first), last=format_entry(last), times=significant(last / first))

    def _last(self) -> tuple[str, ...]:
        if not self.choices:
            return ()
        one, chosen = rounds()[len(self.choices) - 1], self.choices[-1]
        why = "That is what was done." if chosen.points else one.instead.get(chosen.change, "")
        return (
            say("You chose: {change}. {why}", change=chosen.change, why=why),
            say("Why it was tried: {hypothesis}", hypothesis=one.hypothesis),
            say("Learned: {lesson}", lesson=one.lesson),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a round that was chosen: what was changed, what it brought, what was expected, how far off, points."""
        rows = []
        for one, chosen in zip(rounds(), self.choices, strict=False):
            off = None if chosen.predicted is None else format_change(chosen.predicted / one.reported - 1)
            row = {"round": one.number, "what was changed": one.change, "reported": one.reported}
            rows.append({**row, "you expected": chosen.predicted, "off by": off, "points": chosen.points})
        frame = pd.DataFrame(rows)
        frame.attrs["title"] = say("What was done, and what it brought (tokens/s/device)")
        return frame


def walk(here: Session) -> Walk:
    """How far a student has come; the time of the next round runs from the first moment that it is seen."""
    chosen = choices(here.store, here.class_seed, here.student)
    opened(here.student, f"C{len(chosen)}")
    return Walk(chosen)


def next_options(here: Session) -> tuple[str, ...]:
    """The changes to choose from in the round that is next; none after the last."""
    number = len(choices(here.store, here.class_seed, here.student))
    return options(number, here.class_seed, here.student) if number < len(rounds()) else ()


def choose_next(here: Session, change: str, expected: str) -> str:
    """Choose the change of the next round and say whether it is what was done; `expected` is typed tokens/s/device, or empty."""
    check_open(here.store, BLOCK)
    number = len(choices(here.store, here.class_seed, here.student))
    seconds, predicted = spent_s(here.student, f"C{number}"), _number(expected)
    chosen = choose(here.store, here.class_seed, here.student, number=number, change=change, predicted=predicted, seconds=seconds)
    return "That is what was done." if chosen.points else "Something else was done; see why below."


def _number(text: str) -> float | None:
    plain = text.strip().replace(",", "")
    if not plain:
        return None
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError("expected", [f"{text[:40]!r} is no number of tokens/s/device; type for example 2100, or nothing"])
    return value
