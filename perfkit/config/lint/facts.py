"""Facts: the sizes that checks compare, as a configuration states them, whatever its dialect, also where it makes no valid plan.

Names are those of the plan; `keys` has the key or option of each, for messages and lines. A size that is not stated is its default.
Anything that is no whole number (an unresolved `$VAR`) counts as not stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfkit.config.lint.subjects import Config

Keys = Mapping[str, tuple[str, ...]]

MINDFORMERS: Keys = {
    "data": ("parallel_config.data_parallel",),
    "tensor": ("parallel_config.model_parallel",),
    "pipeline": ("parallel_config.pipeline_stage",),
    "context": ("parallel_config.context_parallel",),
    "expert": ("parallel_config.expert_parallel",),
    "ulysses": ("parallel_config.ulysses_degree_in_cp",),
    "micro_batches": ("parallel_config.micro_batch_num",),
    "virtual": ("model.model_config.pp_interleave_num",),
    "interleave": ("micro_batch_interleave_num",),
    "batch": ("runner_config.batch_size", "train_dataset.batch_size"),
    "accumulation": ("runner_config.gradient_accumulation_steps",),
    "seq_length": ("model.model_config.seq_length", "train_dataset.data_loader.config.seq_length"),
    "hidden": ("model.model_config.hidden_size",),
    "layers": ("model.model_config.num_layers", "model.model_config.num_hidden_layers"),
    "heads": ("model.model_config.num_heads", "model.model_config.num_attention_heads"),
    "kv_heads": ("model.model_config.n_kv_heads", "model.model_config.num_key_value_heads"),
    "ffn": ("model.model_config.intermediate_size", "model.model_config.ffn_hidden_size"),
    "vocab": ("model.model_config.vocab_size",),
    "zero_shard": ("parallel.parallel_optimizer_config.optimizer_weight_shard_size",),
}
MINDSPEED: Keys = {
    "data": ("parallel_config.data_parallel_size", "parallel_config.data_parallel"),
    "tensor": ("parallel_config.tensor_model_parallel_size",),
    "pipeline": ("parallel_config.pipeline_model_parallel_size",),
    "context": ("parallel_config.context_parallel_size",),
    "expert": ("parallel_config.expert_model_parallel_size",),
    "virtual": ("parallel_config.virtual_pipeline_model_parallel_size",),
    "micro_batches": ("dataset_config.micro_batch_num",),
    "batch": ("dataset_config.batch_size",),
    "seq_length": ("model_config.seq_length",),
    "hidden": ("model_config.hidden_size",),
    "layers": ("model_config.num_layers",),
    "heads": ("model_config.num_attention_heads", "model_config.num_heads"),
    "kv_heads": ("model_config.num_query_groups", "model_config.n_kv_heads"),
    "ffn": ("model_config.ffn_hidden_size",),
    "vocab": ("model_config.vocab_size",),
    "zero_shard": ("parallel_config.zero_shard_size",),
}
MEGATRON: Keys = {
    "tensor": ("tensor_model_parallel_size",),
    "pipeline": ("pipeline_model_parallel_size",),
    "context": ("context_parallel_size",),
    "expert": ("expert_model_parallel_size",),
    "batch": ("micro_batch_size",),
    "global_batch": ("global_batch_size",),
    "virtual": ("num_virtual_stages_per_pipeline_rank",),
    "seq_length": ("seq_length",),
    "hidden": ("hidden_size",),
    "layers": ("num_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups",),
    "ffn": ("ffn_hidden_size",),
}
BY_DIALECT = {"mindformers": MINDFORMERS, "mindspeed-core": MINDSPEED, "megatron": MEGATRON}
ONE_DEVICE = ("data", "tensor", "pipeline", "context", "expert")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Sizes of a configuration; 0 for a size of the model or the batch that is not stated."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    ulysses: int = 1
    virtual: int = 1
    micro_batches: int = 1
    interleave: int = 1
    batch: int = 0
    accumulation: int = 1
    global_batch: int = 0
    seq_length: int = 0
    hidden: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    vocab: int = 0
    zero_shard: int = 0
    sequence_parallel: bool = False
    optimizer_parallel: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Data x tensor x context x pipeline."""
        return self.data * self.tensor * self.context * self.pipeline

    def key(self, name: str) -> str:
        """The key that states a size, or would state it."""
        return self.keys[name]


def facts_of(config: Config) -> Facts | None:
    """The facts of a configuration; None for a dialect whose plan is checked as a whole (perfkit TOML)."""
    names = BY_DIALECT.get(config.dialect)
    if names is None:
        return None
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for name, candidates in names.items():
        keys[name] = candidates[0]
        for key in candidates:
            value = config.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                found[name], keys[name] = value, key
                break
    found |= _flags(config)
    if config.dialect == "mindformers" and config.get("use_parallel") is not True:
        found |= dict.fromkeys(ONE_DEVICE, 1)
    if not _is_interleaved(config):
        found["virtual"] = 1
    if "kv_heads" not in found and "heads" in found:
        found["kv_heads"] = found["heads"]
    return Facts(**found, keys={**dict.fromkeys(Facts.__slots__, ""), **keys})


def is_on(config: Config, key: str) -> bool:
    """Whether a flag is on, written in any way that YAML, a shell or JSON has."""
    value = config.get(key)
    return (
        value is True
        or (isinstance(value, str) and value.strip().lower() in {"true", "on", "1"})
        or (value == 1 and value is not False)
    )


def _flags(config: Config) -> dict[str, bool]:
    if config.dialect == "megatron":
        return {
            "sequence_parallel": config.get("sequence_parallel") is True,
            "optimizer_parallel": config.get("use_distributed_optimizer") is True,
        }
    if config.dialect == "mindformers":
        return {
            "sequence_parallel": is_on(config, "parallel_config.use_seq_parallel"),
            "optimizer_parallel": is_on(config, "parallel.enable_parallel_optimizer"),
        }
    return {
        "sequence_parallel": is_on(config, "parallel_config.sequence_parallel"),
        "optimizer_parallel": is_on(config, "training_config.use_distributed_optimizer"),
    }


def _is_interleaved(config: Config) -> bool:
    return config.dialect != "mindformers" or is_on(config, "parallel.pipeline_config.pipeline_interleave")


def is_inference(config: Config) -> bool:
    """Whether the file is for inference, where training advice does not hold."""
    return str(config.get("run_mode", "train")).startswith("predict") or is_on(config, "model.model_config.use_past")
