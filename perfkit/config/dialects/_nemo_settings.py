"""What a plan says in NeMo's keys: the inverse of the reader; None is a key that must not stand there."""

from __future__ import annotations

from typing import Any

from perfkit.config.dialects._megatron_settings import settings as options_of
from perfkit.config.dialects.nemo_keys import PLACES
from perfkit.config.dialects.splice import Path
from perfkit.core.spec.plan import Plan

USUAL_NODE = 8
"""Devices of a node, where they divide by it."""
SHARING = {2: "grad", 3: "full"}


def settings(plan: Plan) -> dict[Path, Any]:
    """The plan as values by key path; what the keys cannot say is found when the text is read back."""
    options = {option: value for (option,), value in options_of(plan).items()}
    each = USUAL_NODE if plan.num_devices % USUAL_NODE == 0 else plan.num_devices
    options |= {"nnodes": plan.num_devices // each, "nproc_per_node": each}
    if options.get("recompute_modules"):
        options["recompute_granularity"] = None  # selective repeats the attention of all layers here, and nothing else
    values: dict[Path, Any] = {places[0]: options.get(option) for option, places in PLACES.items()}
    values |= {("model", key): value for key, value in _model(plan).items()}
    return values | {
        ("model", "encoder_seq_length"): plan.workload.seq_length,
        ("model", "override_vocab_size"): options.get("vocab_size", options.get("padded_vocab_size")),
        ("model", "optim", "name"): _optimizer(plan),
        ("model", "optim", "overlap_grad_sync"): bool(plan.software.overlap_dp),
        ("model", "optim", "grad_sync_dtype"): "bf16" if plan.optimizer.gradient_dtype == "bfloat16" else "fp32",
    }


def _model(plan: Plan) -> dict[str, Any]:
    model, parallel, flash = plan.model, plan.parallel, plan.workload.attention_kernel == "flash"
    fsdp = parallel.optimizer_shard_size > 1 and parallel.optimizer_shard_level > 1
    half = plan.workload.dtype in ("bfloat16", "float8")
    return {
        "mcore_gpt": flash,
        "transformer_engine": flash,
        "precision": "bf16" if half else {"float16": "16"}.get(plan.workload.dtype, "32"),
        "fp8": plan.workload.dtype == "float8",
        "megatron_amp_O2": plan.optimizer.parameter_dtype != "float32" and not fsdp,
        "activation": "fast-swiglu" if model.gated_ffn else "gelu",
        "bias": model.bias == "all",
        "normalization": model.norm,
        "share_embeddings_and_output_weights": model.tied_embeddings,
        "overlap_p2p_comm": plan.software.overlap_pp is True,
        "fsdp": fsdp,
        "fsdp_sharding_strategy": SHARING.get(parallel.optimizer_shard_level) if fsdp else None,
        "fsdp_grad_reduce_dtype": ("bf16" if plan.optimizer.gradient_dtype == "bfloat16" else "fp32") if fsdp else None,
    }


def _optimizer(plan: Plan) -> str:
    name = plan.optimizer.name.lower()
    shared = plan.parallel.optimizer_shard_size > 1 and plan.parallel.optimizer_shard_level == 1
    return name if name in ("sgd", "lion", "muon") else "mcore_distributed_optim" if shared else "fused_adam"
