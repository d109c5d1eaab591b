"""Worked: an exercise with a student's numbers put in, and the groups that exercises come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Draw = Mapping[str, Any]
"""What was drawn, by the names of data/class/exercises.toml."""


@dataclass(frozen=True, slots=True)
class Worked:
    """Inputs as the student sees them, the right answer, and what common mistakes give, by the mistake's name."""

    params: Mapping[str, Any]
    answer: float
    wrong: Mapping[str, float]


Formula = Callable[[Draw], Worked]


@dataclass(frozen=True, slots=True)
class Group:
    """A block of the lesson: its title and place in the order, its formulas by exercise."""

    title: str
    order: int
    formulas: Mapping[str, Formula]
