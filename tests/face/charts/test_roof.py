"""Operators under the roof of a device: what is not drawn there is counted."""

from __future__ import annotations

import pandas as pd

from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.explain.roofline import LEAST_DRAWN, MOST_DRAWN, operator_costs, roof_told, under_the_roof
from perfkit.face.charts.operators import measured_roofline
from perfkit.face.charts.spec import split
from perfkit.record.load import load


def test_points_that_are_not_drawn_are_counted():
    device = catalog.hardware()["Ascend 376"]
    few = under_the_roof(operator_costs(load(data_folder() / "traces" / "torch_npu_2rank"), rank=1), device)
    many = pd.concat([few] * (MOST_DRAWN // len(few) + 1)).sort_values("total_ns", ascending=False, ignore_index=True)
    longest = many.head(MOST_DRAWN)
    *_, drawn, below = roof_told(many, "Ascend 376")
    assert drawn == f"Drawn are the {MOST_DRAWN} that take longest, of {len(many)} operators, each with its shapes."
    assert f": {(longest['efficiency_ratio'] < LEAST_DRAWN).sum()} of {MOST_DRAWN} operators" in below
    points = split(measured_roofline(many, device)).datasets["reached"]
    assert len(points["name"]) == (longest["efficiency_ratio"] >= LEAST_DRAWN).sum()
