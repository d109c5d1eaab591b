"""Numbers: what all plans of a table share, or an array with one value a plan; a formula is written once for both.

A single plan has numbers in place of arrays: calling an array function takes many times as long as its arithmetic for one plan.
They are NumPy's, whose division by zero and rounding are those of arrays, so that a plan gets the same answer beside others.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = Any
"""A number (float, or `numpy.bool` where it says whether) that all plans share, or an array with one value a plan."""


def where(condition: Number, then: Number, otherwise: Number) -> Number:
    """Of every plan `then` if the condition holds, else the other number."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def maximum(one: Number, other: Number) -> Number:
    """The larger of two numbers of every plan; nan if either is."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return one if one >= other or one != one else other  # noqa: PLR0124  (nan alone is not equal to itself)


def minimum(one: Number, other: Number) -> Number:
    """The smaller of two numbers of every plan; nan if either is."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return one if one <= other or one != one else other  # noqa: PLR0124


def any_of(flags: Number) -> bool:
    """Whether something holds of any plan."""
    return bool(flags.any() if isinstance(flags, np.ndarray) else flags)


def alike(value: float, like: Number) -> Number:
    """One value for every plan that `like` has one for."""
    return np.full(like.shape, value) if isinstance(like, np.ndarray) else np.float64(value)


def listed(values: Number) -> list[float]:
    """The number of every plan, as Python's."""
    return values.tolist() if isinstance(values, np.ndarray) else [float(values)]
