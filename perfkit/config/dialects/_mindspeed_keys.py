"""The two spellings of a MindSpeed-Core-MS configuration, and the second one turned into the first.

The older form has flat sections (model_config, parallel_config, dataset_config, training_config); the newer one nests them
(model_config.llm, accelerate_config.parallelization, train_config). Both are read by one reader, by the flat names
(`Ascend/MindSpeed-Core-MS docs/source_zh_cn/usage/pretrain_gpt.md`, `mindspeed_ms/core/config.py`). Sizes of experts and latent
attention, which that table leaves out, have Megatron's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from perfkit.config.dialects.splice import has_path, value_at

Path = tuple[str, ...]
FLAT = ("model_config", "parallel_config", "dataset_config", "training_config", "optimizer_config", "moe_config")
SPLIT = ("accelerate_config", "parallelization")
PIPELINE, PRECISION, LLM = (*SPLIT, "pipeline"), ("accelerate_config", "precision"), ("model_config", "llm")
ATTENTION, FFN = (*LLM, "blocks", "attention"), (*LLM, "blocks", "ffn")
NESTED: dict[Path, Path] = {
    ("model_config", "vocab_size"): (*LLM, "tokenizer", "padded_size"),
    ("model_config", "hidden_size"): (*LLM, "embedding", "hidden_size"),
    ("model_config", "position_embedding_type"): (*LLM, "position", "type"),
    ("model_config", "max_position_embeddings"): (*LLM, "position", "max_size"),
    ("model_config", "num_layers"): (*LLM, "blocks", "num_layers"),
    ("model_config", "normalization"): (*LLM, "blocks", "layernorm", "norm_type"),
    ("model_config", "num_attention_heads"): (*ATTENTION, "head_num"),
    ("model_config", "num_query_groups"): (*ATTENTION, "kv_group_size"),
    ("model_config", "qkv_has_bias"): (*ATTENTION, "qkv_bias"),
    ("model_config", "out_proj_has_bias"): (*ATTENTION, "projection_bias"),
    ("model_config", "attention_dropout_rate"): (*ATTENTION, "dropout_rate"),
    ("model_config", "ffn_hidden_size"): (*FFN, "hidden_size"),
    ("model_config", "hidden_act"): (*FFN, "activation"),
    ("model_config", "hidden_dropout_rate"): (*FFN, "dropout_rate"),
    ("model_config", "compute_dtype"): (*PRECISION, "compute_dtype"),
    ("model_config", "params_dtype"): (*PRECISION, "param_init_dtype"),
    ("parallel_config", "tensor_model_parallel_size"): (*SPLIT, "tensor_parallel"),
    ("parallel_config", "sequence_parallel"): (*SPLIT, "use_sequence_parallel"),
    ("parallel_config", "pipeline_model_parallel_size"): (*PIPELINE, "num_stages"),
    ("parallel_config", "num_layer_list"): (*PIPELINE, "layer_list"),
    ("parallel_config", "num_layers_per_virtual_pipeline_stage"): (*PIPELINE, "num_layers_per_vpp"),
    ("parallel_config", "virtual_pipeline_model_parallel_size"): (*PIPELINE, "virtual_pipeline_model_parallel_size"),
    ("training_config", "use_distributed_optimizer"): (*SPLIT, "use_distributed_optimizer"),
    ("dataset_config", "batch_size"): (*PIPELINE, "micro_batch_size"),
    ("dataset_config", "micro_batch_num"): (*PIPELINE, "micro_batch_num"),
    ("training_config", "global_batch_size"): ("train_config", "global_batch_size"),
    **{("parallel_config", "recompute_config", key): ("train_config", "recompute_config", key)
       for key in ("recompute", "select_recompute", "select_comm_recompute")},
    **{("parallel_config", key): (*SPLIT, key)
       for key in ("data_parallel_size", "context_parallel_size", "context_parallel_algo", "ulysses_degree_in_cp",
                   "expert_model_parallel_size", "zero_level", "zero_shard_size")},
    **{("model_config", key): (*LLM, key) for key in ("seq_length", "kv_channels", "qk_layernorm", "add_bias_linear",
                   "embed_layernorm")},
}  # fmt: skip
SHARED_EMBEDDING, FUSED = (*LLM, "head", "shared_embedding"), (*PRECISION, "fused_operators")
UNTIED, FLASH = ("model_config", "untie_embeddings_and_output_weights"), ("model_config", "use_flash_attention")
GATHERED = (*PRECISION, "grad_accumulation_dtype")


def is_nested(values: Any) -> bool:
    """Whether parsed YAML is in the newer form."""
    return has_path(values, ("accelerate_config",)) or has_path(values, LLM)


def flat(values: Mapping[str, Any], lines: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, int]]:
    """The nested form by the flat names, with the lines that messages name; flat sections beside it stay, and it wins."""
    found: dict[str, Any] = {
        name: {
            key: dict(value) if key == "recompute_config" and isinstance(value, Mapping) else value
            for key, value in section.items()
        }
        for name, section in values.items()
        if name in FLAT and isinstance(section, Mapping)
    }
    if "model_config" in found:
        found["model_config"].pop(LLM[-1], None)
    named: dict[str, int] = dict(lines)
    for path, place in NESTED.items():
        if has_path(values, place):
            _put(found, path, value_at(values, place))
            named[".".join(path)] = lines.get(".".join(place), 0)
    if has_path(values, SHARED_EMBEDDING):
        _put(found, UNTIED, not value_at(values, SHARED_EMBEDDING))
    if has_path(values, FUSED):
        words = re.findall(r"\w+", str(value_at(values, FUSED)))
        _put(found, FLASH, "flash_attention" in words)
    if str(value_at(values, (*ATTENTION, "attention_type"))).upper() == "GQA":
        _put(found, ("model_config", "group_query_attention"), True)
    if value_at(values, GATHERED) == "float32":
        _put(found, ("training_config", "accumulate_allreduce_grads_in_fp32"), True)
    return found, named


def nested_names(used: Iterable[str]) -> set[str]:
    """The names in the nested form of keys that were asked for by their flat names."""
    own = {path: place for path, place in NESTED.items() if ".".join(path) in used}
    return {".".join(place) for place in (*own.values(), SHARED_EMBEDDING, FUSED, GATHERED, (*ATTENTION, "attention_type"))}


def nested_change(path: Path, value: Any) -> tuple[Path, Any]:
    """A change by flat name as one of the nested form."""
    if path == UNTIED:
        return SHARED_EMBEDDING, not value
    if path == ("training_config", "accumulate_allreduce_grads_in_fp32"):
        return GATHERED, "float32" if value else None
    if path == ("model_config", "group_query_attention"):
        return (*ATTENTION, "attention_type"), "GQA" if value else "MHA"
    return NESTED.get(path, path), value


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
