"""Plans read from configurations as columns for the formulas: the same numbers that a table states, taken from the specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from perfkit.core.errors import InputError
from perfkit.core.params import attention_weights, shared_width
from perfkit.core.recomputed import recomputed_parts
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.predict.cost._light import at, light_bytes_by_stage, swapped_bytes_by_stage
from perfkit.predict.cost.plan_columns import FLAGS, PlanColumns
from perfkit.predict.cost.units import compute_units, is_mesh

ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "float8": 2.0,
}  # activations stay in 16 bits beside 8-bit products
GRADIENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
MANY = 2**20  # more ranks than a context group has
Row = dict[str, Any]
REPEATED = (
    "recompute_full",
    "recompute_core",
    "recompute_extra",
    "recompute_gathers",
    "recompute_mean",
    "light_split",
    "light_whole",
    "swapped",
)
"""Columns that follow from the recompute plan."""


def plan_columns(plans: Sequence[Plan]) -> PlanColumns:
    """One row a plan. Raises InputError if a plan names no device, or one whose links or peak for the dtype are not known."""
    return columns_of([plan_row(plan) for plan in plans])


def columns_of(rows: Sequence[Row]) -> PlanColumns:
    """Rows of `plan_row` in columns."""
    return PlanColumns(
        **{name: np.array([row[name] for row in rows], dtype=bool if name in FLAGS else np.float64) for name in rows[0]}
    )


def plan_row(plan: Plan, repeated: Row | None = None) -> Row:
    """The values of one plan by column; raises InputError as `plan_columns`.

    `repeated` is `repeated_row` of a plan with the same layers, split and micro batch, where that is known.
    """
    model, parallel, work = plan.model, plan.parallel, plan.workload
    weights = attention_weights(model)
    latent = bool(model.kv_lora_rank)
    zero = parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0
    return {
        **_hardware(plan),
        **_stages(plan),
        **(repeated_row(plan) if repeated is None else repeated),
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "heads": model.num_attention_heads,
        "kv_heads": model.num_key_value_heads,
        "head_size": model.nope_head_size + model.rope_head_size if latent else model.head_size,
        "value_size": model.value_head_size if latent else model.head_size,
        "qkv_weights": weights["qkv"],
        "output_weights": weights["output"],
        "ffn": model.ffn_hidden_size,
        "ffn_matrices": 3 if model.gated_ffn else 2,
        "vocab": model.vocab_size,
        "tied": model.tied_embeddings,
        "experts": model.num_experts,
        "experts_per_token": model.num_experts_per_token,
        "expert_ffn": model.expert_ffn_hidden_size,
        "shared_ffn": shared_width(model),
        "dense_layers": model.num_dense_layers,
        "data": parallel.data_parallel_size,
        "tensor": parallel.tensor_parallel_size,
        "pipeline": parallel.pipeline_parallel_size,
        "virtual": parallel.virtual_pipeline_parallel_size,
        "context": parallel.context_parallel_size,
        "head_exchange": _head_exchange(parallel),
        "pieces": parallel.sequence_chunks,
        "expert_parallel": parallel.expert_parallel_size if model.num_experts else 1,
        "sequence_parallel": parallel.sequence_parallel,
        "zero": zero,
        "optimizer_shards": parallel.optimizer_shard_size,
        "optimizer_ratio": optimizer_bytes(plan.optimizer) / ADAM_BYTES,
        "expert_load": model.expert_capacity_factor or 1.0,
        "releases_before": 0,
        "interleave": parallel.micro_batch_interleave_size,
        "micro_batch": work.micro_batch_size,
        "global_batch": work.global_batch_size,
        "seq_length": work.seq_length,
        "element_bytes": ELEMENT_BYTES[work.dtype],
        "gradient_bytes": GRADIENT_BYTES[plan.optimizer.gradient_dtype],
        "flash": work.attention_kernel == "flash",
        "eight_bit": work.dtype == "float8",
    }


def optimizer_bytes(optimizer: OptimizerSpec) -> float:
    """Bytes a parameter that an update moves: gradient read, weight written, state and master copy read and written."""
    state = optimizer.matrix_state_bytes_per_parameter
    state = optimizer.state_bytes_per_parameter if state < 0 else state
    return 6.0 + 2.0 * state + (8.0 if optimizer.master_weights else 2.0)


ADAM_BYTES = optimizer_bytes(OptimizerSpec())


def _head_exchange(parallel: ParallelPlan) -> int:
    """The most ranks of a context group that exchange heads."""
    return {"ring": 1, "ulysses": MANY, "hybrid": max(parallel.ulysses_size, 1)}[parallel.context_parallel_algorithm]


def _hardware(plan: Plan) -> dict[str, float]:
    device = plan.hardware
    if device is None:
        raise InputError("Plan", ['hardware is not named; a prediction needs the device, for example "Ascend-910B2"'])
    problems = [] if plan.workload.dtype in device.peak_flops_per_s else [_no_peak(device, plan.workload.dtype)]
    needed = ["intra_node"] if plan.num_devices > 1 else []
    needed += ["inter_node"] if plan.num_devices > device.devices_per_node else []
    if any(map(any, plan.recompute.swapped_layers)) and "host" not in device.links:
        problems.append(f"{device.name}: links.host is not stated; layers that are swapped to the host need it")
    problems += [
        f"{device.name}: links.{link} is not stated; {plan.num_devices} devices need it"
        for link in needed
        if link not in device.links
    ]
    if problems:
        raise InputError(f"HardwareSpec {device.name}", problems)
    rates = {name: link.bytes_per_s for name, link in device.links.items()}
    return {
        "peak_flops_per_s": device.peak(plan.workload.dtype),
        "memory_bytes_per_s": device.memory_bytes_per_s,
        "intra_bytes_per_s": rates.get("intra_node", 1.0),
        "node_bytes_per_s": rates.get("inter_node", 1.0) * device.devices_per_node,
        "host_bytes_per_s": rates.get("host", 1.0),
        "devices_per_node": device.devices_per_node,
        "mesh": is_mesh(device),
        "compute_units": compute_units(device.name),
    }


def _no_peak(device: HardwareSpec, dtype: str) -> str:
    return f"no peak for dtype {dtype!r}; known are {', '.join(device.peak_flops_per_s)}"


def _stages(plan: Plan) -> dict[str, float]:
    """Layers of the first, the fullest other and the last pipeline stage."""
    layout, stages = plan.parallel.layers_per_stage, plan.parallel.pipeline_parallel_size
    if layout is None:
        split, extra = divmod(plan.model.num_layers, stages)
        return {"layers_first": split, "layers_middle": split + bool(extra), "layers_last": split}
    sums = [sum(chunk[stage] for chunk in layout) for stage in range(stages)]
    return {"layers_first": sums[0], "layers_middle": max(sums[1:-1], default=sums[-1]), "layers_last": sums[-1]}


def repeated_row(plan: Plan) -> Row:
    """What the stage that repeats most repeats of its layers, and what all stages do over that."""
    layers, recompute = plan.stage_layers, plan.recompute
    found = dict.fromkeys(REPEATED, 0.0) | {"recompute_mean": 1.0}
    if recompute.all_layers:
        return found | {"recompute_full": 1.0}
    if not (recompute.attention_core or any(map(any, _all_counts(recompute)))):
        return found
    totals = [sum(row[stage] for row in layers) for stage in range(len(layers[0]))]
    light = light_bytes_by_stage(plan) if recompute.operators else [(0.0, 0.0)] * len(totals)
    swapped = swapped_bytes_by_stage(plan) if recompute.swapped_layers else [0.0] * len(totals)
    shares, known = [], dict[Any, dict[str, float]]()
    for stage, count in enumerate(totals):
        key = (count, _counts_of(recompute, len(layers), stage))
        if key not in known:
            known[key] = _repeated_of(plan, stage, max(count, 1), light[stage], swapped[stage])
        shares.append(known[key])
    works = [count * _weight(share) for count, share in zip(totals, shares, strict=True)]
    most = max(range(len(works)), key=works.__getitem__)
    per_layer = works[most] / max(totals[most], 1)
    mean = sum(works) / (plan.model.num_layers * per_layer) if per_layer else 1.0
    return found | shares[most] | {"recompute_mean": min(round(mean, 12), 1.0)}


def _repeated_of(plan: Plan, stage: int, count: int, light: tuple[float, float], swapped: float) -> dict[str, float]:
    """Share of the `count` layers of a stage repeated in full, of the others' attention and products, and bytes a token."""
    one = _of_stage(plan.recompute, len(plan.stage_layers), stage)
    full = one.num_full_layers(count) / count
    if full >= 1:
        return {"recompute_full": 1.0}
    parts = recomputed_parts(plan.model, one, count)
    gathers = sum(map(sum, one.communication)) / count if plan.parallel.sequence_parallel else 0.0
    scores, values = float(parts["scores"]), float(parts["values"])
    # A fused kernel is repeated whole for either of its products.
    core = (max(scores, values) if plan.workload.attention_kernel == "flash" else (scores + values) / 2) - full
    return {
        "recompute_full": full,
        "recompute_core": max(core / (1 - full), 0.0),
        "recompute_extra": max((_repeated_products(plan.model, parts) - full) / (1 - full), 0.0),
        "recompute_gathers": min(max(gathers - full, 0.0), 1.0),
        "light_split": light[0] / count,
        "light_whole": light[1] / count,
        "swapped": swapped / count,
    }


