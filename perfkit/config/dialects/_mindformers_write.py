"""Writing MindFormers YAML: values in place, or a new file with the sections in the order of the released ones."""

from __future__ import annotations

from perfkit.config.dialects._mindformers_model import FURTHER, HEADS, KEY_VALUE_HEADS, LAYERS, VOCABULARY
from perfkit.config.dialects._mindformers_settings import CONFIG
from perfkit.config.dialects._yaml_values import block, nested
from perfkit.config.dialects.dialect import Changes, Document
from perfkit.config.dialects.splice import has_path, splice, value_at
from perfkit.config.dialects.yaml import parse

HEADER = "# Model, parallel and recompute settings; paths, data set, learning rate and callbacks are still to be added.\n"
SPELLINGS = {
    "num_layers": LAYERS,
    "mtp_depth": FURTHER,
    "num_heads": HEADS,
    "n_kv_heads": KEY_VALUE_HEADS,
    "vocab_size": VOCABULARY,
    "ffn_hidden_size": ("ffn_hidden_size", "intermediate_size"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size"),
    "param_init_type": ("param_init_type", "params_dtype"),
}
EXPERT_SPELLINGS = {
    "expert_num": ("num_experts", "n_routed_experts"),
    "num_experts_chosen": ("num_experts_per_tok",),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "shared_expert_num": ("n_shared_experts", "shared_expert_num"),
    "first_k_dense_replace": ("first_k_dense_replace",),
    "use_shared_expert_gating": ("use_shared_expert_gating",),
    "balance_via_topk_bias": ("moe_router_enable_expert_bias",),
}


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The document's text with values changed, each under the name by which the file calls it."""
    values = parse(document.text, document.name).values
    return splice(document.text, document.name, {_spelled(values, path): value for path, value in changes.items()})


def new(settings: Changes) -> str:
    """A new file of settings."""
    return HEADER + block(nested(settings))


def _spelled(values: object, path: tuple[str, ...]) -> tuple[str, ...]:
    *parents, last = path
    if tuple(parents) == CONFIG:
        return next(((*CONFIG, name) for name in SPELLINGS.get(last, ()) if value_at(values, (*CONFIG, name)) is not None), path)
    if parents == ["moe_config"] and not has_path(values, path):
        return next(((*CONFIG, name) for name in EXPERT_SPELLINGS.get(last, ()) if has_path(values, (*CONFIG, name))), path)
    return path
