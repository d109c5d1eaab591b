"""Score of the game: 100 points for kind (40), place (30), amount (20) and action (10) of every fault; a false one costs 20."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfkit.core.errors import InputError
from perfkit.core.units import format_entry, rounded
from perfkit.teach.game import NONE, Truth, pack

KIND, PLACE, AMOUNT, ACTION, FALSE = 40.0, 30.0, 20.0, 10.0, 20.0
LEAST_MS = 10.0
"""Amounts below this are judged as if they were this large: nobody reads a millisecond from a table."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What a student says of one fault: `place` names ranks ("3", "4-5", "stage 1"), `amount_ms` ms a step."""

    kind: str
    place: str = ""
    amount_ms: float = 0.0
    action: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """How one fault was judged."""

    kind: str
    points: float
    text: str


def score(guesses: Sequence[Guess], truths: Sequence[Truth]) -> tuple[float, list[Part]]:
    """The points, 0 to 100, and how each fault was judged. Raises InputError for a place that cannot be read."""
    if not truths:
        return _healthy(guesses)
    left, parts = list(guesses), []
    for truth in truths:
        guess = next((one for one in left if one.kind == truth.kind), None)
        if guess is None:
            parts.append(Part(truth.kind, 0.0, "not named"))
            continue
        left.remove(guess)
        parts.append(_judge(guess, truth))
    false = [guess for guess in left if guess.kind != NONE]
    parts += [Part(guess.kind, -FALSE, "is not there") for guess in false]
    found = sum(part.points for part in parts[: len(truths)]) / len(truths)
    return max(0.0, round(found - FALSE * len(false), 1)), parts


def _healthy(guesses: Sequence[Guess]) -> tuple[float, list[Part]]:
    false = [guess for guess in guesses if guess.kind != NONE]
    if false or not guesses:
        return 0.0, [Part(guess.kind, 0.0, "is not there: the run is healthy") for guess in false]
    part = _judge(guesses[0], Truth(kind=NONE, ranks=frozenset(), cost_ms=0.0, action=pack()["kinds"][NONE]["action"]))
    return part.points, [part]


def _judge(guess: Guess, truth: Truth) -> Part:
    ranks = read_ranks(guess.place)
    one_end = truth.kind == "slow_link" and len(ranks) == 1 and ranks <= truth.ranks
    there = ranks == truth.ranks or one_end
    near = max(0.0, 1 - abs(guess.amount_ms - truth.cost_ms) / max(truth.cost_ms, LEAST_MS))
    acted = guess.action == truth.action
    points = KIND + PLACE * there + AMOUNT * near + ACTION * acted
    parts = {"kind": KIND, "place": PLACE * there, "amount": rounded(AMOUNT * near), "action": ACTION * acted}
    text = ", ".join(f"{name} {format_entry(points)}" for name, points in parts.items())
    return Part(truth.kind, round(points, 1), text)


def read_ranks(text: str) -> frozenset[int]:
    """The ranks that a place names; a stage stands for its ranks, nothing for all or none in particular."""
    plain = text.strip().lower()
    if plain in ("", "-", "all", "none"):
        return frozenset()
    size, stages = pack()["plan"]["data_parallel"], pack()["plan"]["pipeline"]
    if stage := re.fullmatch(r"stage\s*(\d+)", plain):
        first = int(stage[1]) * size
        ranks: Iterable[int] = range(first, first + size)
    elif re.fullmatch(r"(?:ranks?\s*)?\d+(?:\s*(?:[,;\s\-]|and)\s*\d+)*", plain):
        ranks = (int(number) for number in re.findall(r"\d+", plain))
    else:
        raise InputError("place", [f"{text[:40]!r} names no ranks; type 3, 4-5, stage 1, or leave it empty"])
    found = frozenset(ranks)
    if outside := sorted(rank for rank in found if rank >= size * stages):
        raise InputError("place", [f"rank {outside[0]} does not exist; there are 0 to {size * stages - 1}"])
    return found
