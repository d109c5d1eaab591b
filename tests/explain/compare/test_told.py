"""A comparison as a page tells it: sentences, settings, operators, and the waterfall that ends where b is."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.compare import Comparison, compare
from perfkit.explain.compare.sides import both_have_kernels, open_side, short_name
from perfkit.explain.compare.told import comparison_told, differing_operators, settings_table, stage_table
from perfkit.face.charts.compare import waterfall_rows, way_from_a_to_b

DATA = data_folder()


@pytest.fixture(scope="module")
def rounds() -> Comparison:
    return compare(DATA / "case13b" / "round4.yaml", DATA / "case13b" / "round5.yaml", device="Ascend-910B2")


def test_the_last_rounds_of_the_case_are_told(rounds: Comparison):
    told = comparison_told(rounds)[0]
    assert told.startswith("It should help: a step is predicted to be 12.9 s (11.0 %) shorter")
    assert "computing/recompute changed most" in told
    assert set(settings_table(rounds)["key"]) == {"context.max_device_memory", "recompute_config.recompute"}
    parts = rounds.to_frame()
    assert parts["delta_s"].iloc[:-1].sum() == pytest.approx(parts["delta_s"].iloc[-1])
    assert differing_operators(rounds) == []
    assert stage_table(rounds).empty


def test_the_waterfall_ends_where_b_is(rounds: Comparison):
    steps = way_from_a_to_b(rounds).datasets["steps"]
    ends = [(step["path"][:3], step["path"][-11:]) for step in (steps[0], steps[-1])]
    assert ends == [("a: ", "round4.yaml"), ("b: ", "round5.yaml")]
    assert steps[-2]["end"] == pytest.approx(steps[-1]["end"])
    for before, after in pairwise(steps[1:-1]):
        assert after["start"] == pytest.approx(before["end"])


def test_two_recordings_are_compared_with_operators():
    sides = [open_side(DATA / "traces" / name) for name in ("torch_npu_2rank", "kineto_resnet")]
    found = compare(*sides, operators=both_have_kernels(*sides))
    titles = {frame.attrs["title"] for frame in differing_operators(found) if len(frame)}
    assert {"Operators of both, per step and rank", "Operators only in a", "Operators only in b"} <= titles
    assert any("too few steps" in note for note in comparison_told(found))


def test_graphs_have_operators_and_no_waterfall():
    found = compare(DATA / "ir/silu_mul_not_in_effect.ir", DATA / "ir/silu_mul_in_effect.ir")
    assert comparison_told(found)[0] == "Operators: 2 added, 12 removed, 8 moved, 16 changed."
    (frame,) = differing_operators(found)
    assert (frame["what"] == "added").sum() == 2
    assert way_from_a_to_b(found) is None


def test_the_rows_of_a_waterfall_leave_out_what_stayed():
    parts = pd.DataFrame({"path": ["x", "y"], "a": [1, 0], "b": [3, 0]})
    rows = waterfall_rows(parts, scale=1, unit="ms")["steps"]
    assert [(row["path"], row["label"]) for row in rows] == [("a", "1.000 ms"), ("x", "+2.00 ms"), ("b", "3.000 ms")]


def test_files_called_alike_in_every_round_are_told_apart():
    plan = open_side(DATA / "case13b" / "round4.yaml")
    assert short_name(plan, "rounds/04/config.yaml") == "04/config.yaml"
    assert short_name(plan, "case13b/round4.yaml") == "round4.yaml"
