"""The roofline of one layer against counts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.core.spec import HardwareSpec, ModelSpec, ParallelPlan, Workload
from perfkit.predict.cost.roofline import layer_matmuls

LLAMA2_7B = ModelSpec(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_key_value_heads=32,
    head_size=128,
    ffn_hidden_size=11008,
    vocab_size=32000,
)
WORK = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8)
DEVICE = HardwareSpec(name="made up", peak_flops_per_s={"bfloat16": 376e12}, memory_bytes=64 * 2**30, memory_bytes_per_s=1.6e12)


def test_the_products_of_a_llama2_7b_layer_sum_to_the_published_layer():
    products = layer_matmuls(LLAMA2_7B, WORK, ParallelPlan(), DEVICE)
    assert products["flops"].sum() == pytest.approx(1932.735e9, rel=1e-6)
    assert products.set_index("part").loc["qkv", "flops"] == 2 * 4096 * 4096 * 3 * 4096


def test_a_large_product_reaches_the_peak_and_a_single_token_does_not():
    training = layer_matmuls(LLAMA2_7B, WORK, ParallelPlan(), DEVICE)
    assert set(training["bound"]) == {"compute"}
    assert (training["attainable_flops_per_s"] == 376e12).all()
    one_token = layer_matmuls(LLAMA2_7B, replace(WORK, seq_length=1, global_batch_size=1), ParallelPlan(), DEVICE)
    assert set(one_token["bound"]) == {"memory"}


def test_fused_attention_reads_queries_keys_and_values_and_writes_outputs_once():
    """32 heads of 128 share 8 of keys and values: 4096 rows of (32 + 8 + 8 + 32) x 128 elements of 2 bytes."""
    grouped = layer_matmuls(replace(LLAMA2_7B, num_key_value_heads=8), WORK, ParallelPlan(), DEVICE).set_index("part")
    assert grouped.loc["attention", "bytes"] == 4096 * (32 + 8 + 8 + 32) * 128 * 2
    assert grouped.loc["attention", "flops"] == 2 * 2 * 4096 * 4096 * 32 * 128


def test_splitting_over_tensor_ranks_divides_the_work_and_lowers_the_intensity():
    whole = layer_matmuls(LLAMA2_7B, WORK, ParallelPlan(), DEVICE)
    split = layer_matmuls(LLAMA2_7B, WORK, ParallelPlan(tensor_parallel_size=8), DEVICE)
    assert split["flops"].sum() == pytest.approx(whole["flops"].sum() / 8)
    assert (split["intensity_flop_per_byte"] <= whole["intensity_flop_per_byte"]).all()


def test_a_mixture_layer_counts_the_active_experts_only():
    mixture = replace(LLAMA2_7B, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=11008)
    dense = layer_matmuls(LLAMA2_7B, WORK, ParallelPlan(), DEVICE).set_index("part")["flops"]
    active = layer_matmuls(mixture, WORK, ParallelPlan(), DEVICE).set_index("part")["flops"]
    assert active["ffn up"] == pytest.approx(2 * dense["ffn up"])


def test_a_dtype_without_a_peak_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="no peak for dtype 'float8'; known are bfloat16"):
        layer_matmuls(LLAMA2_7B, replace(WORK, dtype="float8"), ParallelPlan(), DEVICE)


def test_a_layer_without_a_gate_has_one_product_up():
    """GPT-2 XL's block: 2 x 1600 x 6400 FLOP a token up, as many down."""
    gpt = replace(LLAMA2_7B, hidden_size=1600, num_attention_heads=25, num_key_value_heads=25, head_size=64, gated_ffn=False)
    products = layer_matmuls(replace(gpt, ffn_hidden_size=6400), WORK, ParallelPlan(), DEVICE).set_index("part")["flops"]
    assert products["ffn up"] == products["ffn down"] == 2 * 4096 * 1600 * 6400
