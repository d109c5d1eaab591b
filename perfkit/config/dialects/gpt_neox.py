"""GPT-NeoX's YAML: Megatron's sizes under names of its own, spelled with - or _, beside DeepSpeed's batches, sharing and precision.

Names, defaults and the widths of gated feed-forwards are those of `EleutherAI/gpt-neox megatron/neox_arguments` and
`megatron/model/transformer.py`. The vocabulary is that of the tokenizer; how many devices there are follows from the batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects import yaml
from perfkit.config.dialects._megatron_plan import plan_of
from perfkit.config.dialects._neox_settings import settings
from perfkit.config.dialects._section import Reading, Section
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.dialect import Changes, Dialect, Document
from perfkit.config.dialects.neox_keys import MARK, NAMES, OTHERS
from perfkit.config.dialects.splice import splice
from perfkit.core.spec.plan import Plan, even_layers

HEADER = "# Settings of a step; data, tokenizer, learning rate and logging are still to be added.\n"
NORMS = {"layernorm": "LayerNorm", "te_layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "te_rmsnorm": "RMSNorm"}
POSITIONS = {"learned": "learned_absolute", "rotary": "rope"}
GATED = ("geglu", "reglu", "swiglu", "bilinear", "glu")
OPTIMIZERS = {"sgd": "sgd", "lion": "lion"}
HALVES = {"bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "float16": "fp16"}
VOCABULARIES = {"TiktokenTokenizer": 100277, "CharLevelTokenizer": 512, "SPMTokenizer": 32000}
VOCABULARIES |= dict.fromkeys(("GPT2BPETokenizer", "HFGPT2Tokenizer"), 50257) | dict.fromkeys(("HFTokenizer", ""), 50277)
"""Vocabularies by the type of a tokenizer, of several models the program's own (`20B_tokenizer.json`)."""
MULTIPLE = "mlp_multiple_of"
OTHER = re.compile(r"mamba|rwkv|gmlp|amlp")
"""Kinds of layers that are no attention."""


def detect(document: Document) -> bool:
    """Whether the text has the size that only this program calls so."""
    return MARK.search(document.text) is not None


