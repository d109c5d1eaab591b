"""Linearity with its base said explicitly."""

from __future__ import annotations

import math

import pytest

from perfkit.core.errors import InputError
from perfkit.predict.cost.scaling import (
    OWN,
    linearity,
    linearity_table,
    linearity_told,
    mfu_points,
    mfu_told,
    parse_runs,
    published_mfu,
)


@pytest.mark.parametrize(("base", "devices"), [(4695, 1), (37_560, 8)], ids=["base is a device", "base is a node of eight"])
def test_the_base_unit_does_not_change_linearity(base, devices):
    assert linearity(270_000, 64, base, devices) == pytest.approx(0.8986, abs=5e-5)


def test_runs_are_compared_with_the_smallest():
    table = linearity_table([("large", 64, 270_000.0), ("small", 8, 37_560.0)])
    assert list(table["name"]) == ["small", "large"]
    assert table["linearity_ratio"].tolist() == [1.0, pytest.approx(0.8986, abs=5e-5)]
    assert table["good"].all()


def test_no_runs_are_no_linearity():
    with pytest.raises(InputError, match="no run"):
        linearity_table([])


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InputError, match="tokens_per_s"):
        linearity(speed, 64, 4695, 1)


def test_the_guides_example_keeps_89_86_percent_whatever_unit_its_base_has():
    for runs in ("1: 4695, 64: 270000", "8: 37560; 64: 270_000"):
        told = linearity_told(linearity_table(parse_runs(runs)))
        assert "to 64 devices 89.86 %" in told
        assert "good" in told
    assert "add a larger one" in linearity_told(linearity_table(parse_runs("8: 37560")))


def test_every_piece_that_is_no_run_is_listed():
    with pytest.raises(InputError) as error:
        parse_runs("8 37560, a: b, 64: 270000, 0x8: 1")
    assert len(error.value.problems) == 3
    assert parse_runs(" , ") == []


def test_ones_own_run_is_drawn_beside_published_ones_of_as_many_devices():
    published = published_mfu()
    assert len(published) > 100
    assert published["mfu"].between(0.05, 1.0).all()
    assert set(published.columns) == {"name", "device", "num_devices", "mfu", "source"}
    points = mfu_points("round 3", 64, 0.41)
    own = points[points["device"] == OWN]
    assert (len(points), own["num_devices"].tolist(), own["mfu"].tolist()) == (len(published) + 1, [64], [0.41])
    near = published[published["num_devices"].between(32, 128)]["mfu"]
    assert f"{len(near)} published runs of half to twice as many" in mfu_told(points)


def test_a_run_without_devices_or_far_from_all_published_ones_is_told_so():
    assert "must be known" in mfu_told(mfu_points("log", None, 0.4))
    assert "none is like it" in mfu_told(mfu_points("log", 100_000, 0.4))
