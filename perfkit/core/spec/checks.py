"""Checks that the specs share: each gives a list of problems, so that a spec can report all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

LARGEST = 10**9
"""No size is larger whose divisors are looked for."""
MAX_LAYERS = 10_000
"""No model has more layers, and no pipeline more stages and chunks: each is a number of its own in a plan."""


def counts(spec: object, names: Iterable[str], *, low: int = 1) -> list[str]:
    """Problems of the fields that must be whole numbers of at least `low` (1, 0, or -1 where that stands for "as the others")."""
    return [problem for name in names if (problem := _count_problem(name, getattr(spec, name), low))]


def positive(spec: object, names: Iterable[str]) -> list[str]:
    """Problems of the fields that must be finite numbers greater than 0."""
    return [problem for name in names if (problem := quantity_problem(name, getattr(spec, name)))]


def quantity_problem(name: str, value: object) -> str:
    """Why `value` is no finite number greater than 0, or an empty text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return f"{name} = {value!r} must be a number"
    return "" if math.isfinite(value) and float(value) > 0 else f"{name} = {value} must be positive"


def one_of(spec: object, name: str, allowed: Iterable[str]) -> list[str]:
    """The problem of a field that must be one of a few words."""
    value, words = getattr(spec, name), tuple(allowed)
    return [] if value in words else [f"{name} = {value!r} must be one of {', '.join(words)}"]


def nearest_divisors(value: int, of: int) -> str:
    """The divisors of `of` next to `value` below and above (at most eight times as large), as "4 or 8"."""
    if of > LARGEST:
        return f"a divisor of {of}"
    small = [step for step in range(1, math.isqrt(of) + 1) if of % step == 0]
    divisors = [*small, *(of // step for step in reversed(small) if step * step != of)]
    below = [step for step in divisors if step <= value][-1:]
    above = [step for step in divisors if value < step <= 8 * value][:1]
    return " or ".join(str(size) for size in (*below, *(() if below == [value] else above)))


def nearest_multiples(value: int, unit: int) -> str:
    """The positive multiples of `unit` next to `value`, as "248 or 256"."""
    below = value // unit * unit
    return " or ".join(str(size) for size in (below, below + unit) if size)


def _count_problem(name: str, value: object, low: int) -> str:
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):  # the first is quick and usual
        return f"{name} = {value!r} must be a whole number"
    if int(value) >= low:
        return ""
    return f"{name} = {value} must {('not be negative', 'be positive', 'be at least -1')[low]}"
