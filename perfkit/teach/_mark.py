"""Mark: right, a mistake that is known, a unit or sign that slipped, or too high and too low. Never "wrong" alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from perfkit.teach._catalogue import Question
from perfkit.teach._number import read_number

Outcome = Literal["right", "wrong", "unread"]
NEAR = 1e-9
"""Exact answers are equal up to what a float loses."""
SAID = {
    "right": "Right.",
    "which": "Not this rank.",
    "percent": "Off by 100: percent or ratio? Look at the unit that is asked for.",
    "reciprocal": "That is the reciprocal: turn the fraction over.",
    "sign": "The amount is right, the sign is not.",
    "too_high": "Too high.",
    "too_low": "Too low.",
}
"""What is said of an answer where the exercise has no sentence of its own."""
WHICH = ("E37",)
"""Exercises that ask which one: their answer is a name, not an amount."""
HINT_SHARE, FIRST_TRY_SHARE = 0.25, 0.10


@dataclass(frozen=True, slots=True)
class Mark:
    """How an answer was judged, what to say, the value that was read, and the name of the known mistake if it is one.

    An answer that could not be read (`unread`) costs nothing and is no try.
    """

    outcome: Outcome
    text: str
    value: float | None = None
    mistake: str | None = None


def mark(question: Question, text: str) -> Mark:
    """Judge what a student typed."""
    exercise = question.exercise
    typed = read_number(text, exercise.unit)
    if typed.value is None:
        return Mark("unread", typed.problem)
    value, tolerance = typed.value, exercise.tolerance
    if close(value, question.answer, tolerance):
        return Mark("right", SAID["right"], value)
    for mistake, wrong in question.wrong.items():
        if close(value, wrong, tolerance):
            return Mark("wrong", exercise.wrong[mistake], value, mistake)
    if exercise.name in WHICH:
        return Mark("wrong", SAID["which"], value, "other")
    slip = _slip(value, question.answer, tolerance) if question.answer else None
    if slip:
        return Mark("wrong", slip[1], value, slip[0])
    off = "too_high" if value > question.answer else "too_low"
    return Mark("wrong", SAID[off], value, off)


def close(value: float, target: float, tolerance: float) -> bool:
    """Whether a value is within a relative tolerance of another."""
    return abs(value - target) <= max(tolerance, NEAR) * abs(target)


def points(full: int, *, hints: int, tries: int, revealed: bool) -> float:
    """What a right answer is worth: a quarter less a hint, nothing after the answer was shown, a tenth more at the first try."""
    if revealed:
        return 0.0
    first = FIRST_TRY_SHARE if tries == 0 else 0.0
    return round(full * max(0.0, 1 - HINT_SHARE * hints + first), 4)


def _slip(value: float, right: float, tolerance: float) -> tuple[str, str] | None:
    """A mistake that is the same in every exercise: thousand-fold, hundred-fold, upside down, negative."""
    for base in (1000, 1024):
        for power in (1, 2, 3):
            factor = float(base) ** power
            if close(value, right * factor, tolerance) or close(value, right / factor, tolerance):
                off = f"{base}^{power}" if power > 1 else str(base)
                return "unit", f"The digits are right, the unit is not: look at the unit again (off by {off})."
    if close(value, right * 100, tolerance) or close(value, right / 100, tolerance):
        return "percent", SAID["percent"]
    if value and math.isfinite(1 / value) and close(1 / value, right, tolerance):
        return "reciprocal", SAID["reciprocal"]
    if close(-value, right, tolerance):
        return "sign", SAID["sign"]
    return None