def _repeated_products(model: ModelSpec, parts: Mapping[str, Fraction]) -> float:
    """Share of the products with weights that is repeated."""
    block = "experts" if model.num_experts else "ffn"
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if model.num_experts else model.ffn_hidden_size
    sizes = {**attention_weights(model), block: (3 if model.gated_ffn else 2) * model.hidden_size * width}
    return sum(float(parts[part]) * size for part, size in sizes.items()) / sum(sizes.values())


def _weight(share: Mapping[str, float]) -> float:
    """How much a stage repeats of a layer, to compare stages: the light operators of a layer move some hundred bytes a value."""
    full = share["recompute_full"]
    rest = 0.8 * share.get("recompute_extra", 0.0) + 0.2 * share.get("recompute_core", 0.0)
    return full + (1 - full) * rest + 1e-9 * (share.get("light_split", 0.0) + share.get("light_whole", 0.0))


def _of_stage(recompute: RecomputePlan, chunks: int, stage: int) -> RecomputePlan:
    """The plan of one stage: one entry a chunk."""

    def own(counts: Counts) -> Counts:
        return tuple((at(counts, chunk, stage),) for chunk in range(chunks)) if counts else ()

    return replace(
        recompute,
        full_layers=own(recompute.full_layers),
        operators={pattern: own(counts) for pattern, counts in recompute.operators.items()},
        communication=own(recompute.communication),
        swapped_layers=own(recompute.swapped_layers),
    )


def _counts_of(recompute: RecomputePlan, chunks: int, stage: int) -> tuple[int, ...]:
    """All counts of a stage, by which stages are told apart."""
    named = (recompute.full_layers, recompute.communication, recompute.swapped_layers, *recompute.operators.values())
    return tuple(at(counts, chunk, stage) for counts in named for chunk in range(chunks))


def _all_counts(recompute: RecomputePlan) -> list[Sequence[int]]:
    named = (recompute.full_layers, recompute.communication, recompute.swapped_layers, *recompute.operators.values())
    return [row for counts in named for row in counts]
