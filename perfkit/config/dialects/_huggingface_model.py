"""The model of a Hugging Face `config.json` in the fields of `ModelSpec`.

Defaults are those of the configuration classes (`huggingface/transformers src/transformers/models/*/configuration_*.py`): whether
embeddings are tied is a matter of the family, key and value heads are as many as query heads, a head is hidden size over heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.config.dialects._compressed import RANK, compressed_fields
from perfkit.config.dialects._section import Section
from perfkit.core.roots import is_allowed
from perfkit.core.spec.model import Bias, ModelSpec, Norm

FILE, MAX_BYTES = "config.json", 1_000_000
LAYERS, HIDDEN = ("num_hidden_layers", "num_layers", "n_layer", "n_layers"), ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KEY_VALUE_HEADS = ("num_key_value_heads", "n_kv_heads", "multi_query_group_num", "num_kv_heads", "num_query_groups")
FFN = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
EXPERTS, CHOSEN = (
    ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
)
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
PLAIN = ("gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "phi", "gpt_bigcode", "starcoder2", "codegen")
"""Families whose feed-forward has two matrices."""
UNGATED_ACTIVATIONS = ("relu2", "xielu")
"""Activations of families whose feed-forward has two matrices (Arcee, Apertus, Nemotron, Persimmon)."""
LEARNED = ("gpt2", "gpt_neo", "opt", "gpt_bigcode")
TIED = (
    "gpt2",
    "gpt_neo",
    "gptj",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "gpt_bigcode",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "cohere",
)
ALL_BIASES = ("gpt2", "gpt_oss", "gpt_neo", "gptj", "opt", "bloom", "phi", "gpt_bigcode", "starcoder2", "codegen", "gpt_neox")
QKV_BIASES = ("qwen", "qwen2", "qwen2_moe", "chatglm")
NORMED_HEADS = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text", "olmo2")
OTHER = ("bert", "roberta", "t5", "vit", "clip", "whisper", "bart", "mamba", "xlnet", "electra", "deberta", "wav2vec2", "dinov2")
SWITCHED = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
"""Families that have a window only where `use_sliding_window` says so, from layer `max_window_layers` on."""
WINDOWED = {
    "mistral": 1,
    "mixtral": 1,
    "phi3": 1,
    "starcoder2": 1,
    "gemma2": 2,
    "gpt_oss": 2,
    "cohere2": 4,
    "gemma3": 6,
    "gemma3_text": 6,
}
"""One layer in so many attends to all tokens (1: none does), where the file does not list them."""
UNCOUNTED = dict.fromkeys(
    ("bamba", "falcon_h1", "falcon_mamba", "jamba", "granitemoehybrid", "nemotron_h", "zamba", "zamba2"), "state-space layers"
)
UNCOUNTED |= dict.fromkeys(("recurrent_gemma", "rwkv", "xlstm", "hrm_text", "dory"), "recurrent layers")
UNCOUNTED |= dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), "layers of convolutions")
UNCOUNTED |= dict.fromkeys(("gemma3n_text", "gemma3n", "gemma4_text", "gemma4"), "inputs of their own to each layer")
UNCOUNTED |= {
    "doge": "experts of single neurons",
    "jetmoe": "experts in attention",
    "longcat_flash": "two blocks of attention a layer",
    "moshi": "a decoder of its own for depth",
}
"""What a family has that no field of a model says: counted as usual blocks it would be off by tens of percent."""
OTHER_NAMES = (
    *("big_bird", "biogpt", "camembert", "cpmant", "ctrl", "data2vec-text", "ernie", "git", "megatron-bert", "openai-gpt"),
    *("rembert", "roc_bert", "roformer", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Families that are no decoders of the usual form, by their whole name."""
COMPARED = (
    *("apertus", "apertus1p5_text", "arcee", "aria_text", "axk1", "baichuan", "bitnet", "bloom", "chatglm", "codegen"),
    *("cohere", "cohere2", "cohere2_moe", "cwm", "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4"),
    *("diffllama", "emu3", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "exaone_moe", "falcon", "flex_olmo", "gemma", "gemma2"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neo"),
    *("gpt_neox", "gpt_oss", "gptj", "granite", "granite_swa", "granitemoe", "granitemoe_swa", "granitemoeshared", "helium"),
    *("hy_v3", "hyperclovax", "internlm2", "internlm3", "jais2", "kimi_k2", "laguna", "llama", "llama4", "llama4_text"),
    *("mellum", "mimo_v2_flash", "minicpm3", "minimax_m2", "ministral3", "mistral", "mixtral", "mllama", "mpt", "nanochat"),
    *("nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen", "qwen2"),
    *("qwen2_moe", "qwen3", "qwen3_moe", "sarvam_mla", "sarvam_moe", "seed_oss", "smollm3", "solar_open", "stablelm"),
    *("starcoder2", "vaultgemma", "yi", "youtu"),
)
"""Families whose parameters were compared with those that the library builds (within 0.5 %)."""
LINEAR_CHUNK = 64
"""Tokens that kernels of linear attention take at once (flash-linear-attention, `chunk_size`)."""
INNER = ("text_config", "llm_config", "language_config")


def file_of_model(folder: Path) -> Path | None:
    """The config.json of a folder that a configuration names; None where there is none, or none that may be opened."""
    file = folder / FILE
    try:
        return file if is_allowed(file) and file.is_file() and file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):  # a name that no folder can have
        return None