def read(document: Document) -> Plan:
    """The plan of the keys. Raises InputError with every problem, each with line, key and value."""
    parsed = yaml.parse(document.text, document.name)
    values = {str(key).replace("-", "_"): value for key, value in parsed.values.items()}
    places = {str(key).replace("-", "_"): str(key) for key in parsed.values}
    options = _options(values)
    names = {option: places.get(key, key) for key, option in NAMES.items()}
    lines = {option: parsed.lines[name] for option, name in names.items() if name in parsed.lines}
    reading = Reading(document, lines=lines, names=names, notes=list(parsed.duplicates))
    if other := OTHER.search(str(values.get("attention_config"))):
        reading.problem("attention_config", f"the model has layers of {other[0]}, which nothing here counts yet")
    if not any(key in values for key in ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")):
        options["micro_batch_size"] = 1
        reading.default("micro_batch_size", "1: another file of the run has the batches")
    kind = str(values.get("tokenizer_type") or "")
    options["vocab_size"] = VOCABULARIES.get(kind, VOCABULARIES[""])
    reading.default("vocab_size", f"{options['vocab_size']}, of {kind or 'the tokenizer of GPT-NeoX-20B'}")
    known = {places.get(key, key) for key in (*NAMES, *OTHERS.split())}
    stated = {key: value for key, value in parsed.values.items() if value is not None}
    return plan_of(Section(reading, "", options), {}, lambda: reading.annotated("gpt-neox", stated, known))


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of Megatron that the keys, spelled with _, stand for."""
    found = {option: values[key] for key, option in NAMES.items() if values.get(key) is not None}
    found["pipeline_model_parallel_size"] = values.get("pipe_parallel_size") or 1
    found["normalization"] = NORMS.get(str(values.get("norm", "layernorm")), "LayerNorm")
    found["position_embedding_type"] = POSITIONS.get(str(values.get("pos_emb", "learned")), "other")
    found["attention_backend"] = "flash" if "flash" in str(values.get("attention_config")) or values.get("te_mha") else "unfused"
    found |= {"deepspeed": True, "expert_interval": 1}
    if "num_query_groups" in found:
        found["group_query_attention"] = True
    if values.get("use_bias_in_attn_linear") is False:
        found["disable_bias_linear"] = True
    if width := values.get("sliding_window_width"):
        found["window_size"] = f"{width},0"
    layers, stages = values.get("num_layers"), found["pipeline_model_parallel_size"]
    if isinstance(layers, int) and isinstance(stages, int) and 0 < stages <= layers and layers % stages:
        found["num_layer_list"] = list(even_layers(layers, stages, 1)[0])
    found |= _widths(values) | _batches(values) | _precision(values) | _sharing(values)
    if values.get("checkpoint_activations"):
        found |= {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": values.get("checkpoint_num_layers", 1),
        }
    if isinstance(values.get("moe_num_experts"), int) and values["moe_num_experts"] > 1:
        found |= {"num_experts": values["moe_num_experts"], "moe_router_topk": values.get("moe_top_k", 1)}
        found["expert_model_parallel_size"] = values.get("moe_expert_parallel_size", 1)
    else:
        found.pop("moe_router_topk", None)
    return found


def _widths(values: Mapping[str, Any]) -> dict[str, Any]:
    """The feed-forward: a gated one has two thirds of the width that is stated, halved for its two branches."""
    h, stated, unit = values.get("hidden_size"), values.get("intermediate_size"), values.get(MULTIPLE) or 1
    if not isinstance(h, int) or not isinstance(unit, int):
        return {}
    if values.get("mlp_type") == "llama" and not stated:
        return {"swiglu": True, "ffn_hidden_size": _up(8 * h // 3, 256)}
    whole = stated if isinstance(stated, int) else int(h * (values.get("expansion_factor") or 4))
    if str(values.get("activation", "gelu")) in GATED:
        return {"swiglu": True, "ffn_hidden_size": _up(whole * 2 // 3 // 2, unit)}
    return {"ffn_hidden_size": _up(whole, 2 * unit) if unit > 1 else whole}


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _batches(values: Mapping[str, Any]) -> dict[str, Any]:
    """The global batch, and the devices: as many as are stated, or as all three batches ask for."""

    def size(key: str, default: int = 0) -> int:
        value = values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default

    one = size("pipe_parallel_size", 1) * size("model_parallel_size", 1) * size("context_parallel_size", 1)
    micro, steps = size("train_micro_batch_size_per_gpu"), size("gradient_accumulation_steps")
    whole, devices = size("train_batch_size"), size("num_gpus") * size("num_nodes", 1) or size("global_num_gpus")
    if whole and micro and steps and not devices and whole % (micro * steps) == 0:
        devices = whole // (micro * steps) * one
    found: dict[str, Any] = {"world_size": devices} if devices else {}
    if values.get("train_batch_size") is not None:
        return found | {"global_batch_size": values["train_batch_size"]}
    return found | ({"global_batch_size": micro * steps * max(1, devices // one)} if micro and steps else {})


def _precision(values: Mapping[str, Any]) -> dict[str, Any]:
    half, scaled, brain = values.get("precision"), values.get("fp16"), values.get("bf16")
    if half is None and isinstance(brain, Mapping) and brain.get("enabled"):
        half = "bf16"
    if half is None and isinstance(scaled, Mapping) and (scaled.get("enabled") or scaled.get("fp16")):
        half = scaled.get("type", "fp16")
    return {HALVES[str(half)]: True} if str(half) in HALVES else {}


def _sharing(values: Mapping[str, Any]) -> dict[str, Any]:
    zero, optimizer = (values.get(key) for key in ("zero_optimization", "optimizer"))
    found: dict[str, Any] = {}
    if isinstance(zero, Mapping):
        found |= {"zero_stage": zero.get("stage", 0), "overlap_grad_reduce": bool(zero.get("overlap_comm", False))}
    if isinstance(optimizer, Mapping):
        found["optimizer"] = OPTIMIZERS.get(str(optimizer.get("type", "adam")).lower(), "adam")
    return found


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The document's text with values changed, each under the spelling that the file has."""
    places = {str(key).replace("-", "_"): str(key) for key in yaml.parse(document.text, document.name).values}
    spelled = {(places.get(path[0].replace("-", "_"), path[0]), *path[1:]): value for path, value in changes.items()}
    return splice(document.text, document.name, spelled)


def new(changes: Changes) -> str:
    """A new file of settings."""
    return new_file(HEADER, changes)


def _both(*keys: str) -> tuple[str, ...]:
    return (*keys, *(key.replace("_", "-") for key in keys))


DIALECT = Dialect(
    name="gpt-neox",
    title="GPT-NeoX YAML",
    looks_for="pipe_parallel_size or pipe-parallel-size beside num_layers",
    detect=detect,
    read=read,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".yaml",
    parse=yaml.parse,
    sizes={
        "tensor": _both("model_parallel_size"),
        "pipeline": _both("pipe_parallel_size"),
        "context": _both("context_parallel_size"),
        "batch": _both("train_micro_batch_size_per_gpu"),
        "global_batch": _both("train_batch_size"),
        "micro_batches": _both("gradient_accumulation_steps"),
        "seq_length": _both("seq_length"),
        "hidden": _both("hidden_size"),
        "layers": _both("num_layers"),
        "heads": _both("num_attention_heads"),
        "kv_heads": _both("num_kv_heads"),
    },
)
