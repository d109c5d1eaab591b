"""Recomputation in effect, its reasons, and the activations that stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.explain.graph.activations import by_operator
from perfkit.explain.graph.parse import read_file
from perfkit.explain.graph.recompute import block_of, find_recompute, pattern

IR = Path(__file__).resolve().parents[2] / "data" / "ir"
CASES = [
    (answers.parent / name, answer)
    for answers in sorted(IR.glob("**/answers.json"))
    for name, answer in json.loads(answers.read_text()).items()
]
STATED = ("node", "op", "scope", "tag", "recompute_id", "in_effect", "duplicate")


def report(name):
    return find_recompute(read_file(IR / name))


@pytest.mark.parametrize(("path", "answer"), CASES, ids=lambda value: value.parent.name if isinstance(value, Path) else "")
def test_every_tag_is_in_effect_or_not_as_stated(path, answer):
    found = [entry.to_json() for entry in find_recompute(read_file(path)).operators]
    assert [{key: entry[key] for key in STATED} for entry in found] == answer["recompute"]


@pytest.mark.parametrize(("path", "answer"), CASES, ids=lambda value: value.parent.name if isinstance(value, Path) else "")
def test_kept_activations_have_the_stated_bytes_by_operator(path, answer):
    file = read_file(path)
    found = find_recompute(file)
    assert found.kept_bytes == answer.get("kept_activation_bytes")
    assert (None if found.kept is None else by_operator(file, found.kept)) == answer.get("kept_activation_by_op")


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("tp4_silu_mul_recompute_2d", 16_384),
        ("tp4_silu_mul_recompute_3d", 8_192),
        ("tp4_recompute_layer0", 102_656),
        ("tp4_no_recompute", 0),
    ],
)
def test_undoing_the_copies_gives_what_is_kept_without_recomputation(name, saved):
    found = report(f"{name}/21_validate_0082.ir")
    assert found.saved_bytes == saved
    assert found.kept_bytes + saved == report("tp4_no_recompute/21_validate_0082.ir").kept_bytes


def test_a_mul_behind_which_a_reshape_is_kept_names_the_pattern_to_add():
    lost = [entry for entry in report("tp4_silu_mul_recompute_3d/21_validate_0082.ir").operators if not entry.in_effect]
    assert [entry.shown.op for entry in lost] == ["Mul", "Mul"]
    assert {entry.fix for entry in lost} == {r"feed_forward\.w2\.reshape"}
    assert all("Reshape" in entry.why for entry in lost)


def test_the_last_product_of_a_recomputed_layer_is_harmless():
    lost = [entry for entry in report("tp4_recompute_layer0/21_validate_0082.ir").operators if not entry.in_effect]
    assert [entry.shown.op for entry in lost] == ["MatMul", "AllReduce"]
    assert {entry.why for entry in lost} == {"nothing in backward needs its result, so there is nothing to save"}


def test_a_recomputed_layer_repeats_its_communication():
    found = report("tp4_recompute_layer0/21_validate_0082.ir")
    assert (found.num_copies, found.repeated_communication_bytes) == (40, 8_192)


@pytest.mark.parametrize("name", ["old_formats/v2_1_recompute.ir", "guide_excerpts/guide_cast_duplicated.txt"])
def test_a_copy_without_its_original_is_in_effect(name):
    (only,) = report(name).operators
    assert only.in_effect
    assert only.node is None
    assert only.why == "copy seen, original outside the file"


def test_each_copy_has_exactly_one_partner_with_equal_results():
    for path, _ in CASES:
        pairs = [entry for entry in find_recompute(read_file(path)).operators if entry.in_effect]
        assert all(entry.node.out_types == entry.copy.out_types for entry in pairs)
        assert len({entry.copy.id for entry in pairs}) == len(pairs)


FULL, HALF = "<Tensor[Float32], (8)>", "<Tensor[Float16], (8)>"


def made(tmp_path, *operators):
    """The report on operators given as (text, type of the argument, type of the result, scope)."""
    lines = []
    for text, given, result, scope in operators:
        lines += [f"  {text}", f"      : ({given}) -> ({result})", f"      # Fullname with scope: ({scope})"]
    path = tmp_path / "made.ir"
    path.write_text("\n".join(lines))
    return find_recompute(read_file(path))


def test_tags_of_a_file_without_backward_are_not_judged(tmp_path):
    found = made(tmp_path, ("%0(a) = SiLU(%para1_x) cnode_attrs: {recompute: Bool(1)}", HALF, HALF, "Default/network-N/SiLU-op0"))
    (only,) = found.operators
    assert not only.in_effect
    assert only.why == "the file has no backward pass; open a later file, *_validate_*.ir"


def test_a_recomputed_cast_that_keeps_its_larger_input_is_told(tmp_path):
    tag, copy = "recompute: Bool(1), recompute_id: I64(1)", "duplicated: Bool(1), recompute_id: I64(1)"
    found = made(
        tmp_path,
        ("%0(a) = Mul(%para1_x, %para1_x)", FULL, FULL, "Default/network-N/Mul-op0"),
        (f"%1(b) = Cast(%0) cnode_attrs: {{{tag}}}", FULL, HALF, "Default/network-N/Cast-op0"),
        (f"%2(c) = Cast(%0) cnode_attrs: {{{copy}}}", FULL, HALF, "Default/network-N/Cast-op1"),
        ("%3(d) = MatMul(%2, %2)", HALF, HALF, "Gradients/Default/network-N/MatMul-op0"),
    )
    (only,) = found.operators
    assert only.why == "in effect, but it keeps its input (32 bytes) in place of its result (16 bytes)"
    assert found.saved_bytes == -16


def test_a_file_from_before_the_recompute_pass_is_not_blamed_on_the_configuration(tmp_path):
    found = made(
        tmp_path,
        ("%0(a) = SiLU(%para1_x) cnode_attrs: {recompute: Bool(1)}", HALF, HALF, "Default/network-N/SiLU-op0"),
        ("%1(b) = MatMul(%0, %0)", HALF, HALF, "Gradients/Default/network-N/MatMul-op0"),
    )
    assert "written before the recompute pass" in found.operators[0].why


def test_patterns_and_blocks_are_those_of_a_configuration():
    file = read_file(IR / "tp4_silu_mul_recompute_3d/21_validate_0082.ir")
    nodes = file.subgraphs[0].nodes
    assert [(pattern(nodes[place]), block_of(nodes[place])) for place in (50, 55, 56)] == [
        (r"feed_forward\.w1\.activation\.silu", "layers/0"),
        (r"feed_forward\.mul", "layers/0"),
        (r"feed_forward\.w2\.reshape", "layers/0"),
    ]
