"""Names and words of tables of plans: which columns state which field, and what the words in them mean.

A column has the name of the field of `Plan` that it states, the short name of `data/reference/step_time.csv`, or what
configurations call the same. Case, spaces and dashes do not matter, neither in names nor in words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import get_args

from perfkit.core.errors import InputError
from perfkit.core.plan_columns import FIELDS
from perfkit.core.spec.memory_limit import LimitedPart
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.software import IMPLEMENTATIONS as IMPLEMENTED
from perfkit.core.spec.workload import FEW_BITS

TEXTS = ("release", "model_name", "accelerator", "optimizer_name")
SUBJECT = "table of plans"
NAMES: Mapping[str, tuple[str, ...]] = {
    "model_name": ("model",),
    "num_layers": ("layers", "n_layers", "n_layer", "num_hidden_layers"),
    "hidden_size": ("hidden", "d_model", "n_embd", "hidden_dim"),
    "num_attention_heads": ("heads", "num_heads", "n_heads", "n_head", "attention_heads"),
    "num_key_value_heads": ("kv_heads", "n_kv_heads", "num_query_groups"),
    "head_size": ("head_dim", "kv_channels"),
    "ffn_hidden_size": ("ffn_hidden", "intermediate_size", "ffn_size", "ffn"),
    "vocab_size": ("vocab", "padded_vocab_size"),
    "num_experts": ("experts", "n_routed_experts", "expert_num"),
    "num_experts_per_token": ("experts_per_token", "num_experts_per_tok", "num_experts_chosen", "moe_router_topk", "topk", "top_k"),
    "num_shared_experts": ("shared_experts", "n_shared_experts", "shared_expert_num"),
    "expert_ffn_hidden_size": ("expert_ffn_hidden", "moe_intermediate_size", "moe_ffn_hidden_size"),
    "num_dense_layers": ("dense_layers", "first_k_dense_replace"),
    "num_mtp_layers": ("mtp_num_layers", "mtp_depth", "num_nextn_predict_layers"),
    "attention_window": ("sliding_window", "window_size"),
    "expert_capacity_factor": ("capacity_factor", "moe_expert_capacity_factor"),
    "tied_embeddings": ("tie_word_embeddings",),
    "bias": ("biases",),
    "query_key_norm": ("qk_layernorm", "qk_norm"),
    "accelerator": ("device", "device_name", "gpu", "hardware"),
    "n_devices": ("num_devices", "devices", "world_size", "n_gpus", "num_gpus", "gpus"),
    "devices_per_node": ("gpus_per_node", "num_gpus_per_node"),
    "data_parallel_size": ("dp", "data_parallel"),
    "tensor_parallel_size": ("tp", "tensor_parallel", "tensor_model_parallel_size", "model_parallel", "mp"),
    "pipeline_parallel_size": ("pp", "pipeline_parallel", "pipeline_model_parallel_size", "pipeline_stage"),
    "virtual_pipeline_parallel_size": ("vpp", "virtual_pipeline_model_parallel_size", "pp_interleave_num"),
    "context_parallel_size": ("cp", "context_parallel"),
    "expert_parallel_size": ("ep", "expert_parallel", "expert_model_parallel_size"),
    "expert_tensor_parallel_size": ("expert_tensor_parallel", "etp"),
    "context_parallel_algorithm": ("context_algorithm", "cp_algorithm", "context_parallel_algo", "cp_algo"),
    "ulysses_size": ("ulysses_degree_in_cp", "ulysses_degree"),
    "sequence_chunks": ("seq_split_num", "sequence_pieces"),
    "sequence_parallel": ("sp", "use_seq_parallel"),
    "zero_stage": ("zero", "zero_level"),
    "optimizer_shard_size": ("optimizer_weight_shard_size", "zero_shard_size"),
    "micro_batch_interleave_size": ("copies", "micro_batch_interleave_num"),
    "swapped_layers": ("swap_layers",),
    "optimizer_name": ("optimizer",),
    "micro_batch_size": ("micro_batch", "mbs"),
    "global_batch_size": ("global_batch", "gbs"),
    "seq_length": ("seq_len", "sequence_length"),
    "dtype": ("precision", "compute_dtype"),
    "release": ("software_release",),
    "recompute": ("recompute_granularity", "activation_checkpointing"),
}
"""Other names of the columns, by the name that perfkit reads them under."""

OWN = (
    *(name for name in FIELDS if name not in ("hardware", "memory_limit", "recompute")),
    *("all_layers", "attention_core", "full_layers", "operators", "communication"),
    *("activation", "positions", "embeddings_count_as_layers", "sharding", "mixed_precision", "network", "network_gbit_per_node"),
    *("memory_limit_bytes", "memory_limit_part", "memory_kind", "memory_scope"),
)
"""Columns that have no other name."""

FREE = (
    *("row_id", "split", "note", "source", "source_path", "family", "site", "params_reported", "recompute_detail"),
    *("train_mode", "exclude", "exclude_reason", "compiled", "fp8_recipe", "fused_cross_entropy", "reported_mfu", "reported_hfu"),
    *("reported_tflops_per_device", "step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s_per_device"),
    *("mfu", "hfu", "peak_memory_bytes"),
)
"""Columns that are known and not read: texts and figures of the rows."""

_KNOWN = {other: name for name, others in NAMES.items() for other in (name, *others)} | {name: name for name in OWN}
_REPEATED = re.compile(r"\.\d+$")  # how pandas marks a second column of one name


def labels_of(columns: Iterable[object]) -> dict[str, str]:
    """The table's own name of every column that is read, by perfkit's name; the first of those that state the same."""
    return {name: labels[0] for name, labels in _found(columns).items()}


def repeated_of(columns: Iterable[object], needed: Iterable[str]) -> list[str]:
    """What is told of columns that state the same; with these, those of `needed` that are missing are an InputError."""
    found = _found(columns)
    problems = [
        f"{' and '.join(map(repr, labels))} state the same ({name}); keep one column"
        for name, labels in found.items()
        if len(labels) > 1
    ]
    missing = [f"column {NAMES.get(name, (name,))[0]!r} is missing" for name in _missing(found, needed)]
    if missing:
        raise InputError(SUBJECT, [*problems, *missing])
    return problems


def is_text(column: str) -> bool:
    """Whether the cells of a column are words even where they look like numbers: release 1.10 is not 1.1."""
    return any(name in TEXTS for name in _found([column]))


def missing_of(columns: Iterable[object], needed: Iterable[str]) -> list[str]:
    """Those of `needed`, by perfkit's names, that no column states."""
    return _missing(_found(columns), needed)


