"""Plans drawn at random, all valid: dense, mixed and latent models under every way to split, share, recompute and swap."""

from __future__ import annotations

import random
from dataclasses import replace

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.trained import LAYER_PARTS, OUTSIDE, TrainedLayers
from perfkit.core.spec.workload import Workload

DEVICES = ("A100-80GB-SXM", "H100-80GB-SXM", "Ascend-910B2", "Ascend-910A")
PATTERNS = (
    r"feed_forward\.mul",
    r"feed_forward\.w1\.activation\.silu",
    r"feed_forward\.w1\.matmul",
    r"attention_norm\.norm",
    "attention",
)


def random_plans(count: int, seed: int = 0) -> list[Plan]:
    """`count` plans, the same for the same seed."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        try:
            plan = _plan(draw)
        except InputError:
            continue
        found.append(_of_today(plan, random.Random(f"{seed} {len(found)}")))
    return found


def _of_today(plan: Plan, draw: random.Random) -> Plan:
    """Some plans predict further tokens or have a sliding window; drawn apart, so that all else stays as it was."""
    further = draw.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2))
    windowed = draw.choice((0, 0, 0, 0, 1, plan.model.num_layers // 2))
    model = replace(plan.model, num_mtp_layers=further, num_windowed_layers=windowed, attention_window=512 if windowed else 0)
    return replace(plan, model=model)


def _plan(draw: random.Random) -> Plan:
    pick = draw.choice
    model = _model(draw)
    tensor, stages, chunks, context = pick((1, 1, 2, 4, 8)), pick((1, 1, 2, 4, 8)), pick((1, 1, 1, 2, 3)), pick((1, 1, 1, 2, 4))
    data, level, copies = pick((1, 2, 4, 8, 16)), pick((1, 1, 2, 3)), pick((1, 1, 1, 2))
    parallel = ParallelPlan(
        data_parallel_size=data,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=stages,
        virtual_pipeline_parallel_size=chunks if stages > 1 else 1,
        context_parallel_size=context,
        expert_parallel_size=pick((1, 2, 4)) if model.num_experts else 1,
        sequence_parallel=tensor > 1 and pick((True, False)),
        optimizer_shard_size=pick((1, data * context, max(1, data // 2))),
        optimizer_shard_level=level,
        micro_batch_interleave_size=copies,
        context_parallel_algorithm=pick(("ring", "ring", "ulysses", "hybrid")),
        ulysses_size=pick((0, 1, 2)),
        sequence_chunks=pick((1, 1, 1, 2)),
    )
    if pick((True, False, False)) and stages > 1:
        parallel = replace(parallel, layers_per_stage=_layout(draw, model.num_layers, parallel))
    micro = pick((1, 1, 2, 4))
    work = Workload(
        seq_length=pick((1024, 4096, 8192)),
        micro_batch_size=micro,
        global_batch_size=micro * data * copies * pick((1, 3, 8, 16, 64)),
        dtype=pick(("bfloat16", "bfloat16", "float16")),
        attention_kernel=pick(("flash", "unfused")),
        dropout=pick((True, False)),
    )
    optimizer = OptimizerSpec(
        name=pick(("adamw", "muon", "sgd")),
        state_bytes_per_parameter=pick((8, 4, 0)),
        master_weights=pick((True, True, False)),
        gradient_dtype=pick(("float32", "bfloat16", "float16")),
        matrix_state_bytes_per_parameter=pick((-1, -1, 4)),
        gradient_accumulation_bytes_per_parameter=pick((0, 0, 4)),
    )
    device = catalog.hardware_named(pick(DEVICES))
    if work.dtype not in device.peak_flops_per_s:
        work = replace(work, dtype="float16")
    plan = Plan(model=model, workload=work, parallel=parallel, optimizer=optimizer, hardware=device)
    return replace(plan, recompute=_recompute(draw, plan))


def _model(draw: random.Random) -> ModelSpec:
    pick, heads = draw.choice, draw.choice((8, 16, 32))
    hidden = heads * pick((64, 128))
    mixed, latent = pick((True, False, False)), pick((True, False, False, False))
    layers = pick((8, 12, 13, 24, 32, 40))
    experts = {
        "num_experts": pick((4, 8, 16)),
        "num_experts_per_token": pick((1, 2)),
        "expert_ffn_hidden_size": pick((512, hidden)),
        "num_shared_experts": pick((0, 1)),
        "shared_expert_ffn_hidden_size": pick((0, 768)),
        "shared_expert_gate": pick((True, False)),
        "router_bias": pick((True, False)),
        "num_dense_layers": pick((0, 1, 3)),
        "expert_capacity_factor": pick((0.0, 1.5)),
    }
    compressed = {
        "query_lora_rank": pick((0, 384)),
        "kv_lora_rank": 128,
        "nope_head_size": 64,
        "rope_head_size": 32,
        "value_head_size": 64,
    }
    return ModelSpec(
        name=pick(("", "a", "b")),
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=pick((heads, heads // 4)),
        head_size=hidden // heads,
        ffn_hidden_size=pick((4 * hidden, 11008)),
        vocab_size=pick((32000, 50257)),
        gated_ffn=pick((True, False)),
        tied_embeddings=pick((True, False)),
        norm=pick(("rmsnorm", "layernorm", "layernorm_no_bias")),
        bias=pick(("none", "qkv", "all")),
        max_position_embeddings=pick((0, 4096)),
        embedding_norm=pick((True, False)),
        query_key_norm=pick((True, False)),
        **(experts if mixed else {}),
        **(compressed if latent else {}),
    )


def _layout(draw: random.Random, layers: int, parallel: ParallelPlan) -> tuple[tuple[int, ...], ...]:
    """A split by hand: cuts at random places."""
    places = parallel.pipeline_parallel_size * parallel.virtual_pipeline_parallel_size
    cuts = sorted(draw.sample(range(1, layers), places - 1)) if places <= layers else [0]
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, layers], strict=True)]
    stages = parallel.pipeline_parallel_size
    return tuple(tuple(sizes[start : start + stages]) for start in range(0, places, stages))


def _recompute(draw: random.Random, plan: Plan) -> RecomputePlan:
    pick, layers = draw.choice, plan.stage_layers

    def counts() -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(draw.randint(0, count) for count in row) for row in layers)

    kind = pick(("none", "all", "core", "full", "operators", "communication", "swapped", "mixed"))
    chosen = {pattern: counts() for pattern in draw.sample(PATTERNS, 2)}
    return {
        "none": RecomputePlan(),
        "all": RecomputePlan(all_layers=True),
        "core": RecomputePlan(attention_core=True),
        "full": RecomputePlan(full_layers=counts()),
        "operators": RecomputePlan(operators=chosen),
        "communication": RecomputePlan(communication=counts()),
        "swapped": RecomputePlan(swapped_layers=counts()),
        "mixed": RecomputePlan(
            full_layers=counts(), operators=chosen, communication=counts(), swapped_layers=counts(), attention_core=True
        ),
    }[kind]


def adapted_plans(count: int, seed: int = 5) -> list[Plan]:
    """Random plans that train adapters alone, on matrices that their models have."""
    draw, found = random.Random(seed), []
    for plan in random_plans(4 * count, seed=seed):
        model = plan.model
        attention = () if model.kv_lora_rank else draw.choice((("query", "value"), ("query", "key", "value", "output"), ("qkv",)))
        inner = ("up", "down") if not model.gated_ffn else draw.choice((("gate", "up", "down"), ("gate_up",), ("down",)))
        targets = attention + (() if model.num_experts else draw.choice(((), inner)))
        if targets and len(found) < count:
            adapters = Adapters(rank=draw.choice((8, 16, 256)), targets=targets)
            found.append(replace(plan, model=replace(model, adapters=adapters)))
    return found


def partly_frozen_plans(count: int, seed: int = 7) -> list[Plan]:
    """Random plans that train some layers, parts of them, and some of what is beside the layers."""
    draw, found = random.Random(seed), []
    for plan in random_plans(count, seed=seed):
        outside = {part for part in OUTSIDE if draw.random() < 0.4}
        if plan.model.tied_embeddings and outside & {"embedding", "head"}:
            outside |= {"embedding", "head"}
        trained = TrainedLayers(
            **{draw.choice(("first", "last")): draw.choice((1, 2, plan.model.num_layers // 2, plan.model.num_layers))},
            parts=draw.choice((LAYER_PARTS, LAYER_PARTS, ("attention",), ("feed_forward", "norms"), ("attention", "feed_forward"))),
            outside=tuple(outside),
            input_gradients=draw.random() < 0.2,
        )
        found.append(replace(plan, model=replace(plan.model, num_mtp_layers=0, trained_layers=trained)))
    return found
