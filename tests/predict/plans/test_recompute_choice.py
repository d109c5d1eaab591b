"""Choices of recomputation: what settings free and cost, patterns checked, and a choice as configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config.export_text import export_text
from perfkit.config.presets import read_plan
from perfkit.core.errors import InputError
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import estimate
from perfkit.predict.plans.balance.recompute_choice import CHOICES, FINE, OWN, curves_told, recompute_choice, recompute_ground
from perfkit.predict.plans.balance.recompute_choice import settings_points as points
from perfkit.predict.plans.balance.recompute_curve import least_seconds

ROUND5 = str(Path(__file__).parents[3] / "data" / "case13b" / "round5.yaml")


@pytest.fixture(scope="module")
def ground():
    return recompute_ground(changed_plan(read_plan("llama2-13b"), device="Ascend-910B2", limit_gib=58.0))


def test_silu_and_mul_free_216_mib_a_layer(ground):
    assert "free 216 MiB a layer and micro batch" in recompute_choice(ground, "Silu and Mul").told()[0]


def test_settings_are_ordered_as_the_guides_order_them(ground):
    found = ground.to_frame().set_index("setting").loc[["none", "Silu and Mul", "fine list", "all layers"]]
    assert found["step_time_ns"].is_monotonic_increasing
    assert found["peak_bytes"].is_monotonic_decreasing
    assert "against 84.6 GiB with none" not in ground.told()
    assert "longer" in ground.told()


def test_a_setting_is_the_estimate_of_its_plan_and_equal_ones_are_one_point(ground):
    chosen = recompute_choice(ground, "all layers")
    assert chosen.estimate.step_time_s == estimate(chosen.plan).step_time_s == ground.settings["all layers"].step_time_s
    names = {point["name"] for point in points(ground, chosen)}
    assert "all layers, chosen" in names
    assert "none, as in the file" in names
    assert len(points(ground)) == len(points(ground, chosen))


def test_the_exact_curve_is_never_below_the_greedy_one(ground):
    for point in ground.greedy:
        assert least_seconds(ground.exact, point.saved_bytes).seconds <= point.seconds + 1e-12
    assert ground.greedy[-1].saved_bytes < ground.whole.saved_bytes
    assert ground.operators()["operator"][0] in curves_told(ground)
    assert set(ground.curves()) == {"greedy", "exact"}


def test_the_fine_list_is_that_of_the_guides_and_names_20_operators(ground):
    checks = recompute_choice(ground, "fine list").checks
    assert len(FINE) == len(checks) == 20
    assert all(check.matched for check in checks)


def test_a_pattern_that_names_nothing_is_marked_with_what_was_meant(ground):
    chosen = recompute_choice(ground, OWN, patterns="attention_normi.rcast\nfeed_forward\\.mul\n<img src=x>")
    rows = chosen.to_frame().to_dict("records")
    assert [row["operators"] for row in rows] == [0, 1, 0]
    assert rows[0]["names"] == r"names nothing; meant attention_norm\.rcast?"
    assert rows[2]["pattern"] == "<img src=x>"
    assert "✗ 2 of 3 patterns name no operator" in chosen.told()[0]


def test_the_cast_alone_and_the_missing_reshape_are_noted(ground):
    assert any("memory grows" in note for note in recompute_choice(ground, OWN, patterns=r"ffn_norm\.rcast").told())
    assert any("w2.reshape" in note for note in recompute_choice(ground, "Silu and Mul").told())


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dialect", ["mindformers", "mindspeed-core", "megatron", "perfkit"])
def test_every_choice_is_exported_to_every_dialect(ground, choice, dialect):
    chosen = recompute_choice(ground, choice, patterns=r"feed_forward\.mul", wanted_mib=300.0)
    found = export_text(chosen.plan, dialect)
    assert "cannot be written" not in found.title
    assert found.text


def test_a_file_is_changed_in_place():
    ground = recompute_ground(changed_plan(read_plan(ROUND5), device="Ascend-910B2"))
    found = export_text(recompute_choice(ground, "all layers").plan, "mindformers")
    assert found.language == "diff"
    assert "+  recompute: True" in found.text


def test_what_cannot_be_chosen_says_so(ground):
    with pytest.raises(InputError, match="all operators together free"):
        recompute_choice(ground, "exact for a saving", wanted_mib=5000)
    with pytest.raises(InputError, match="there are Silu and Mul"):
        recompute_choice(ground, "everything")
