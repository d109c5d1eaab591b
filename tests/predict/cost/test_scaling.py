"""Linearity with its base said explicitly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.predict.cost.scaling import guide_linearity, linearity, linearity_table, throughput_split


@pytest.mark.parametrize(("base", "devices"), [(4695, 1), (37_560, 8)], ids=["base is a device", "base is a node of eight"])
def test_the_base_unit_does_not_change_linearity(base, devices):
    assert linearity(270_000, 64, base, devices) == pytest.approx(0.8986, abs=5e-5)


def test_the_guides_mixed_units_make_a_good_cluster_look_bad():
    assert guide_linearity(270_000, 64, 37_560) == pytest.approx(0.112, abs=5e-4)


def test_runs_are_compared_with_the_smallest():
    table = linearity_table([("large", 64, 270_000.0), ("small", 8, 37_560.0)])
    assert list(table["name"]) == ["small", "large"]
    assert table["linearity"].tolist() == [1.0, pytest.approx(0.8986, abs=5e-5)]
    assert table["good"].all()


def test_no_runs_are_no_linearity():
    with pytest.raises(InputError, match="no run"):
        linearity_table([])


@given(st.floats(1, 1e9), st.integers(1, 100_000), st.floats(1, 1e6), st.integers(1, 64))
def test_kept_and_lost_sum_to_the_ideal_or_to_a_run_that_beats_it(speed, devices, base, base_devices):
    split = throughput_split(speed, devices, base, base_devices)
    ideal = base * devices / base_devices
    assert split.total == pytest.approx(max(ideal, speed))
    assert split.parts["kept"] == speed


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InputError, match="tokens_per_s"):
        linearity(speed, 64, 4695, 1)
