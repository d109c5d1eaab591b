"""FLOPs against the values that follow from the published shapes, and the laws that any count obeys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import active_params
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.flops import forward_flops, matmul_flops, pass_flops, recompute_flops, training_flops
from perfkit.predict.cost.rates import flops_per_token

LLAMA2_7B, LLAMA2_13B = catalog.model("llama2-7b"), catalog.model("llama2-13b")
FINE_LIST = [
    r"feed_forward\.mul",
    r"feed_forward\.w1\.activation",
    r"feed_forward\.w1\.matmul",
    r"feed_forward\.w1\.reshape",
    r"feed_forward\.w2\.matmul",
    r"feed_forward\.w3\.matmul",
    r"attention_norm\.norm",
    r"attention\.wq\.reshape",
    r"attention\.wo\.matmul",
    r"attention\.flash_attention",
]


def test_a_product_is_a_multiplication_and_an_addition_each():
    assert matmul_flops(4096, 4096, 512) == 17_179_869_184


@pytest.mark.parametrize(("name", "gflop_per_token"), [("llama2-7b", 46.0849), ("llama2-13b", 87.1760), ("llama2-70b", 444.4914)])
def test_training_flops_of_a_token(name, gflop_per_token):
    assert training_flops(catalog.model(name), 4096).total / 1e9 == pytest.approx(gflop_per_token, abs=5e-5)


def test_forward_and_training_flops_of_a_sample():
    assert forward_flops(LLAMA2_7B, 4096).total * 4096 / 1e12 == pytest.approx(62.9213, abs=5e-5)
    assert training_flops(LLAMA2_7B, 4096).total * 4096 / 1e12 == pytest.approx(188.7638, abs=5e-5)


@pytest.mark.parametrize(("name", "six_n"), [("llama2-7b", 40.430), ("llama2-13b", 78.095), ("llama2-70b", 413.860)])
def test_six_n_is_the_first_term_only(name, six_n):
    model = catalog.model(name)
    work = training_flops(model, 4096)
    assert 6 * active_params(model).total / 1e9 == pytest.approx(six_n, abs=5e-4)
    assert work.total > 6 * active_params(model).total


def test_the_layer_of_llama2_7b_row_by_row():
    rows = {path: amount * 4096 / 32 / 1e9 for path, amount in forward_flops(LLAMA2_7B, 4096).parts.items()}
    assert rows["layers/qkv"] == pytest.approx(412.317, abs=5e-4)
    assert rows["layers/scores"] == rows["layers/values"] == pytest.approx(137.439, abs=5e-4)
    assert rows["layers/output"] == pytest.approx(137.439, abs=5e-4)
    assert rows["layers/ffn"] == pytest.approx(3 * 369.367, abs=2e-3)


@pytest.mark.parametrize(("name", "layer_gflop"), [("llama2-7b", 1932.735), ("llama2-13b", 2942.053), ("llama2-70b", 7559.142)])
def test_a_layer_as_a_whole(name, layer_gflop):
    model = catalog.model(name)
    assert forward_flops(model, 4096).amount("layers") * 4096 / model.num_layers / 1e9 == pytest.approx(layer_gflop, abs=5e-4)


def test_causal_attention_halves_scores_and_values_and_nothing_else():
    full, causal = forward_flops(LLAMA2_7B, 4096), forward_flops(LLAMA2_7B, 4096, "causal")
    for path, amount in full.parts.items():
        assert causal.parts[path] * (2 if path in ("layers/scores", "layers/values") else 1) == amount


def test_a_longer_sequence_changes_attention_only():
    short, long = forward_flops(LLAMA2_7B, 4096), forward_flops(LLAMA2_7B, 8192)
    assert long.parts["layers/scores"] == 2 * short.parts["layers/scores"]
    assert long.parts["layers/ffn"] == short.parts["layers/ffn"]


def test_leaving_the_head_out_removes_the_head():
    assert "head" not in forward_flops(LLAMA2_7B, 4096, head=False).parts


def test_a_mixture_layer_counts_the_experts_that_a_token_uses():
    parts = forward_flops(catalog.model("mixtral-8x7b"), 4096).parts
    assert parts["layers/experts"] == 2 * 32 * 3 * 4096 * 14336 * 2
    assert parts["layers/router"] == 2 * 32 * 4096 * 8
    assert "layers/ffn" not in parts


def test_latent_attention_uses_its_two_head_sizes():
    parts = forward_flops(catalog.model("deepseek-v2"), 4096).parts
    assert parts["layers/scores"] == 2 * 60 * 4096 * 128 * (128 + 64)
    assert parts["layers/values"] == 2 * 60 * 4096 * 128 * 128


def test_full_recomputation_repeats_the_layers_but_not_the_head():
    again = recompute_flops(LLAMA2_7B, 4096, RecomputePlan(all_layers=True))
    assert again.total == forward_flops(LLAMA2_7B, 4096, head=False).total


def test_counting_every_layer_is_the_same_as_all_layers():
    counted = RecomputePlan(full_layers=((16, 16),))
    assert recompute_flops(LLAMA2_7B, 4096, counted).parts == recompute_flops(LLAMA2_7B, 4096, RecomputePlan(all_layers=True)).parts


def test_recomputing_the_attention_core_is_one_more_forward_of_it():
    again = recompute_flops(LLAMA2_7B, 4096, RecomputePlan(attention_core=True))
    assert set(again.parts) == {"layers/scores", "layers/values"}
    work = training_flops(LLAMA2_7B, 4096)
    assert (work.total + again.total) / work.total == pytest.approx(1.0466, abs=5e-5)


def test_full_recomputation_of_13b_is_a_third_more_model_work_and_a_quarter_of_executed_work():
    work, again = training_flops(LLAMA2_13B, 4096).total, recompute_flops(LLAMA2_13B, 4096, RecomputePlan(all_layers=True)).total
    assert again / work == pytest.approx(0.330, abs=5e-4)
    assert again / (work + again) == pytest.approx(0.248, abs=5e-4)


def test_the_guides_operator_list_repeats_78_percent_of_a_layer():
    plan = RecomputePlan(operators=dict.fromkeys(FINE_LIST, ((20, 20),)))
    share = recompute_flops(LLAMA2_13B, 4096, plan).total / forward_flops(LLAMA2_13B, 4096, head=False).total
    assert share == pytest.approx(0.781, abs=5e-4)


def test_element_wise_operators_repeat_no_matrix_work():
    plan = RecomputePlan(operators={r"feed_forward\.mul": ((20, 20),), r"ffn_norm\.norm": ((20, 20),)})
    assert recompute_flops(LLAMA2_13B, 4096, plan).parts == {}


def test_counts_of_operators_include_the_full_layers():
    plan = RecomputePlan(full_layers=((4, 0),), operators={r"feed_forward\.w1": ((20, 20),)})
    parts = recompute_flops(LLAMA2_13B, 4096, plan).parts
    forward = forward_flops(LLAMA2_13B, 4096).parts
    assert parts["layers/ffn"] == pytest.approx(forward["layers/ffn"] * (4 + 36 / 3) / 40)
    assert parts["layers/qkv"] == pytest.approx(forward["layers/qkv"] * 4 / 40)


def test_a_cell_pattern_and_an_operator_below_it_count_once():
    cell = RecomputePlan(operators={r"feed_forward": ((20, 20),)})
    both = RecomputePlan(operators={r"feed_forward": ((20, 20),), r"feed_forward\.w2\.matmul": ((20, 20),)})
    assert recompute_flops(LLAMA2_13B, 4096, both).parts == recompute_flops(LLAMA2_13B, 4096, cell).parts


def test_a_broken_pattern_matches_nothing():
    plan = RecomputePlan(operators={r"attention_normi.rcast": ((20, 20),), "(": ((20, 20),)})
    assert recompute_flops(LLAMA2_13B, 4096, plan).parts == {}


def test_no_recomputation_is_no_work():
    assert recompute_flops(LLAMA2_7B, 4096).total == 0


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="seq_length = 0 must be positive and attention = 'half'"):
        forward_flops(LLAMA2_7B, 0, "half")


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 60),
    heads=st.integers(1, 64),
    ffn=st.integers(1, 40_000),
    seq_length=st.integers(1, 200_000),
    gated=st.booleans(),
    attention=st.sampled_from(["full", "causal"]),
)
def test_passes_and_parts_sum_to_the_whole(*, layers, heads, ffn, seq_length, gated, attention):
    model = ModelSpec(
        num_layers=layers,
        hidden_size=heads * 64,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_size=64,
        ffn_hidden_size=ffn,
        vocab_size=1000,
        gated_ffn=gated,
    )
    passes = pass_flops(model, seq_length, RecomputePlan(all_layers=True), attention)
    assert passes["forward"].total + passes["backward"].total == training_flops(model, seq_length, attention).total
    assert passes["forward"].total - passes["recompute"].total == pytest.approx(passes["forward"].parts["head"])
    products = active_params(replace(model, bias="none"))
    weights = products.amount("layers/attention") + products.amount("layers/ffn") + products.amount("head/projection")
    core = passes["forward"].amount("layers/scores") + passes["forward"].amount("layers/values")
    assert passes["forward"].total == 2 * weights + core


@pytest.mark.parametrize(("seq_length", "attention"), [(0, "full"), (-1, "causal"), (1, "sliding")])
def test_a_sequence_of_nothing_and_an_unknown_mask_are_each_refused(seq_length, attention):
    with pytest.raises(InputError, match=f"seq_length = {seq_length}"):
        forward_flops(LLAMA2_7B, seq_length, attention)


def test_a_sequence_of_one_token_is_not_refused():
    assert forward_flops(LLAMA2_7B, 1).parts["layers/scores"] == 2 * 32 * 4096


@pytest.mark.parametrize("recompute", [RecomputePlan(), RecomputePlan(all_layers=True), RecomputePlan(attention_core=True)])
@pytest.mark.parametrize("name", ["llama2-70b", "mixtral-8x7b", "deepseek-v2", "deepseek-v3"])
def test_operations_over_columns_are_those_of_the_breakdown(name, recompute):
    """Two derivations: weights, scores and values of the layers by stage, and the leaves of one model."""
    model = catalog.model(name)
    plan = Plan(
        model=model,
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8),
        parallel=ParallelPlan(tensor_parallel_size=4),
        recompute=recompute,
        hardware=catalog.hardware_named("A100-80GB-SXM"),
    )
    once, all_of_it = flops_per_token(costs_of([plan]))
    training, again = training_flops(model, 4096), recompute_flops(model, 4096, recompute)
    assert once[0] == pytest.approx(training.total)
    assert all_of_it[0] - once[0] == pytest.approx(again.total)
