"""Every leaf of the memory of random plans against a second derivation that adds up tensor by tensor."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec import OptimizerSpec, ParallelPlan, Plan, RecomputePlan, Workload
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import PRESETS, preset
from tests.predict.memory.by_hand import stage_memory
from tests.predict.random_plans import adapted_plans, partly_frozen_plans, random_plans

PLANS, ADAPTED, FROZEN = 240, 160, 200


def varied(plan, draw):
    """The plan in another precision, with experts split apart; as it is where that contradicts it."""
    work = replace(plan.workload, dtype=draw.choice(("bfloat16", "bfloat16", "float32", "float8")))
    parallel = plan.parallel
    if plan.num_micro_batches < parallel.pipeline_parallel_size:
        work = replace(work, global_batch_size=work.global_batch_size * parallel.pipeline_parallel_size)
    if plan.model.num_experts:
        parallel = replace(parallel, expert_tensor_parallel_size=draw.choice((0, 1, parallel.tensor_parallel_size)))
    optimizer = replace(
        plan.optimizer, parameter_dtype=draw.choice(("", "", "float32")), master_dtype=draw.choice(("float32", "bfloat16"))
    )
    try:
        return replace(plan, workload=work, parallel=parallel, optimizer=optimizer, hardware=None)
    except InputError:
        return plan


def cases():
    draw = random.Random(22)
    frameworks = itertools.cycle([*PRESETS, "megatron"])
    drawn = [*random_plans(PLANS, seed=7), *adapted_plans(ADAPTED, seed=7), *partly_frozen_plans(FROZEN, seed=8)]
    for plan, framework in zip(drawn, frameworks, strict=False):
        settings = preset(framework, draw.choice(("", "H100-80GB-SXM")))
        settings = replace(settings, expert_imbalance=draw.choice((1.0, 1.3)), keeps_score_buffer=draw.random() < 0.2)
        yield varied(plan, draw), replace(settings, float8_copy_bytes=draw.choice((1, 2)))


CASES = list(cases())


def assert_same(plan, settings, schedule="1f1b"):
    found = peak_memory(plan, settings=settings, schedule=schedule)
    for stage, parts in enumerate(found.stages):
        by_hand, moment = stage_memory(plan, settings, stage, schedule)
        assert found.moments[stage] == moment
        assert set(parts.parts) == set(by_hand)
        for path, amount in by_hand.items():
            assert parts.parts[path] == pytest.approx(amount, rel=1e-9, abs=1), path


@pytest.mark.parametrize("number", range(0, PLANS + ADAPTED + FROZEN, 8))
def test_every_leaf_of_random_plans_is_that_of_the_second_derivation(number):
    for plan, settings in CASES[number : number + 8]:
        assert_same(plan, settings)


@pytest.mark.parametrize("schedule", ["gpipe", "zbh1", "dualpipe", "vpp_lm"])
def test_other_schedules_too(schedule):
    chosen = [
        (replace(plan, parallel=replace(plan.parallel, sequence_chunks=1)), settings)
        for plan, settings in CASES
        if plan.parallel.pipeline_parallel_size % 2 == 0
        and (plan.parallel.virtual_pipeline_parallel_size > 1) == (schedule == "vpp_lm")
    ]
    assert len(chosen) > 20
    for plan, settings in chosen[::2]:
        batch = plan.workload.global_batch_size * (2 * plan.parallel.pipeline_parallel_size if schedule == "dualpipe" else 1)
        assert_same(replace(plan, workload=replace(plan.workload, global_batch_size=batch)), settings, schedule)


@pytest.mark.parametrize("layers", [((8, 0, 8),), ((0, 8, 8),), ((8, 8, 0),), ((6, 5), (5, 0)), ((6, 0), (5, 5))])
def test_stages_without_layers_too(layers):
    plan = Plan(
        model=replace(catalog.model("llama2-7b"), num_layers=16),
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=16, dtype="float8", dropout=True),
        parallel=ParallelPlan(
            data_parallel_size=2,
            pipeline_parallel_size=len(layers[0]),
            virtual_pipeline_parallel_size=len(layers),
            layers_per_stage=layers,
            optimizer_shard_size=2,
            optimizer_shard_level=3,
        ),
        recompute=RecomputePlan(all_layers=True),
    )
    assert_same(plan, preset("megatron"))
    momentum = OptimizerSpec(name="sgd", state_bytes_per_parameter=8, matrix_state_bytes_per_parameter=0)
    assert_same(replace(plan, recompute=RecomputePlan(), optimizer=momentum), preset("deepspeed"))


def test_together_the_random_plans_have_every_leaf_and_every_moment():
    estimates = [peak_memory(plan, settings=settings) for plan, settings in CASES]
    paths = {path for estimate in estimates for stage in estimate.stages for path in stage.parts}
    activations = ("embedding", "head", "batch", "recomputed_layers", "norm", "attention", "ffn", "experts")
    backward = ("logits", "recomputed_tensors", "activation_gradients", "gradient_copies", "gathered_parameters")
    buffers = ("sequence", "pipeline", "context", "buckets")
    assert paths == {
        *(f"static/{name}" for name in ("parameters", "gradients", "optimizer")),
        *(f"dynamic/activations/{name}" for name in activations),
        *(f"dynamic/communication_buffers/{name}" for name in buffers),
        *(f"dynamic/{name}" for name in backward),
        *(f"reserved/{name}" for name in ("workspace", "fragmentation", "context")),
    }
    moments = {moment for estimate in estimates for moment in estimate.moments}
    assert {"at the loss of a micro batch", "in the backward pass of a layer", "in the optimizer step"} <= moments
