"""Rounds of the game as kept rows: what was looked at, what it cost, and the answer that closes a round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from perfkit.core.errors import InputError
from perfkit.teach._store import Store
from perfkit.teach.game import Case, case, name_of, pack
from perfkit.teach.score import Guess, read_ranks, score

LOOK = "(look)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Where a student is in a round: views opened, minutes left, and the points once it is answered."""

    level: str
    number: int
    looked: tuple[str, ...]
    left_min: int
    points: float | None
    guesses: tuple[Guess, ...]


def current(store: Store, class_seed: int, student: str, level: str, number: int = 0) -> Round:
    """The round `number` of a level, or with 0 the first that is not answered."""
    rows = store.rows(class_seed, student)
    chosen = number or _first_open(rows, level)
    mine = [row for row in rows if row["exercise"] == name_of(level, chosen)]
    looked = tuple(dict.fromkeys(json.loads(row["params_json"])["view"] for row in mine if row["matched_wrong"] == LOOK))
    spent = sum(pack()["views"][view]["cost_min"] for view in looked)
    answered = next((row for row in mine if row["answer"]), None)
    return Round(
        level=level,
        number=chosen,
        looked=looked,
        left_min=pack()["levels"][level]["budget_min"] - spent,
        points=None if answered is None else answered["points"],
        guesses=() if answered is None else tuple(Guess(**guess) for guess in json.loads(answered["answer"])),
    )


def _first_open(rows: Iterable[Mapping[str, Any]], level: str) -> int:
    done = {row["exercise"] for row in rows if row["answer"]}
    return next(number for number in range(1, len(done) + 2) if name_of(level, number) not in done)


def look_at(store: Store, class_seed: int, student: str, now: Round, view: str) -> int:
    """Open a view; the minutes left. One that is open costs nothing again. Raises InputError if the budget does not allow it."""
    cost = int(pack()["views"][view]["cost_min"])
    if view in now.looked or now.points is not None:
        return now.left_min
    if cost > now.left_min:
        raise InputError("budget", [f"this look costs {cost} min, {now.left_min} are left; look elsewhere, or answer"])
    _write(store, class_seed, student, now, {"params_json": json.dumps({"view": view, "cost_min": cost}), "matched_wrong": LOOK})
    return now.left_min - cost


def answer(store: Store, class_seed: int, student: str, now: Round, guesses: Iterable[Guess], *, seconds: float = 0.0) -> float:
    """Close a round; its points.

    Raises InputError if it is closed already, nothing was said, or a place names no ranks.
    """
    if now.points is not None:
        raise InputError("round", ["is answered already; go on to the next one"])
    said = [guess for guess in guesses if guess.kind]
    if not said:
        raise InputError("round", ["name what is wrong first, or say that the run is healthy"])
    for guess in said:
        read_ranks(guess.place)
    points, _ = score(said, the_case(class_seed, student, now).truths)
    row = {"params_json": json.dumps({"level": now.level}), "answer": json.dumps([asdict(guess) for guess in said])}
    _write(store, class_seed, student, now, {**row, "points": points, "correct": int(points == 100), "seconds": seconds})
    return points


def the_case(class_seed: int, student: str, now: Round) -> Case:
    """The runs and the truth of a round."""
    return case(now.level, now.number, class_seed, student)


def _write(store: Store, class_seed: int, student: str, now: Round, row: Mapping[str, Any]) -> None:
    empty = {"answer": "", "correct": 0, "matched_wrong": None, "hints": 0, "revealed": 0, "seconds": 0.0, "points": 0.0}
    known = {"class_seed": class_seed, "student": student, "exercise": name_of(now.level, now.number)}
    store.write({**empty, **known, **row})
