"""Roofline: FLOPs and bytes from shapes, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import format_ratio
from perfkit.explain.roofline import cost_of, operator_costs, roof_told, roofline, under_the_roof
from perfkit.record.format import Sink
from perfkit.record.load import load

DATA = Path(__file__).parents[1] / "data" / "traces"
M, K, N = 4096, 1024, 2816


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::mm", f"{M},{K};{K},{N}"),
        ("MatMulV2", f"{M},{K};{N},{K}"),
        ("aten::addmm", f"{N};{M},{K};{K},{N};;"),
        ("aten::linear", f"2,{M // 2},{K};{N},{K};{N}"),
    ],
)
def test_a_product_counts_two_flops_a_multiplication_in_any_layout(operator: str, shapes: str):
    cost = cost_of(operator, shapes, ";".join(["DT_BF16"] * 3))
    assert cost is not None
    assert (cost.kind, cost.flops) == ("matmul", 2.0 * M * K * N)


def test_bytes_of_a_product_are_both_inputs_and_the_output():
    cost = cost_of("aten::mm", f"{M},{K};{K},{N}", "c10::BFloat16;c10::BFloat16")
    assert cost is not None
    assert cost.num_bytes == 2 * (M * K + K * N + M * N)


def test_batched_products_multiply():
    cost = cost_of("aten::bmm", "8,128,64;8,64,256", "float;float")
    assert cost is not None
    assert cost.flops == 2.0 * 8 * 128 * 64 * 256


def test_attention_counts_four_flops_a_query_and_key_and_its_backward_more():
    shapes, types = "2,1024,16,64;2,1024,16,64;2,1024,16,64", "Half;Half;Half"
    forward = cost_of("aten::_flash_attention_forward", shapes, types)
    backward = cost_of("FlashAttentionScoreGrad", shapes, types)
    assert forward is not None
    assert backward is not None
    assert forward.flops == 4.0 * 2 * 16 * 1024 * 1024 * 64
    assert backward.flops == 2.5 * forward.flops


def test_elementwise_operators_count_their_elements_and_move_inputs_and_output():
    cost = cost_of("aten::mul", "128,256;256", "float;float")
    assert cost is not None
    assert (cost.flops, cost.num_bytes) == (128 * 256, 4 * (2 * 128 * 256 + 256))


@pytest.mark.parametrize(
    ("operator", "shapes", "dtypes"),
    [
        ("aten::native_layer_norm", "4,4;4", "float;float"),
        ("aten::mm", None, None),
        ("aten::mm", "4,4", "float"),
        ("aten::mm", "4,4;5,6", "float;float"),
        ("aten::mm", "<img src=x>;4,4", "float;float"),
        ("aten::mm", "4,4;4,4", "mystery;mystery"),
        ("FlashAttentionScore", "4096,4096;4096,4096", "DT_BF16;DT_BF16"),
    ],
)
def test_what_the_shapes_do_not_tell_is_none(operator: str, shapes: str | None, dtypes: str | None):
    assert cost_of(operator, shapes, dtypes) is None


def test_the_roof_is_memory_below_the_ridge_and_compute_above():
    sink = Sink()
    sink.add(
        "kernels",
        rank=0,
        name=["a", "b"],
        type=["MatMulV2", "Add"],
        kind="computing",
        duration_ns=[1_000_000, 1000],
        input_shapes=[f"{M},{K};{K},{N}", "1024;1024"],
        input_dtypes=["DT_BF16;DT_BF16", "FLOAT;FLOAT"],
    )
    run = Run(name="made", kind="measured", format="test", tables=sink.tables())
    table = roofline(operator_costs(run, rank=0), peak_flops_per_s=100e12, memory_bytes_per_s=1e12)
    assert table["bound"].tolist() == ["compute", "memory"]
    assert table["flops_per_s"].iloc[0] == pytest.approx(2.0 * M * K * N / 1e-3)
    assert table["efficiency_ratio"].iloc[0] == pytest.approx(2.0 * M * K * N / 1e-3 / 100e12)
    assert table["efficiency_ratio"].iloc[1] == pytest.approx(3 * 4096 / 1e-6 / 1e12)


def test_what_was_recorded_without_shapes_has_no_flops():
    run = load(DATA / "hta" / "nccl_parser_config", cache=False)
    assert operator_costs(run, rank=0)["flops"].isna().all()


def test_what_is_told_of_the_roof_stands_in_the_table_beside_it():
    device = catalog.hardware()["Ascend 376"]
    beneath = under_the_roof(operator_costs(load(data_folder() / "traces" / "torch_npu_2rank"), rank=1), device)
    assert (beneath["total_ns"].diff().dropna() <= 0).all()
    first, above, below = roof_told(beneath, "Ascend 376")
    assert str(beneath["operator"].iloc[0]) in first
    assert format_ratio(beneath["efficiency_ratio"].iloc[0]) in first
    num = (beneath["flops_per_s"] > beneath["roof_flops_per_s"]).sum()
    assert above.startswith(f"{num} of {len(beneath)} operators, each with its shapes, lie above it")
    assert roof_told(beneath.iloc[:0], "x") == ["No shapes were recorded, so FLOPs and the roofline are not measured."]
    num = (beneath["efficiency_ratio"] < 0.01).sum()
    assert below == f"Not drawn, as below a hundredth of the roof: {num} of {len(beneath)} operators, each with its shapes."
    assert len(roof_told(beneath[beneath["efficiency_ratio"].between(0.01, 1)], "x")) == 1
