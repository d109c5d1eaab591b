"""Plans read from configurations as columns for the formulas: the same numbers that a table states, taken from the specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.calc._plan_columns import FLAGS, PlanColumns
from perfkit.calc._recomputed import recomputed_parts
from perfkit.calc._units import compute_units, is_mesh
from perfkit.calc.params import attention_weights, shared_width
from perfkit.errors import InputError
from perfkit.spec.hardware import HardwareSpec
from perfkit.spec.parallel import ParallelPlan
from perfkit.spec.plan import Plan

ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "float8": 2.0,
}  # activations stay in 16 bits beside 8-bit products
GRADIENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
MANY = 2**20  # more ranks than a context group has


def plan_columns(plans: Sequence[Plan]) -> PlanColumns:
    """One row a plan. Raises InputError if a plan names no device, or one whose links or peak for the dtype are not known."""
    rows = [_row(plan) for plan in plans]
    return PlanColumns(
        **{name: np.array([row[name] for row in rows], dtype=bool if name in FLAGS else np.float64) for name in rows[0]}
    )


def _row(plan: Plan) -> dict[str, Any]:
    model, parallel, work = plan.model, plan.parallel, plan.workload
    weights = attention_weights(model)
    latent = bool(model.kv_lora_rank)
    zero = parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0
    return {
        **_hardware(plan),
        **_stages(plan),
        **_repeated(plan),
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


def _repeated(plan: Plan) -> dict[str, float]:
    """Share of layers repeated in full, and of the others' attention and products."""
    full = plan.recompute.num_full_layers(plan.model.num_layers) / plan.model.num_layers
    if full >= 1:
        return {"recompute_full": 1.0, "recompute_core": 0.0, "recompute_extra": 0.0}
    parts = recomputed_parts(plan.model, plan.recompute)
    core = (float(parts["scores"]) - full) / (1 - full)
    block = "experts" if plan.model.num_experts else "ffn"
    weights = attention_weights(plan.model)
    width = (
        plan.model.expert_ffn_hidden_size * plan.model.num_experts_per_token
        if plan.model.num_experts
        else plan.model.ffn_hidden_size
    )
    sizes = {**weights, block: (3 if plan.model.gated_ffn else 2) * plan.model.hidden_size * width}
    repeated = sum(float(parts[part]) * size for part, size in sizes.items()) / sum(sizes.values())
    return {"recompute_full": full, "recompute_core": max(core, 0.0), "recompute_extra": max((repeated - full) / (1 - full), 0.0)}
