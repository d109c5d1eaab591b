"""The Pareto front: the stated fronts, and a brute-force check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.predict.plans.search.pareto import pareto_front

CASES = json.loads((Path(__file__).parents[2] / "data" / "plans" / "d13_pareto.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES)
def test_the_front_is_the_stated_one(case):
    assert pareto_front(case["time_ns"], case["memory_bytes"]).tolist() == case["expected_indices"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_a_point_is_on_the_front_unless_another_one_is_as_good_in_both(points):
    times, sizes = [time for time, _ in points], [size for _, size in points]
    beaten = {
        index
        for index, (time, size) in enumerate(points)
        for other, (t, s) in enumerate(points)
        if t <= time and s <= size and ((t, s) != (time, size) or other < index)
    }
    front = pareto_front(times, sizes).tolist()
    assert sorted(front) == [index for index in range(len(points)) if index not in beaten]
    assert [times[index] for index in front] == sorted(times[index] for index in front)
