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
