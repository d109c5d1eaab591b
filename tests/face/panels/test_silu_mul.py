"""Page 31 without a browser: four checks on three graphs."""

from __future__ import annotations

import pytest

from perfkit.face.panels import open_panel, silu_mul

PASSED = {
    "silu_mul_without.ir": [False, False, False, False],
    "silu_mul_not_in_effect.ir": [True, False, False, False],
    "silu_mul_in_effect.ir": [True, True, True, True],
}


@pytest.fixture(scope="module")
def result():
    return silu_mul.compute(silu_mul.State())


def test_each_graph_passes_the_checks_that_it_should(result):
    assert {name: [check.passed for check in checks] for name, checks in result.checks.items()} == PASSED


def test_both_operators_of_two_layers_hold_16_kib(result):
    assert result.wanted == 2 * (4096 + 4096)
    assert [result.analyses[name].recompute.saved_bytes for name in PASSED] == [0, 8192, 16_384]


@pytest.mark.parametrize("variant", PASSED)
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_every_step_of_every_graph_is_shown(variant, step):
    answer = silu_mul.view(silu_mul.compute(silu_mul.State(variant=variant, step=step)))
    assert answer.text.startswith("✓" if PASSED[variant][step - 1] else "✗")
    assert "dataflow" in answer.charts
    assert len(answer.tables["operators"].frame) == 4


def test_the_last_step_names_the_pattern_to_add():
    answer = silu_mul.view(silu_mul.compute(silu_mul.State(step=4)))
    assert r"add feed_forward\.w2\.reshape" in answer.text


def test_the_third_step_names_the_reshape_that_backward_reads():
    answer = silu_mul.view(silu_mul.compute(silu_mul.State(step=3)))
    assert "8.00 KiB of 16.0 KiB saved" in answer.text
    assert "Reshape %56" in answer.text


def test_the_whole_panel_opens():
    assert open_panel(silu_mul.PANEL).wait().text
