"""The model of a MindSpeed-Core-MS configuration in the fields of `ModelSpec`; defaults are those of its documentation."""

from __future__ import annotations

from typing import Any

from perfkit.config.dialects._section import Section
from perfkit.core.spec.model import Bias, ModelSpec, Norm

NORMS: dict[str, Norm] = {"LayerNorm": "layernorm", "FusedLayerNorm": "layernorm", "RMSNorm": "rmsnorm", "FusedRMSNorm": "rmsnorm"}
LEARNED = ("absolute", "learned_absolute")


def read_model(config: Section, experts: Section) -> ModelSpec | None:
    """The shape in `model_config`; None after a problem."""
    h, heads, layers = (_required(config, key) for key in ("hidden_size", "num_attention_heads", "num_layers"))
    grouped = config.flag("group_query_attention", default=False)
    groups = config.positive_int("num_query_groups", default=32)
    latent = config.integer("kv_lora_rank", default=0)
    nope, rope = config.integer("qk_head_dim", default=0), config.integer("qk_pos_emb_head_dim", default=0)
    activation = config.word("hidden_act", default="gelu")
    ffn = _required(config, "ffn_hidden_size")
    norm = config.word("normalization", default="LayerNorm", allowed=tuple(NORMS))
    learned = config.word("position_embedding_type", default="absolute") in LEARNED
    if not config.has("kv_channels") and h % heads:
        config.reading.problem(config.path("hidden_size"), f"{h} is not divisible by {heads} heads")
    return config.reading.build(
        lambda: ModelSpec(
            name=config.word("model_name", default=""),
            num_layers=layers,
            hidden_size=h,
            num_attention_heads=heads,
            num_key_value_heads=groups if grouped else heads,
            head_size=nope + rope if latent else config.positive_int("kv_channels", default=max(1, h // heads)),
            ffn_hidden_size=ffn,
            vocab_size=_required(config, "vocab_size"),
            gated_ffn=config.flag("gated_linear_unit", default=activation == "swiglu"),
            tied_embeddings=not config.flag("untie_embeddings_and_output_weights", default=False),
            norm=NORMS.get(norm, "layernorm"),
            bias=_bias(config),
            max_position_embeddings=config.positive_int("max_position_embeddings", "seq_length", default=1) if learned else 0,
            embedding_norm=config.flag("embed_layernorm", default=False),
            query_key_norm=config.flag("qk_layernorm", default=False),
            query_lora_rank=config.integer("q_lora_rank", default=0),
            kv_lora_rank=latent,
            nope_head_size=nope,
            rope_head_size=rope,
            value_head_size=config.integer("v_head_dim", default=0),
            **_experts(experts, ffn),
        )
    )


def _bias(config: Section) -> Bias:
    qkv, dense = config.flag("qkv_has_bias", default=True), config.flag("out_proj_has_bias", default=True)
    if config.flag("add_bias_linear", default=False):
        return "all"
    return "attention" if qkv and dense else "qkv" if qkv else "none"


def _experts(experts: Section, ffn: int) -> dict[str, Any]:
    num_experts = experts.integer("num_experts", default=0)
    if num_experts <= 1:
        return {}
    width = experts.positive_int("moe_ffn_hidden_size", default=ffn)
    shared = experts.integer("moe_shared_expert_intermediate_size", default=0)
    alike = shared % width == 0
    return {
        "num_experts": num_experts,
        "num_experts_per_token": experts.positive_int("moe_router_topk", default=2),
        "expert_ffn_hidden_size": width,
        "num_shared_experts": shared // width if alike else 1,
        "shared_expert_ffn_hidden_size": 0 if alike else shared,
        "shared_expert_gate": experts.flag("moe_shared_expert_gate", default=False),
        "router_bias": experts.flag("moe_router_enable_expert_bias", default=False),
        "num_dense_layers": experts.integer("first_k_dense_replace", default=0),
        "expert_capacity_factor": experts.number("moe_expert_capacity_factor", default=0.0),
    }


def _required(config: Section, key: str) -> int:
    if not config.has(key):
        config.missing(key, "a whole number")
        return 1
    return config.positive_int(key, default=1)
