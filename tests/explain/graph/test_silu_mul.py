"""The case of SiLU and Mul: four checks on three graphs, and on graphs that are none of the three."""

from __future__ import annotations

import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain.graph import silu_mul

PASSED = {
    "silu_mul_without.ir": [False, False, False, False],
    "silu_mul_not_in_effect.ir": [True, False, False, False],
    "silu_mul_in_effect.ir": [True, True, True, True],
}


@pytest.fixture(scope="module")
def pairs():
    return {name: silu_mul.read_pair(data_folder() / "ir" / name) for name in PASSED}


def test_each_graph_passes_the_checks_that_it_should(pairs):
    assert {name: [check.passed for check in pair.checks()] for name, pair in pairs.items()} == PASSED
    for name, pair in pairs.items():
        assert [check.told()[0] for check in pair.checks()] == ["✓" if passed else "✗" for passed in PASSED[name]]
        assert len(pair.to_frame()) == 4
    table = silu_mul.check_table(pairs)
    assert table.columns.tolist() == ["step", *PASSED]
    assert [[cell.startswith("✓") for cell in table[name]] for name in PASSED] == list(PASSED.values())


def test_both_operators_of_two_layers_hold_16_kib_in_every_graph(pairs):
    assert [pair.wanted_bytes for pair in pairs.values()] == [2 * (4096 + 4096)] * 3
    assert [pair.analysis.recompute.saved_bytes for pair in pairs.values()] == [0, 8192, 16_384]
    for pair in pairs.values():
        assert pair.to_frame()["result_bytes"].sum() == pair.wanted_bytes


def test_what_backward_reads_and_the_pattern_to_add_are_named(pairs):
    third, last = pairs["silu_mul_not_in_effect.ir"].checks()[2:]
    assert "8.00 KiB of 16.0 KiB saved" in third.told()
    assert "Reshape %56" in third.told()
    assert r"Add feed_forward\.w2\.reshape" in last.told()


def test_the_picture_holds_the_operator_and_its_copies(pairs):
    for pair in pairs.values():
        title, drawn, center = pair.picture()
        nodes = [placed.node for placed in drawn.nodes]
        assert center in nodes
        assert center.op in title
        assert sum(node.is_copy for node in nodes) >= sum(entry.in_effect for entry in pair.entries) / 2


def test_a_graph_without_the_two_is_not_measured():
    with pytest.raises(NotMeasuredError, match="SiLU and the Mul behind it"):
        silu_mul.read_pair(data_folder() / "ir" / "control_flow.ir")
