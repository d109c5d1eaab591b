"""Bytes sent, against volumes worked out by hand and the laws that ring algorithms obey."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.communication import all_reduce_bytes, bytes_sent, gather_bytes

LLAMA = catalog.model("llama2-7b")
WORK = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8)


def test_one_all_reduce_of_a_7b_layer_over_eight_ranks():
    payload = 4096 * 4096 * 2
    assert payload == 33_554_432
    assert all_reduce_bytes(payload, 8) == 58_720_256


def test_tensor_parallel_reduces_four_times_a_layer_and_micro_batch():
    sent = bytes_sent(LLAMA, WORK, ParallelPlan(tensor_parallel_size=8))
    assert sent.parts == {"tp": 8 * 32 * 4 * 58_720_256}


def test_full_recomputation_repeats_the_forward_reductions():
    plain = bytes_sent(LLAMA, WORK, ParallelPlan(tensor_parallel_size=8))
    again = bytes_sent(LLAMA, WORK, ParallelPlan(tensor_parallel_size=8), RecomputePlan(all_layers=True))
    assert again.total / plain.total == pytest.approx(1.5)


def test_sequence_parallel_sends_as_much_as_tensor_parallel_alone():
    plan = ParallelPlan(tensor_parallel_size=8)
    assert bytes_sent(LLAMA, WORK, replace(plan, sequence_parallel=True)).parts == bytes_sent(LLAMA, WORK, plan).parts


def test_chunks_multiply_what_crosses_stage_boundaries():
    plan = ParallelPlan(pipeline_parallel_size=4)
    one = bytes_sent(LLAMA, WORK, plan).parts["pp"]
    assert one == 8 * 2 * 33_554_432
    assert bytes_sent(LLAMA, WORK, replace(plan, virtual_pipeline_parallel_size=2)).parts["pp"] == 2 * one


def test_sharded_parameters_cost_one_and_a_half_reductions():
    plan = ParallelPlan(data_parallel_size=8, optimizer_shard_size=8)
    whole = bytes_sent(LLAMA, WORK, plan).parts["dp"]
    assert bytes_sent(LLAMA, WORK, replace(plan, optimizer_shard_level=3)).parts["dp"] == pytest.approx(1.5 * whole, rel=1e-6)


def test_ring_attention_passes_keys_and_values_around():
    sent = bytes_sent(LLAMA, WORK, ParallelPlan(context_parallel_size=2))
    assert sent.parts["cp"] == 8 * 32 * 3 * 2 * (4096 // 2) * 4096 * 2


def test_one_device_sends_nothing():
    assert bytes_sent(LLAMA, WORK, ParallelPlan()).parts == {}


@given(st.integers(1, 1024), st.floats(0, 1e12))
def test_an_all_reduce_is_a_scatter_and_a_gather(ranks, payload):
    assert all_reduce_bytes(payload, ranks) == 2 * gather_bytes(payload, ranks)
    assert gather_bytes(payload, ranks) <= payload


def test_no_ranks_are_refused():
    with pytest.raises(InputError, match="ranks = 0"):
        gather_bytes(1.0, 0)


def test_gradients_of_experts_are_reduced_among_those_that_hold_the_same_ones():
    """Mixtral 8x7B on 8 ranks, e = 4: 32 layers of 8 experts of 3 h f, of which a rank holds 2 and shares them with one other."""
    mixtral = catalog.model("mixtral-8x7b")
    sent = bytes_sent(mixtral, replace(WORK, micro_batch_size=1), ParallelPlan(data_parallel_size=8, expert_parallel_size=4))
    attention, expert = 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14336
    assert sent.parts["dp"] == pytest.approx(2 * 2 * 32 * (attention * 7 / 8 + 2 * expert * 1 / 2))


def test_dense_layers_before_those_of_experts_are_reduced_by_all():
    """One of four layers is dense (2 h f); three have 4 experts and a shared one of half the width, e = 2 of 4 ranks."""
    model = replace(
        LLAMA,
        num_layers=4,
        gated_ffn=False,
        num_experts=4,
        num_experts_per_token=1,
        expert_ffn_hidden_size=1024,
        num_dense_layers=1,
        num_shared_experts=1,
        shared_expert_ffn_hidden_size=512,
    )
    sent = bytes_sent(model, WORK, ParallelPlan(data_parallel_size=4, expert_parallel_size=2))
    h = 4096
    by_all = 4 * 4 * h * h + 2 * h * 11008 + 3 * 2 * h * 512
    by_two = 3 * 2 * 2 * h * 1024
    assert sent.parts["dp"] == pytest.approx(2 * 2 * (by_all * 3 / 4 + by_two * 1 / 2))
    there_and_back_twice = 4 * (4096 * h * 2 * 1 / 2)
    assert sent.parts["ep"] == pytest.approx(2 * 3 * there_and_back_twice)


def test_hybrid_and_ulysses_swap_queries_keys_values_and_outputs_of_their_heads():
    """c = 4 of 32 heads with 8 for keys and values: 3/4 of 2 (32 + 8) x 128 values of a quarter of the tokens, in 2 bytes."""
    model = replace(LLAMA, num_key_value_heads=8)
    sent = bytes_sent(
        model, WORK, ParallelPlan(context_parallel_size=4, context_parallel_algorithm="ulysses", tensor_parallel_size=2)
    )
    assert sent.parts["cp"] == pytest.approx(8 * 32 * 3 * 3 / 4 * 2 * 40 * 128 / 2 * 1024 * 2)


def test_less_than_nothing_is_not_sent():
    with pytest.raises(InputError, match="payload_bytes = -1"):
        gather_bytes(-1, 2)
