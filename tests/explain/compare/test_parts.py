"""Parts of a comparison by hand: whole numbers that sum, and bubbles that one side cannot tell."""

from __future__ import annotations

import pytest

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.explain.compare._measure import whole_numbers
from perfkit.explain.compare._parts import common


@pytest.mark.parametrize(
    ("amounts", "total", "whole"),
    [
        ({"a": 1.5, "b": 2.25, "c": 3.25}, 7, {"a": 2, "b": 2, "c": 3}),
        ({"a": 1.2, "b": 1.7}, 3, {"a": 1, "b": 2}),
        ({"a": 1.5, "b": 1.5}, 8, {"a": 4, "b": 4}),  # more is missing than there are parts: it goes round
        ({"a": 5.75, "b": 4.25}, 7, {"a": 4, "b": 3}),
        ({"a": 3.0}, 3, {"a": 3}),
    ],
)
def test_parts_are_rounded_so_that_they_sum(amounts, total, whole):
    found = whole_numbers(amounts, total)
    assert found == whole
    assert sum(found.values()) == total


def test_a_bubble_that_a_recording_cannot_tell_is_compared_with_exposed_communication():
    measured = Breakdown("ns", {"computing": 60, "communication/exposed/dp": 40}, Source("measured", "trace"))
    divided = {"computing": 55, "communication/exposed/dp": 30, "bubble/warm_up": 10, "bubble/drain": 7}
    predicted = Breakdown("ns", divided, Source("computed", "step"))
    known = {"computing": 60, "communication/exposed": 40}, {"computing": 55, "communication/exposed": 47}
    for sides, wanted in (((measured, predicted), known), ((predicted, measured), known[::-1])):
        *found, notes = common(*sides)
        assert tuple(dict(one.parts) for one in found) == wanted
        assert len(notes) == 1
