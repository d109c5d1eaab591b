"""Linearity with its base said explicitly."""

from __future__ import annotations

import math

import pytest

from perfkit.core.errors import InputError
from perfkit.predict.cost.scaling import linearity, linearity_table


@pytest.mark.parametrize(("base", "devices"), [(4695, 1), (37_560, 8)], ids=["base is a device", "base is a node of eight"])
def test_the_base_unit_does_not_change_linearity(base, devices):
    assert linearity(270_000, 64, base, devices) == pytest.approx(0.8986, abs=5e-5)


def test_runs_are_compared_with_the_smallest():
    table = linearity_table([("large", 64, 270_000.0), ("small", 8, 37_560.0)])
    assert list(table["name"]) == ["small", "large"]
    assert table["linearity"].tolist() == [1.0, pytest.approx(0.8986, abs=5e-5)]
    assert table["good"].all()


def test_no_runs_are_no_linearity():
    with pytest.raises(InputError, match="no run"):
        linearity_table([])


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InputError, match="tokens_per_s"):
        linearity(speed, 64, 4695, 1)
