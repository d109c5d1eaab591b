"""Figures: the state of a number is never lost, and what is made of unknown numbers is unknown."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.figure import KNOWN, Figure, computed, figure, first_known


def made(value: float | None, state: str = "measured", unit: str = "ns", name: str = "x") -> Figure:
    return figure(name, value, unit, state, "log.txt: step")


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        (136_581_000.0, "measured", "137 ms"),
        (0.0, "measured", "0 ns"),
        (None, "absent", "not measured"),
        (math.nan, "not a number", "nan (not a number)"),
        (math.inf, "not a number", "inf (not a number)"),
    ],
)
def test_nan_infinity_absent_and_zero_are_four_things(value, state, text):
    shown = made(value)
    assert (shown.state, shown.text()) == (state, text)
    assert (shown.known is None) == (state != "measured")
    json.dumps(shown.to_dict(), allow_nan=False)


@given(st.floats(), st.sampled_from([*KNOWN, "absent", "not a number", "impossible"]))
def test_a_state_that_contradicts_its_value_cannot_be_made(value, state):
    if math.isfinite(value) == (state not in ("absent", "not a number")) and state != "absent":
        assert Figure(name="x", value=value, unit="ns", state=state, source="").value is not None or math.isnan(value)
    else:
        with pytest.raises(ValueError, match="cannot be"):
            Figure(name="x", value=value, unit="ns", state=state, source="")


@given(st.lists(st.sampled_from([None, math.nan, 2.0]), min_size=1, max_size=4))
def test_what_is_made_of_figures_names_just_those_that_are_missing(values):
    given_ = {f"f{index}": made(value, name=f"figure {index}") for index, value in enumerate(values)}
    found = computed("sum", "ns", "their sum", lambda **numbers: sum(numbers.values()), **given_)
    missing = [one.name for one in given_.values() if one.known is None]
    assert (found.state == "computed") == (not missing)
    assert found.inputs == tuple(one.name for one in given_.values())
    assert found.source == (f"needs {' and '.join(missing)}" if missing else "their sum")


def test_what_rests_on_an_assumption_is_assumed():
    both = computed("sum", "ns", "a + b", lambda a, b: a + b, a=made(1.0), b=made(2.0, "assumed"))
    assert (both.value, both.state) == (3.0, "assumed")


def test_what_no_quantity_can_be_is_shown_and_not_built_on():
    share = made(2.33, unit="ratio", name="MFU").within(0.0, 1.0)
    assert share.text() == "233 % (impossible)"
    assert computed("double", "ratio", "2 x MFU", lambda share: 2 * share, share=share).source == "needs MFU"
    assert made(0.5, unit="ratio").within(0.0, 1.0).state == "measured"


def test_the_first_way_to_a_number_that_works_is_taken_and_else_the_first_says_why():
    absent = made(None, name="by sizes")
    assert first_known(absent, made(3.0)).value == 3.0
    assert first_known(absent, made(None)).name == "by sizes"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2**30, "bytes", "1.00 GiB"),
        (0.5754, "ratio", "57.5 %"),
        (2562.4, "tokens/s", "2 560 tokens/s"),
        (2.16e14, "FLOP/s", "216 TFLOP/s"),
        (16, "", "16"),
    ],
)
def test_a_figure_is_never_a_bare_scaled_number(value, unit, text):
    assert made(value, unit=unit).text().replace("\u2009", " ") == text.replace("16", "16.0" if unit == "" else "16")
