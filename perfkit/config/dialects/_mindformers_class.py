"""The sizes that a MindFormers model class takes where a file leaves them out (`data/mindformers_models.toml`).

Since 1.6 a file may name the class by `model_type` alone and state only what differs from it (`use_legacy: False`); files of the
trainer for PyNative always do. Older files name a class by `type`, whose sizes they state.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from perfkit.config.dialects._section import Section
from perfkit.core.resources import data_folder

SAME = (
    ("num_layers", "num_hidden_layers", "n_layer"),
    ("num_heads", "num_attention_heads", "n_head"),
    ("n_kv_heads", "num_key_value_heads", "num_query_groups"),
    ("vocab_size", "padded_vocab_size"),
    ("intermediate_size", "ffn_hidden_size"),
    ("head_dim", "kv_channels"),
    ("expert_num", "n_routed_experts", "num_experts", "num_moe_experts"),
    ("shared_expert_num", "n_shared_experts"),
    ("mtp_depth", "mtp_num_layers", "num_nextn_predict_layers"),
    ("qkv_has_bias", "attention_bias", "add_qkv_bias"),
    ("balance_via_topk_bias", "moe_router_enable_expert_bias"),
)
"""Names of one quantity (`mindformers/parallel_core/transformer_config_utils.py`): a file that has one of them leaves none out."""


def names_class(config: Mapping[str, Any]) -> bool:
    """Whether the model section names its class by `model_type`, as files for the newer models do."""
    return "type" not in config and str(config.get("model_type", "")).lower() in _classes()


def counts_further_apart(config: Mapping[str, Any]) -> bool:
    """Whether `offset` leaves out layers that predict further tokens: where the section names its class, or no size at all."""
    return names_class(config) or not any(name in config for name in (*SAME[0], "hidden_size"))


def further_layers_of(model: str) -> int:
    """Layers that predict further tokens in the class called as a model of the catalogue, as its config.json has them."""
    return int(_classes().get(model.lower().replace("-", "_"), {}).get("num_nextn_predict_layers", 0))


def with_class(config: Section, folder: str = "") -> Section:
    """The model section with the sizes of its class below it; the section alone where it names none.

    Of a Hugging Face `folder` that is not here the last part may name the class: its config.json has these sizes.
    """
    named = re.split(r"[/\\]", folder.rstrip("/\\"))[-1].lower().replace("-", "_")
    if config.has("hidden_size") and not config.has("type", "model_type") and named in _classes():
        config = Section(config.reading, config.name, {**config.values, "model_type": named})
    if not names_class(config.values):
        return config
    kind = str(config.values["model_type"])
    taken = {key: value for key, value in _classes()[kind.lower()].items() if not config.has(*_same(key))}
    if taken:
        for key, value in taken.items():
            config.reading.default(key, f"{value}: of {kind}, where the file does not state it")
    return Section(config.reading, config.name, {**config.values, **taken})


def _same(key: str) -> tuple[str, ...]:
    return next((names for names in SAME if key in names), (key,))


@cache
def _classes() -> dict[str, dict[str, Any]]:
    return tomllib.loads((data_folder() / "mindformers_models.toml").read_text(encoding="utf-8"))
