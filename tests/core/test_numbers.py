"""Numbers: what is said of one plan is what is said of it in an array, to the last bit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from perfkit.core.numbers import alike, any_of, listed, maximum, minimum, where

VALUES = (0.0, 1.5, -2.0, math.inf, math.nan)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(VALUES, VALUES)))
def test_a_number_is_chosen_as_an_array_of_one_is(one, other):
    arrays = np.array([one]), np.array([other])
    for choose in (maximum, minimum):
        np.testing.assert_array_equal(choose(np.float64(one), np.float64(other)), choose(*arrays)[0])
    holds = where(np.float64(one) > 1.0, np.float64(one), np.float64(other))
    np.testing.assert_array_equal(holds, where(arrays[0] > 1.0, *arrays)[0])


@pytest.mark.parametrize("flag", [True, False])
def test_flags_of_one_plan_are_told_as_those_of_many(flag):
    assert any_of(np.bool_(flag)) is any_of(np.array([False, flag])) is flag


def test_a_value_is_as_many_as_what_it_stands_beside():
    np.testing.assert_array_equal(alike(2.0, np.zeros(3)), [2.0, 2.0, 2.0])
    assert np.ndim(alike(2.0, np.float64(7.0))) == 0
    assert listed(np.array([1.0, 2.0])) == [1.0, 2.0]
    assert listed(np.float64(1.0)) == [1.0]
