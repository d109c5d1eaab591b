"""The model section of a MindFormers YAML: which family it is, and its shape in the fields of `ModelSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfkit.config.dialects._compressed import compressed_fields
from perfkit.config.dialects._mindformers_class import further_layers_of
from perfkit.config.dialects._section import Section, shown
from perfkit.core import catalog
from perfkit.core.spec.model import Bias, ModelSpec, Norm

LAYERS, HEADS = ("num_layers", "num_hidden_layers", "n_layer"), ("num_heads", "num_attention_heads", "n_head")
KEY_VALUE_HEADS, VOCABULARY = ("n_kv_heads", "num_key_value_heads", "num_query_groups"), ("vocab_size", "padded_vocab_size")
FURTHER = ("mtp_depth", "mtp_num_layers", "num_nextn_predict_layers")
"""Names of the number of layers that predict further tokens; `offset` places them with the others."""
CHOSEN, EXPERT_WIDTH = (
    ("num_experts_per_tok", "num_experts_chosen", "moe_router_topk"),
    ("moe_intermediate_size", "moe_ffn_hidden_size"),
)
EXPERTS = ("n_routed_experts", "num_experts", "num_moe_experts", "expert_num")
OF_EXPERTS = (
    *CHOSEN,
    *EXPERT_WIDTH,
    "n_shared_experts",
    "shared_expert_num",
    "moe_shared_expert_intermediate_size",
    "use_shared_expert_gating",
    "first_k_dense_replace",
    "balance_via_topk_bias",
    "moe_router_enable_expert_bias",
)
GPT_LIKE = {"GPT2Config": 1024, "PanguAlphaConfig": 1024, "BloomConfig": 0}  # learned positions unless the file says
GLM_LIKE = ("ChatGLM2Config", "YiZhaoConfig")
BIASED_QKV = ("QwenConfig",)
UNCOUNTED_BIASES = ("TelechatConfig",)
OTHER_MODELS = ("Bert", "T5", "Vit", "Swin", "MAE", "Sam", "Blip", "Clip", "Mllama", "LlavaConfig", "CogVLM", "Qwen2VL", "Whisper")


def derived_ffn(hidden_size: int, multiple_of: int = 256, multiplier: float | None = None) -> int:
    """Ffn hidden size where a Llama config gives none: two thirds of 4h, times the multiplier, up to a multiple.

    `mindformers/models/llama/llama_layer.py`: 4096 gives 11008, 8192 with a multiplier of 1.3 gives 28672.
    """
    width = 4 * hidden_size
    if multiplier is not None:
        width = int((multiplier + 0.01) * width)
    width = int(2 * width / 3)
    return multiple_of * ((width + multiple_of - 1) // multiple_of)


def read_model(config: Section, experts: Section, names: Sequence[str]) -> ModelSpec | None:
    """The shape in `model.model_config`; None after a problem.

    `experts` is the section moe_config, `names` what the file calls the model: where the section gives no size at all, the first
    of them that the catalogue knows is taken.
    """
    kind = config.word("type", "model_type", default="")
    if config.has("vision_model") or kind.lower().startswith(tuple(name.lower() for name in OTHER_MODELS)):
        config.reading.problem(config.path("type"), f"{kind!r} is no decoder-only language model, and only these are covered")
        return None
    if not config.has(*LAYERS) and not config.has("hidden_size") and not config.has(*HEADS):
        return _from_catalogue(config, names)
    if kind.removesuffix("Config") in {name.removesuffix("Config") for name in GPT_LIKE}:
        shape = _gpt(config, kind)
    elif kind in GLM_LIKE:
        shape = _glm(config)
    else:
        shape = _llama(config, kind)
    if shape is None:
        return None
    named = replace(shape, name=names[0]) if names else shape
    further = config.integer(*FURTHER, default=0)
    packed = compressed_fields(config, named.num_layers, further)
    if "query_lora_rank" in packed:
        packed["head_size"] = config.positive_int("head_dim", default=named.value_head_size or named.head_size)
    every = replace(named, num_layers=named.num_layers + further, num_mtp_layers=further, **packed)
    return config.reading.build(lambda: _with_experts(every, config, experts))


def _from_catalogue(config: Section, names: Sequence[str]) -> ModelSpec | None:
    for name in names:
        if found := catalog.find_model(name):
            config.reading.note(f"{config.name} has no sizes: the catalogue's {found.name} is taken for {name!r}")
            untied = config.flag("untie_embeddings_and_output_weights", default=not found.tied_embeddings)
            normed = config.flag("qk_layernorm", "use_qk_norm", default=found.query_key_norm) and not found.kv_lora_rank
            further = config.integer(*FURTHER, default=found.num_mtp_layers or further_layers_of(found.name))
            layers = found.num_layers - found.num_mtp_layers + further
            return replace(found, tied_embeddings=not untied, query_key_norm=normed, num_layers=layers, num_mtp_layers=further)
    for key in (LAYERS[1], "hidden_size", HEADS[1], VOCABULARY[0]):
        config.missing(key, "a whole number")
    if names:
        tried = ", ".join(shown(name) for name in dict.fromkeys(names))
        text = f"no size is given, and the catalogue knows no model {tried}"
        config.reading.problem(config.name, f"{text}; config.json in the folder of pretrained_model_dir has them")
    return None


def _llama(config: Section, kind: str) -> ModelSpec | None:
    h, heads = _required(config, "hidden_size"), _required(config, *HEADS)
    latent = config.integer("kv_lora_rank", default=0)
    groups = config.positive_int(*KEY_VALUE_HEADS, default=heads)
    value_head, nope_head = config.integer("v_head_dim", default=0), config.integer("qk_nope_head_dim", "qk_head_dim", default=0)
    rope_head = config.integer("qk_rope_head_dim", "qk_pos_emb_head_dim", default=0)
    tied = config.flag("tie_word_embeddings", default=False)
    untied = config.flag("untie_embeddings_and_output_weights", default=False)
    if kind in UNCOUNTED_BIASES:
        config.reading.note(f"{kind}: the biases of the output and down projections are not counted")
    return config.reading.build(
        lambda: ModelSpec(
            name=kind.removesuffix("Config"),
            num_layers=_required(config, *LAYERS),
            hidden_size=h,
            num_attention_heads=heads,
            num_key_value_heads=heads if latent else groups,
            head_size=nope_head + rope_head
            if latent
            else config.positive_int("head_dim", "kv_channels", default=_head_size(config, h, heads)),
            ffn_hidden_size=_ffn(config, h),
            vocab_size=_required(config, *VOCABULARY),
            tied_embeddings=tied and not untied,
            bias=_llama_bias(config, kind),
            query_key_norm=config.flag("qk_layernorm", "use_qk_norm", default=kind.startswith("qwen3")) and not latent,
            query_lora_rank=config.integer("q_lora_rank", default=0),
            kv_lora_rank=latent,
            nope_head_size=nope_head,
            rope_head_size=rope_head,
            value_head_size=value_head,
        )
    )


def _glm(config: Section) -> ModelSpec | None:
    h, heads = _required(config, "hidden_size"), _required(config, *HEADS)
    grouped = config.flag("multi_query_attention", default=False)
    norm: Norm = "rmsnorm" if config.flag("rmsnorm", default=True) else "layernorm"
    bias: Bias = "all" if config.flag("add_bias_linear", default=False) else "none"
    if bias == "none" and config.flag("add_qkv_bias", default=False):
        bias = "qkv"
    return config.reading.build(
        lambda: ModelSpec(
            name="GLM",
            num_layers=_required(config, *LAYERS),
            hidden_size=h,
            num_attention_heads=heads,
            num_key_value_heads=config.positive_int("multi_query_group_num", default=heads) if grouped else heads,
            head_size=config.positive_int("kv_channels", default=_head_size(config, h, heads)),
            ffn_hidden_size=_required(config, "ffn_hidden_size", "intermediate_size"),
            vocab_size=_required(config, *reversed(VOCABULARY)),
            norm=norm,
            bias=bias,
        )
    )


def _gpt(config: Section, kind: str) -> ModelSpec | None:
    h, heads = _required(config, "hidden_size"), _required(config, *HEADS)
    positions = GPT_LIKE[kind]
    return config.reading.build(
        lambda: ModelSpec(
            name=kind.removesuffix("Config"),
            num_layers=_required(config, *LAYERS),
            hidden_size=h,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_size=_head_size(config, h, heads),
            ffn_hidden_size=config.positive_int("ffn_hidden_size", "intermediate_size", default=0)
            or h * config.positive_int("expand_ratio", default=4),
            vocab_size=_required(config, *VOCABULARY),
            gated_ffn=False,
            tied_embeddings=True,
            norm="layernorm",
            bias="all",
            max_position_embeddings=config.positive_int("max_position_embeddings", default=positions) if positions else 0,
            embedding_norm=kind == "BloomConfig",
        )
    )


def _with_experts(shape: ModelSpec, config: Section, experts: Section) -> ModelSpec:
    num_experts = experts.integer("expert_num", default=0) or config.integer(*EXPERTS, default=0)
    if num_experts <= 1:  # without experts what is said of them decides nothing
        experts.asked(*map(str, experts.values))
        config.asked(*OF_EXPERTS)
        return shape
    width = experts.integer("moe_intermediate_size", default=0) or config.integer(*EXPERT_WIDTH, default=0)
    width = width or shape.ffn_hidden_size
    shared = experts.integer("shared_expert_num", default=0) or config.integer("n_shared_experts", "shared_expert_num", default=0)
    wide = config.integer("moe_shared_expert_intermediate_size", default=0)  # of all shared experts together
    chosen = experts.integer("num_experts_chosen", default=0) or config.integer(*CHOSEN, default=1)
    apart = bool(shared) and wide not in (0, shared * width)
    return replace(
        shape,
        num_experts=num_experts,
        num_experts_per_token=chosen,
        expert_ffn_hidden_size=width,
        num_shared_experts=1 if apart else shared,
        shared_expert_ffn_hidden_size=wide if apart else 0,
        shared_expert_gate=_either(experts, config, "use_shared_expert_gating"),
        num_dense_layers=experts.integer("first_k_dense_replace", default=0) or config.integer("first_k_dense_replace", default=0),
        router_bias=_either(experts, config, "balance_via_topk_bias", "moe_router_enable_expert_bias"),
    )


def _either(experts: Section, config: Section, *keys: str) -> bool:
    own, shared = experts.flag(keys[0], default=False), config.flag(*keys, default=False)
    return own or shared


def _llama_bias(config: Section, kind: str) -> Bias:
    every, attention = config.flag("add_bias_linear", default=False), config.flag("has_bias", default=False)
    qkv = config.flag("qkv_has_bias", "add_qkv_bias", default=kind in BIASED_QKV)
    named = config.flag("attention_bias", default=False)
    return "all" if every else "attention" if attention else "qkv" if qkv or named else "none"


def _ffn(config: Section, hidden_size: int) -> int:
    given = config.integer("intermediate_size", "ffn_hidden_size", default=0)
    multiple, multiplier = config.positive_int("multiple_of", default=256), config.number("ffn_dim_multiplier", default=0)
    if given:
        return given
    width = derived_ffn(hidden_size, multiple, multiplier or None)
    config.reading.default("ffn_hidden_size", f"{width}, derived from hidden_size {hidden_size} and multiple_of {multiple}")
    return width


def _head_size(config: Section, hidden_size: int, heads: int) -> int:
    if hidden_size % heads:
        config.reading.problem(config.path("hidden_size"), f"{hidden_size} is not divisible by {heads} heads")
        return 1
    return hidden_size // heads


def _required(config: Section, *keys: str) -> int:
    if not config.has(*keys):
        config.missing(keys[0], "a whole number")
        return 1
    return config.positive_int(*keys, default=1)
