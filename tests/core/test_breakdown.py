"""The laws of a breakdown: leaves only, finite, nothing lost by a transformation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.breakdown import Breakdown, align, join, one_unit
from perfkit.core.errors import InputError
from perfkit.core.source import Source

HERE = Source("computed", "test")
STEP = Breakdown("ns", {"computing/forward": 5, "computing/backward": 10, "bubble": 3}, HERE)

WORDS = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)


def leaves(paths):
    """The paths that no other path continues."""
    return {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}


TREES = (
    st.sets(PATHS, min_size=1, max_size=9)
    .map(leaves)
    .flatmap(lambda paths: st.fixed_dictionaries({path: st.integers(0, 10**15) for path in paths}))
)


def of(parts, unit="ns", unmeasured=()):
    return Breakdown(unit, parts, HERE, frozenset(unmeasured))


def test_the_leaves_sum_to_the_total():
    assert STEP.total == 18
    assert STEP.complete


def test_every_bad_part_is_named():
    with pytest.raises(InputError) as error:
        of({"a": -1, "b": math.nan, "c": math.inf, "d": 1, "d/e": 2, "/f": 1, "": 1, "g//h": 1})
    message = str(error.value)
    for expected in ("a = -1", "b = nan", "c = inf", "'d' carries an amount and also contains 'd/e'", "'/f'", "''", "'g//h'"):
        assert expected in message


def test_a_path_is_measured_or_unmeasured_and_not_both():
    with pytest.raises(InputError, match="measured and unmeasured"):
        of({"a": 1}, unmeasured=["a"])
    with pytest.raises(InputError, match="also contains"):
        of({"a/b": 1}, unmeasured=["a"])


def test_parts_cannot_be_changed():
    with pytest.raises(TypeError):
        STEP.parts["bubble"] = 0


def test_changing_the_given_mapping_changes_nothing():
    given_parts = {"a": 1}
    breakdown = of(given_parts)
    given_parts["a"] = 2
    assert breakdown.total == 1


def test_amounts_below_a_prefix():
    assert STEP.amount("computing") == 15
    assert STEP.amount("bubble") == 3
    assert STEP.amount("comp") == 0
    assert STEP.under("computing").parts == {"forward": 5, "backward": 10}


def test_a_frame_has_shares_of_the_whole():
    frame = STEP.to_frame()
    assert list(frame["path"]) == list(STEP.parts)
    assert frame["share"].sum() == pytest.approx(1)


def test_an_empty_breakdown_is_zero():
    assert of({}).total == 0
    assert of({}).to_frame().empty


def test_zero_and_unmeasured_are_not_the_same():
    zero, unknown = of({"a": 1, "b": 0}), of({"a": 1}, unmeasured=["b"])
    assert zero.complete
    assert not unknown.complete
    assert list(unknown.to_frame()["path"]) == ["a"]


def test_joining_places_each_below_its_root():
    joined = join([("x", STEP), ("y", of({"a": 1}, unmeasured=["b"]))], HERE)
    assert joined.total == 19
    assert joined.amount("x") == 18
    assert joined.unmeasured == {"y/b"}


def test_different_units_do_not_join():
    with pytest.raises(InputError, match="bytes, ns"):
        join([("x", STEP), ("y", of({"a": 1}, unit="bytes"))], HERE)
    with pytest.raises(InputError, match="no breakdown"):
        one_unit([])


def test_an_estimate_in_seconds_meets_a_measurement_in_nanoseconds():
    estimate = of({"computing": 0.5, "bubble": 0.25}, unit="s")
    left, right = align(estimate, of({"computing/forward": 1, "computing/backward": 2, "bubble": 3}))
    assert left.unit == right.unit == "ns"
    assert left.parts == {"computing": 500_000_000, "bubble": 250_000_000}
    assert right.parts == {"computing": 3, "bubble": 3}


def test_aligning_keeps_what_was_not_measured():
    left, right = align(of({"computing": 1}, unmeasured=["free"]), of({"computing": 2, "free/host": 1}))
    assert left.unmeasured == {"free"}
    assert right.parts == {"computing": 2, "free/host": 1}


def test_an_unmeasured_part_of_a_merged_path_is_gone():
    left, _ = align(of({"free/host": 1}, unmeasured=["free/data"]), of({"free": 2}))
    assert left.parts == {"free": 1}
    assert left.complete


@given(TREES, st.integers(1, 4))
def test_collapsing_loses_nothing(parts, depth):
    breakdown = of(parts)
    flat = breakdown.collapse(depth)
    assert flat.total == breakdown.total
    assert all(path.count("/") < depth for path in flat.parts)


@given(TREES)
def test_a_breakdown_is_the_sum_of_what_is_under_its_roots(parts):
    breakdown = of(parts)
    assert sum(breakdown.amount(root) for root in breakdown.collapse(1).parts) == breakdown.total


@given(TREES, st.integers(0, 1000))
def test_scaling_by_a_whole_number_stays_exact(parts, factor):
    assert of(parts).scale(factor).total == of(parts).total * factor


@given(TREES, TREES)
def test_aligning_loses_nothing_and_leaves_comparable_paths(first, second):
    left, right = align(of(first), of(second))
    assert (left.total, right.total) == (of(first).total, of(second).total)
    paths = {*left.parts, *right.parts}
    assert leaves(paths) == paths