def inner(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The language model of a configuration, which may stand in a section of its own, and the name of that section."""
    for name in INNER:
        if isinstance(values.get(name), Mapping):
            return values[name], name
    return values, ""


def family_of(config: Section) -> str:
    """The family that the file names."""
    return config.word("model_type", default="").lower()


def read_model(config: Section, name: str = "") -> ModelSpec | None:
    """The shape of the model; None after a problem."""
    family = family_of(config)
    if without := UNCOUNTED.get(family):
        config.reading.problem(config.path("model_type"), f"{family} has {without}, which nothing here counts yet")
        return None
    if family.startswith(OTHER) or family in OTHER_NAMES or config.flag("is_encoder_decoder", default=False):
        config.reading.problem(
            config.path("model_type"), f"{family!r} is no decoder-only language model, and only these are covered"
        )
        return None
    h, heads, layers = (_required(config, keys) for keys in (HIDDEN, HEADS, LAYERS))
    latent, nope = config.integer("kv_lora_rank", default=0), config.integer("qk_nope_head_dim", default=0)
    rope = config.integer("qk_rope_head_dim", default=0)
    if not config.has("head_dim", "kv_channels") and not latent and h % heads:
        config.reading.problem(config.path(HIDDEN[0]), f"{h} is not divisible by {heads} heads")
    head = config.positive_int("head_dim", "kv_channels", default=max(1, h // heads))
    ungated = config.word("hidden_act", "hidden_activation", default="") in UNGATED_ACTIVATIONS and family != "bitnet"
    gated = family not in PLAIN and not ungated
    if family not in COMPARED:
        told = f"{family or 'none'}: counted with the blocks of Llama and its mixtures; nobody compared them"
        config.reading.default("model_type", told)
    ffn = (
        config.integer(*FFN, default=0) or (config.integer("moe_intermediate_size", default=0) if config.has(*RANK) else 0) or 4 * h
    )
    learned = family in LEARNED
    positions = config.positive_int("n_positions", "max_position_embeddings", default=1024) if learned else 0
    return config.reading.build(
        lambda: ModelSpec(
            name=name or family,
            num_layers=layers,
            hidden_size=h,
            num_attention_heads=heads,
            head_size=nope + rope if latent else head,
            ffn_hidden_size=ffn,
            vocab_size=_required(config, ("vocab_size", "padded_vocab_size")),
            gated_ffn=gated,
            scaled_positions=not latent and _is_scaled(config),
            clamped_gate=gated and (family == "gpt_oss" or config.number("swiglu_limit", default=0.0) > 0),
            tied_embeddings=config.flag("tie_word_embeddings", default=family in TIED),
            norm=_norm(config),
            bias=_bias(config, family),
            max_position_embeddings=positions,
            embedding_norm=family == "bloom",
            **_experts(config, ffn, layers),
            **{
                "num_key_value_heads": _key_value_heads(config, heads),
                "query_key_norm": config.flag("use_qk_norm", "qk_layernorm", default=family in NORMED_HEADS),
                "query_lora_rank": config.integer("q_lora_rank", default=0),
                "kv_lora_rank": latent,
                "nope_head_size": nope,
                "rope_head_size": rope,
                "value_head_size": config.integer("v_head_dim", default=0),
                **_windows(config, family, layers),
                **compressed_fields(config, layers),
            },
        )
    )


def _is_scaled(config: Section) -> bool:
    """Whether positions are those of YaRN with a factor on attention, which is none where `mscale` is `mscale_all_dim`."""
    stated = config.raw("rope_scaling", "rope_parameters")
    if not isinstance(stated, dict) or "yarn" not in (stated.get("rope_type"), stated.get("type")):
        return False
    return not stated.get("mscale") or stated.get("mscale") != stated.get("mscale_all_dim")


def _windows(config: Section, family: str, layers: int) -> dict[str, Any]:
    """The sliding window and how many layers have it (transformers: `layer_types`, else as the family's model builds them)."""
    window = config.integer("sliding_window", default=0)
    kinds = config.raw("layer_types")
    off = family in SWITCHED and not config.flag("use_sliding_window", default=False)
    first, every = config.integer("max_window_layers", default=0), config.integer("sliding_window_pattern", default=0)
    if not window or off:
        return _linear(config, kinds, layers)
    if isinstance(kinds, list):
        count = min(layers, kinds.count("sliding_attention"))
    elif family in SWITCHED:
        count = max(0, layers - first)
    else:
        every = every or WINDOWED.get(family, 0)
        count = layers - layers // every if every > 1 else layers if every else 0
    return {"attention_window": window, "num_windowed_layers": count} if count else {}


def _linear(config: Section, kinds: Any, layers: int) -> dict[str, Any]:
    """Layers of linear attention, as far as they differ in time: they work as over a window, however long the sequence is.

    To read and to update a state of keys by values costs a token as much as to attend to as many others as a key has elements;
    within a chunk it attends to all before it (arXiv 2412.06464, the chunkwise form). Their own projections are not counted.
    """
    every = config.integer("full_attention_interval", default=0)
    listed = kinds.count("linear_attention") if isinstance(kinds, list) else 0
    count = min(layers, listed or (layers - layers // every if every > 1 else 0))
    width = config.integer("linear_key_head_dim", default=0) if count else 0
    return {"attention_window": width + LINEAR_CHUNK, "num_windowed_layers": count} if width else {}


def _key_value_heads(config: Section, heads: int) -> int:
    stated = config.positive_int(*KEY_VALUE_HEADS, default=heads)
    grouped = config.flag("new_decoder_architecture", default=False)
    return 1 if config.flag("multi_query", default=False) and not grouped else stated


def _norm(config: Section) -> Norm:
    root = config.has("rms_norm_eps") or config.flag("rmsnorm", default=False)
    config.raw("rms_norm_eps")
    return "rmsnorm" if root or not config.has("layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon") else "layernorm"


def _bias(config: Section, family: str) -> Bias:
    stated = config.raw("attention_bias")
    if family in ALL_BIASES or config.flag("mlp_bias", default=False) or config.flag("add_bias_linear", default=False):
        return "all"
    if family in QKV_BIASES or config.flag("add_qkv_bias", default=False) or config.flag("qkv_bias", default=False):
        return "qkv"
    return "qkv" if stated is True and family.startswith(("glm", "qwen")) else "attention" if stated is True else "none"


def _experts(config: Section, ffn: int, layers: int) -> dict[str, Any]:
    num_experts = config.integer(*EXPERTS, default=0)
    if num_experts <= 1:
        return {}
    width = config.integer("moe_intermediate_size", default=0) or ffn
    shared = config.integer(*SHARED, default=0)
    shared_width = config.integer("shared_expert_intermediate_size", default=0)
    return {
        "num_experts": num_experts,
        "num_experts_per_token": config.positive_int(*CHOSEN, default=2),
        "expert_ffn_hidden_size": width,
        "num_shared_experts": shared or (1 if shared_width or family_of(config).startswith("llama4") else 0),
        "shared_expert_ffn_hidden_size": shared_width if shared_width and shared_width != width else 0,
        "shared_expert_gate": bool(shared_width),
        "router_bias": config.word("topk_method", default="") == "noaux_tc" or config.flag("use_expert_bias", default=False),
        "num_dense_layers": _dense_layers(config, layers),
    }


def _dense_layers(config: Section, layers: int) -> int:
    """Leading layers without experts; others than leading ones are said not to be covered."""
    leading = config.integer("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    step = config.positive_int("decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step", default=1)
    only, kinds = config.raw("mlp_only_layers"), config.raw("mlp_layer_types")
    if isinstance(kinds, list):
        only = [number for number, kind in enumerate(kinds) if kind == "dense"]
    if isinstance(only, list) and only:
        if sorted(only) == list(range(len(only))):
            return max(leading, len(only))
        config.reading.default(
            "num_dense_layers", f"{leading}: layers {only} have no experts, which only leading layers can have here"
        )
    if step > 1:
        config.reading.default("num_dense_layers", f"{leading}: only every {step}th layer has experts; all are counted with them")
    return min(leading, layers)


def _required(config: Section, keys: tuple[str, ...]) -> int:
    if not config.has(*keys):
        config.missing(keys[0], "a whole number")
        return 1
    return config.positive_int(*keys, default=1)
