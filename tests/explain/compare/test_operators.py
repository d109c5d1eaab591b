"""Operators of two devices: neutral names, ratios, shares, what is missing, what is fused."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.compare._operator_names import operator_of
from perfkit.explain.compare.operators import compare_operators
from perfkit.record.load import load
from tests.explain.compare.test_compare import table


def run_of(calls, *, steps=4, name="run", noise=0) -> Run:
    """A run with these kernels in every step: (name, type, duration in ns, shapes)."""
    rows, at = [], 0
    for step in range(steps):
        for kernel, type_, duration, shapes in calls:
            rows.append(
                {
                    "rank": 0, "step": step, "name": kernel, "type": type_, "kind": "computing", "start_ns": at,
                    "duration_ns": duration + noise * (step % 3), "input_shapes": shapes,
                }
            )  # fmt: skip
            at += 10 * duration
    return Run(name=name, kind="measured", format="test", tables={"kernels": table("kernels", rows)})


@pytest.mark.parametrize(
    ("name", "type_", "operator", "operator_class"),
    [
        ("aten::mm", None, "MatMul", "MatMul"),
        ("Default/network-layerMatMulV2_MatMulV2_4", "MatMulV2", "MatMul", "MatMul"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", None, "MatMul", "MatMul"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x64x32", None, "MatMul", "MatMul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", None, "MatMul", "MatMul"),
        ("BatchMatMulV2_1", "BatchMatMulV2", "BatchMatMul", "BatchMatMul"),
        ("FlashAttentionScore_5", "FlashAttentionScore", "FlashAttention", "FlashAttention"),
        ("FlashAttentionScoreGrad_5", "FlashAttentionScoreGrad", "FlashAttention backward", "FlashAttention"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", None, "FlashAttention", "FlashAttention"),
        ("RmsNorm_1", "RmsNorm", "RmsNorm", "Norm"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>", None, "LayerNorm", "Norm"),
        ("SwiGlu_2", "SwiGlu", "SwiGLU", "SwiGLU"),
        ("RotaryPositionEmbedding_2", "RotaryPositionEmbedding", "RotaryEmbedding", "RoPE"),
        ("aclnnInplaceCopy_TensorMoveAiCore_TensorMove", "TensorMove", "Copy", "Copy"),
        ("trans_TransData_0", "TransData", "TransData", "Cast/Transpose"),
        ("Cast_7", "Cast", "Cast", "Cast/Transpose"),
        ("ApplyAdamW_3", "ApplyAdamW", "Optimizer", "Optimizer"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            None,
            "Add",
            "Elementwise",
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::BinaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float> >, at::native::memory::LoadWithCast<2>>",
            None,
            "Mul",
            "Elementwise",
        ),
        ("<img src=x onerror=alert(1)>", None, "<img src=x onerror=alert(1)>", "Other"),
    ],
)
def test_names_of_npu_and_gpu_become_one_operator(name, type_, operator, operator_class):
    assert operator_of(name, type_) == (operator, operator_class)


def test_an_operator_slower_than_its_share_is_a_gap_whatever_the_speed_of_the_device():
    gpu = run_of(
        [("aten::mm", None, 8_000, None), ("aten::softmax", None, 1_000, None), ("aten::add", None, 1_000, None)], name="gpu"
    )
    npu = run_of([("MatMulV2", "MatMulV2", 16_000, None), ("SoftmaxV2", "SoftmaxV2", 8_000, None), ("Add", "Add", 2_000, None)])
    rows = compare_operators(gpu, npu).operators.set_index("operator")
    assert rows["ratio"].to_dict() == {"MatMul": 2, "Softmax": 8, "Add": 2}
    assert rows["slower_than_its_share"].to_dict() == {"MatMul": False, "Softmax": True, "Add": False}
    assert rows.loc["Softmax", "share_ratio"] == pytest.approx((8 / 26) / (1 / 10))


def test_a_run_compared_with_itself_has_ratio_one_and_nothing_missing():
    run = load(data_folder() / "traces" / "torch_npu_2rank")
    found = compare_operators(run, run)
    assert (found.operators["ratio"] == 1).all()
    assert (found.operators["share_ratio"] == 1).all()
    assert not found.operators["slower_than_its_share"].any()
    assert found.missing.empty
    assert found.extra.empty
    assert found.fusions.empty


def test_totals_are_those_of_the_kernels_and_shares_sum_to_one():
    run = load(data_folder() / "traces" / "torch_npu_2rank")
    found = compare_operators(run, load(data_folder() / "traces" / "kineto_resnet"))
    kernels = run.frame("kernels")
    total = kernels.loc[kernels["kind"] == "computing", "duration_ns"].sum() / 2
    assert found.classes["total_a_ns"].sum() == pytest.approx(total)
    assert found.classes["a_share"].sum() == pytest.approx(1)
    assert found.classes["b_share"].sum() == pytest.approx(1)
    json.dumps(found.to_json(), allow_nan=False)


def test_swapping_the_sides_inverts_ratios_and_swaps_missing_and_extra():
    a = run_of([("aten::mm", None, 8_000, None), ("aten::gelu", None, 500, None)])
    b = run_of([("MatMulV2", "MatMulV2", 4_000, None), ("Cast", "Cast", 700, None)])
    there, back = compare_operators(a, b), compare_operators(b, a)
    assert there.operators["ratio"].iloc[0] == pytest.approx(1 / back.operators["ratio"].iloc[0])
    assert there.missing["operator"].tolist() == back.extra["operator"].tolist() == ["GELU"]
    assert there.extra["operator"].tolist() == back.missing["operator"].tolist() == ["Cast"]


def test_one_fused_operator_against_several_is_a_fusion_and_no_slowness():
    fused = run_of([("SwiGlu", "SwiGlu", 3_000, None), ("MatMulV2", "MatMulV2", 9_000, None)])
    apart = run_of([("aten::silu", None, 2_500, None), ("aten::mul", None, 2_500, None), ("aten::mm", None, 9_000, None)])
    found = compare_operators(fused, apart).fusions
    assert len(found) == 1
    row = found.iloc[0]
    assert (row["fused"], row["fused_in"], row["fused_ns"], row["parts_ns"]) == ("SwiGLU", "a", 3_000, 5_000)
    assert compare_operators(apart, fused).fusions.iloc[0]["fused_in"] == "b"


def test_of_a_fused_operator_that_both_have_the_calls_that_one_has_more_are_counted():
    swiglu, silu, mul = ("SwiGlu", "SwiGlu", 1_000, None), ("aten::silu", None, 700, None), ("aten::mul", None, 800, None)
    row = compare_operators(run_of([swiglu] * 3), run_of([swiglu, silu, silu, mul, mul])).fusions.iloc[0]
    assert (row["calls"], row["fused_ns"], row["parts_ns"]) == (2, 2_000, 3_000)


def test_equal_shapes_are_matched_one_by_one_whatever_their_spelling():
    small, large = "[[64, 64], [64, 64]]", "[[4096, 4096], [4096, 64]]"
    a = run_of([("aten::mm", None, 100, small), ("aten::mm", None, 1_000, large)])
    b = run_of([("MatMulV2", "MatMulV2", 100, "64,64;64,64"), ("MatMulV2", "MatMulV2", 5_000, "4096,4096;4096,64")])
    rows = compare_operators(a, b).operators.set_index("shape")
    assert rows["ratio"].to_dict() == {"64,64;64,64": 1, "4096,4096;4096,64": 5}


def test_without_shapes_the_nth_call_is_matched_with_the_nth():
    a = run_of([("aten::mm", None, 100, None), ("aten::mm", None, 1_000, None)])
    b = run_of([("MatMulV2", "MatMulV2", 200, None), ("MatMulV2", "MatMulV2", 1_000, None)])
    assert compare_operators(a, b).calls["ratio"].tolist() == [2, 1]


def test_significance_needs_steps_and_a_change_beyond_their_noise():
    slow = [("aten::mm", None, 1_100, None)]
    base = run_of([("aten::mm", None, 1_000, None)], noise=1, steps=6)
    assert compare_operators(base, run_of(slow, noise=1, steps=6)).operators["beyond_noise"].iloc[0] is True
    assert compare_operators(base, base).operators["beyond_noise"].iloc[0] is False
    assert compare_operators(base, run_of(slow, steps=2)).operators["beyond_noise"].iloc[0] is None


def test_names_that_nothing_explains_lower_the_confidence():
    odd = run_of([("zzz", None, 1_000, None)])
    assert any("low confidence" in note for note in compare_operators(odd, odd).notes)


def test_a_run_without_kernels_is_not_measured():
    bare = Run(name="bare", kind="measured", format="test", tables={"kernels": pd.DataFrame(table("kernels", []))})
    with pytest.raises(NotMeasuredError, match="kernels of bare"):
        compare_operators(bare, bare)


def test_shapes_that_both_sides_call_are_compared_one_by_one_and_the_rest_of_the_operator_together():
    a = run_of([("mm", "MatMul", 100, "8,8;8,8"), ("mm", "MatMul", 400, "9,9;9,9"), ("mm", "MatMul", 7, None)])
    b = run_of([("mm", "MatMul", 200, "[[8, 8], [8, 8]]"), ("mm", "MatMul", 14, "5,5;5,5")])
    rows = compare_operators(a, b).operators.set_index("shape")
    assert rows.loc["8,8;8,8", ["count_a", "count_b", "ratio"]].tolist() == [1, 1, 2.0]
    assert rows.loc["", ["count_a", "count_b", "total_a_ns", "total_b_ns"]].tolist() == [2, 1, 407, 14]


def test_kernels_of_a_gpu_have_the_shapes_of_the_operators_that_launched_them():
    run = load(data_folder() / "traces" / "kineto_resnet", cache=False)
    rows = compare_operators(run, run).operators
    convolutions = rows[(rows["operator"] == "Conv") & (rows["shape"] != "")]
    assert "10,3,224,224;64,3,7,7" in set(convolutions["shape"])
    assert (rows["ratio"] == 1).all()
    launches = run.frame("launches")
    asked = launches[(launches["operator"] == "aten::mm") & launches["name"].astype(str).str.startswith("Cijk")]
    products = rows[rows["operator"].isin(["MatMul", "MatMul backward"]) & rows["shape"].isin(["10,1000;1000,512"])]
    found = asked[asked["input_shapes"] == "10,1000;1000,512"]
    assert products["total_a_ns"].sum() == pytest.approx(found["duration_ns"].sum() / run.frame("steps")["step"].nunique())
