"""Specs refuse what cannot be, with all problems at once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec import HardwareSpec, Link, OptimizerSpec, ParallelPlan, Plan, RecomputePlan, Workload

MODEL = catalog.model("llama2-7b")
WORK = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=256)


def message(make) -> str:
    with pytest.raises(InputError) as error:
        make()
    return str(error.value)


def test_every_problem_of_a_model_is_named_with_its_numbers():
    assert message(lambda: replace(MODEL, name="", num_layers=0, vocab_size=-1, num_experts=-2)) == (
        "ModelSpec: 3 problems\n"
        "  - num_layers = 0 must be positive\n"
        "  - vocab_size = -1 must be positive\n"
        "  - num_experts = -2 must not be negative"
    )


@pytest.mark.parametrize("value", ["two", 1.5, math.nan, None, True, [1]], ids=repr)
def test_a_count_is_a_whole_number(value):
    assert "num_layers" in message(lambda: replace(MODEL, num_layers=value))


def test_whole_numbers_of_numpy_are_whole_numbers():
    assert replace(MODEL, num_layers=np.int64(3)).num_layers == 3


def test_heads_must_be_a_multiple_of_key_value_heads():
    assert "num_attention_heads = 32 is not a multiple of num_key_value_heads = 5" in message(
        lambda: replace(MODEL, num_key_value_heads=5)
    )


def test_experts_need_their_sizes():
    text = message(lambda: replace(MODEL, num_experts=8, num_dense_layers=99))
    for expected in ("num_experts_per_token = 0", "expert_ffn_hidden_size = 0", "num_dense_layers = 99 is more than num_layers"):
        assert expected in text
    assert "more than num_experts = 2" in message(
        lambda: replace(MODEL, num_experts=2, num_experts_per_token=3, expert_ffn_hidden_size=8)
    )


def test_latent_attention_needs_its_head_sizes():
    text = message(lambda: replace(MODEL, kv_lora_rank=512))
    assert "nope_head_size = 0" in text
    assert "value_head_size = 0" in text


def test_unknown_words_are_answered_with_the_known_ones():
    assert "norm = 'batch' must be one of rmsnorm, layernorm, layernorm_no_bias" in message(lambda: replace(MODEL, norm="batch"))
    assert "must be one of bfloat16" in message(lambda: replace(WORK, dtype="int4"))
    assert "gradient_dtype" in message(lambda: OptimizerSpec(gradient_dtype="int8"))


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "fast"])
def test_a_rate_is_a_finite_positive_number(value):
    text = message(
        lambda: HardwareSpec(
            name="d",
            peak_flops_per_s={"bfloat16": value},
            memory_bytes=1,
            memory_bytes_per_s=value,
            links={"intra_node": Link(name="x", bytes_per_s=value)},
        )
    )
    assert text.count(str(value)) == 3


def test_an_unknown_dtype_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match="no peak for dtype 'float8'; known are bfloat16, float16"):
        catalog.hardware_named("Ascend 376").peak("float8")


def test_layers_per_stage_must_have_the_shape_of_the_pipeline():
    text = message(lambda: ParallelPlan(pipeline_parallel_size=2, layers_per_stage=((1, 2, -3),)))
    assert "need 1 rows of 2" in text
    assert "negative number of layers" in text


def test_recompute_counts_are_not_negative():
    assert "full_layers" in message(lambda: RecomputePlan(full_layers=((-1, 0),)))
    assert RecomputePlan(full_layers=((30, 30),)).num_full_layers(40) == 40


def test_a_plan_names_every_contradiction_between_its_parts():
    text = message(
        lambda: Plan(
            model=replace(MODEL, num_experts=6, num_experts_per_token=2, expert_ffn_hidden_size=8),
            workload=replace(WORK, global_batch_size=250, micro_batch_size=2),
            parallel=ParallelPlan(
                data_parallel_size=4,
                tensor_parallel_size=5,
                pipeline_parallel_size=2,
                expert_parallel_size=4,
                layers_per_stage=((20, 20),),
            ),
        )
    )
    for expected in (
        "31.25 micro batches",
        "places 40 layers, the model has 32",
        "tensor_parallel_size = 5",
        "expert_parallel_size = 4",
    ):
        assert expected in text


def test_a_plan_counts_devices_micro_batches_and_tokens():
    plan = Plan(model=MODEL, workload=WORK, parallel=ParallelPlan(data_parallel_size=4, pipeline_parallel_size=2))
    assert (plan.num_devices, plan.num_micro_batches, plan.tokens_per_step) == (8, 64, 256 * 4096)


def test_an_impossible_plan_names_every_reason_with_the_nearest_possible_sizes():
    experts = replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=128)
    text = message(
        lambda: Plan(
            model=experts,
            workload=replace(WORK, global_batch_size=250),
            parallel=ParallelPlan(
                data_parallel_size=16,
                tensor_parallel_size=5,
                pipeline_parallel_size=16,
                virtual_pipeline_parallel_size=3,
                expert_parallel_size=3,
            ),
        )
    )
    assert "Plan: 5 problems" in text
    for expected in (
        "15.625 micro batches; nearest is 240 or 256",
        "num_attention_heads = 32 is not divisible by tensor_parallel_size = 5; nearest is 4 or 8",
        "stages x chunks can be 32 at most",
        "num_experts = 8 is not divisible by expert_parallel_size = 3; nearest is 2 or 4",
        "expert_parallel_size = 3 does not divide data_parallel_size x context_parallel_size = 16; nearest is 2 or 4",
    ):
        assert expected in text


def test_a_sequence_heads_and_sharing_that_do_not_divide_are_named_together():
    text = message(
        lambda: Plan(
            model=replace(MODEL, num_key_value_heads=8),
            workload=replace(WORK, seq_length=4100),
            parallel=ParallelPlan(
                data_parallel_size=2,
                tensor_parallel_size=8,
                context_parallel_size=8,
                sequence_parallel=True,
                context_parallel_algorithm="ulysses",
                sequence_chunks=3,
                optimizer_shard_size=6,
            ),
        )
    )
    assert "Plan: 5 problems" in text
    for expected in (
        "seq_length = 4100 is not divisible by context_parallel_size = 8; nearest is 5 or 10",
        "seq_length = 4100 is not divisible by sequence_chunks = 3; nearest is 2 or 4",
        "seq_length = 4100 is not divisible by tensor_parallel_size = 8",
        "num_key_value_heads = 8 is not divisible by tensor_parallel_size 8 x 8 ranks that exchange heads; nearest is 1 ranks",
        "optimizer_shard_size = 6 does not divide data_parallel_size x context_parallel_size = 16; nearest is 4 or 8",
    ):
        assert expected in text


def test_the_words_and_sizes_of_memory_are_checked():
    text = message(lambda: ParallelPlan(optimizer_shard_level=4, context_parallel_algorithm="star", sequence_chunks=0))
    assert "optimizer_shard_level = 4 must be 1, 2 or 3" in text
    assert "must be one of ring, ulysses, hybrid" in text
    assert "sequence_chunks = 0 must be positive" in text
    assert "does not divide context_parallel_size = 8" in message(lambda: ParallelPlan(context_parallel_size=8, ulysses_size=3))
    assert "attention_kernel" in message(lambda: replace(WORK, attention_kernel="fast"))
    assert "at least -1" in message(lambda: OptimizerSpec(matrix_state_bytes_per_parameter=-2))