def _missing(found: Mapping[str, list[str]], needed: Iterable[str]) -> list[str]:
    return [name for name in needed if name not in found]


def _found(columns: Iterable[object]) -> dict[str, list[str]]:
    """The table's columns that are read, by perfkit's name."""
    found: dict[str, list[str]] = {}
    for column in map(str, columns):
        name = plain(column)
        if name := _KNOWN.get(name) or _KNOWN.get(_REPEATED.sub("", name)) or "":
            found.setdefault(name, []).append(_REPEATED.sub("", column) if plain(column) not in _KNOWN else column)
    return found


def unread_of(columns: Iterable[object]) -> tuple[str, ...]:
    """What is told of columns that are not read but nearly have the name of one that is."""
    found = []
    for column in map(str, columns):
        name = _REPEATED.sub("", plain(column))
        near = () if name in _KNOWN or name in FREE else difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
        found += [f"column {column!r} is not read; did you mean {known!r}?" for known in near]
    return tuple(found)


def plain(word: str) -> str:
    """A name or word as tables spell it: lower case, underscores for spaces and dashes."""
    return re.sub(r"[\s-]+", "_", word.strip().lower())


_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16"}
DTYPES = (
    _TYPES
    | {name: name for name in (*_TYPES.values(), *FEW_BITS)}
    | dict.fromkeys(("fp8", "mxfp8"), "float8")
    | dict.fromkeys(("fp4", "nvfp4", "mxfp4"), "float4")
)
STATE_TYPES = {word: name for word, name in DTYPES.items() if name not in FEW_BITS}
WEIGHT_TYPES = {word: name for word, name in DTYPES.items() if name not in ("int8", "float4")}
KERNELS = {"flash": "flash", "unfused": "unfused", "fused_softmax": "unfused"}
ACTIVATIONS = {word: word for word in ("swiglu", "gelu", "squared_relu")}
POSITIONS = {word: word for word in ("learned", "rotary", "alibi", "none")}
NORMS = {word: word for word in ("rmsnorm", "layernorm", "layernorm_no_bias")}
BIASES = {word: word for word in ("none", "qkv", "attention", "all")} | {"0": "none", "1": "all", "false": "none", "true": "all"}
IMPLEMENTATIONS = {word: word for word in IMPLEMENTED}
RECOMPUTE = {word: word for word in ("none", "selective", "full")}
SHARDINGS = {"fsdp": 3, "fsdp2": 3, "hsdp": 3, "fsdp_grad_op": 2}
"""Levels of sharing the optimizer state by the names of PyTorch's strategies."""
MIXTURES = {word: word for word in ("pure", "default")}
LIMITED = {word: word for word in get_args(LimitedPart)}
NETWORKS = {"omni_path": "omni-path"} | {word: word for word in ("infiniband", "roce", "ethernet")}
ALGORITHMS = {
    **dict.fromkeys(("ring", "ring_attention", "colossalai_cp", "megatron_cp_algo"), "ring"),
    **dict.fromkeys(("ulysses", "ulysses_cp", "ulysses_cp_algo", "all_to_all"), "ulysses"),
    **dict.fromkeys(("hybrid", "hybrid_cp", "hybird_cp", "hybrid_cp_algo"), "hybrid"),
}
"""Ways to split the context, by the guides' own words too (one is spelled so)."""
FRAMEWORKS = {
    **dict.fromkeys(("megatron", "megatron_lm", "megatron_core", "megatron_bridge", "nemo", "mindspeed_llm"), "megatron"),
    **dict.fromkeys(("deepspeed", "megatron_deepspeed"), "deepspeed"),
    **dict.fromkeys(("fsdp", "llm_foundry", "torchtitan", "maxtext"), "fsdp"),
    **dict.fromkeys(("mindspore", "mindformers"), "mindspore"),
}
"""The kind of program that each one is."""
OPTIMIZERS = {
    **dict.fromkeys(("adam", "adamw"), OptimizerSpec()),
    "sgd": OptimizerSpec(name="sgd", state_bytes_per_parameter=0),
    "sgd_momentum": OptimizerSpec(name="sgd_momentum", state_bytes_per_parameter=4),
    "muon": OptimizerSpec(name="muon", matrix_state_bytes_per_parameter=4),
}
"""Optimizers by name, with an fp32 master copy each."""
