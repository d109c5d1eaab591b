"""Megatron's options for sharing the optimizer and for splitting the sequence, as fields of `ParallelPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects._section import Section

SHARDED = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}
CONTEXT_ALGORITHMS = {"a2a": "ulysses", "a2a+p2p": "hybrid", "ulysses_cp_algo": "ulysses", "hybrid_cp_algo": "hybrid"}
CONTEXT_ALGORITHMS |= dict.fromkeys(("p2p", "all_gather", "megatron_cp_algo"), "ring")


def read_sharing(options: Section, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Devices that share an optimizer state, and what they share: Megatron's FSDP names a strategy, else it is the states alone."""
    replicas = sizes["data_parallel_size"] * sizes["context_parallel_size"]
    copies = options.positive_int("num_distributed_optimizer_instances", default=1)
    strategy = options.word("data_parallel_sharding_strategy", default="", allowed=("", "no_shard", *SHARDED))
    options.asked("use_megatron_fsdp", "use_custom_fsdp")  # without a strategy they share nothing
    if replicas % copies:
        options.reading.problem("num_distributed_optimizer_instances", f"{copies} does not divide {replicas} replicas")
        copies = 1
    stage = options.integer("zero_stage", default=0)  # of Megatron-DeepSpeed
    if stage > 3:
        options.reading.problem("zero_stage", f"{stage} must be 0, 1, 2 or 3")
        stage = 0
    shared = options.flag("use_distributed_optimizer", default=False) or strategy in SHARDED or stage > 0
    level = SHARDED.get(strategy, stage or 1)
    return {"optimizer_shard_size": replicas // copies if shared else 1, "optimizer_shard_level": level}


def read_context(options: Section) -> dict[str, Any]:
    """How the sequence is split; MindSpeed's own option is read where it is given."""
    value, sizes = options.raw("cp_comm_type"), options.raw("hierarchical_context_parallel_sizes")
    word = str(value[0] if isinstance(value, list) and value else value)
    algorithm = options.word("context_parallel_algo", default="", allowed=("", *CONTEXT_ALGORITHMS)) or word
    found: dict[str, Any] = {"context_parallel_algorithm": CONTEXT_ALGORITHMS.get(algorithm, "ring")}
    inner = sizes[0] if isinstance(sizes, list) and sizes else options.integer("ulysses_degree_in_cp", default=0)
    if found["context_parallel_algorithm"] == "hybrid" and isinstance(inner, int):
        found["ulysses_size"] = inner
    return found
