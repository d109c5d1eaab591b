"""Sensitivity: each row is two predictions, the largest effect first; what a plan does not use has no row."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from perfkit.core.errors import InputError
from perfkit.predict.estimate import estimate
from perfkit.predict.studies.sensitivity import sensitivity


def test_a_row_is_the_prediction_with_a_changed_device(plan):
    frame = sensitivity(plan, 0.2).set_index("input")
    slower = replace(plan.hardware, memory_bytes_per_s=plan.hardware.memory_bytes_per_s * 0.8)
    assert frame.loc["memory bandwidth", "step_time_worse_s"] == estimate(replace(plan, hardware=slower)).step_time_s


def test_worse_is_slower_and_the_largest_swing_comes_first(plan):
    frame = sensitivity(plan)
    assert (frame["step_time_worse_s"] > frame["step_time_better_s"]).all()
    assert frame["swing_ratio"].is_monotonic_decreasing
    assert frame["input"].iloc[0] == "peak of bfloat16"


def test_a_network_that_is_not_used_has_no_row(plan):
    one = replace(plan, parallel=replace(plan.parallel, data_parallel_size=4, optimizer_shard_size=4))
    assert one.num_devices == 8
    assert "links between nodes" not in set(sensitivity(one)["input"])
    links = {name: link for name, link in plan.hardware.links.items() if name == "intra_node"}
    alone = replace(one, hardware=replace(plan.hardware, links=MappingProxyType(links)))
    assert "links between nodes" not in set(sensitivity(alone)["input"])


def test_a_plan_without_a_device_and_a_change_of_nothing_are_refused(plan):
    with pytest.raises(InputError, match="names no device"):
        sensitivity(replace(plan, hardware=None))
    with pytest.raises(InputError, match="between 0 and 1"):
        sensitivity(plan, 0)
