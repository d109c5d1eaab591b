"""NeMo's keys below `model` as options of Megatron, and what they say in other words: activation, tokenizer, optimizer, sharing.

Names and defaults are those of `NVIDIA/NeMo examples/nlp/language_modeling/conf/megatron_gpt_config.yaml` (1.8 to 2.0),
`megatron_base_model.py` and `megatron_gpt_model.py` beside `nemo/collections/nlp/models/language_modeling`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects.splice import Path, value_at

MARK = re.compile(
    r"^[ \t]+(?:megatron_amp_O2|mcore_gpt|encoder_seq_length|activations_checkpoint_\w+|native_amp_init_scale)[ \t]*:",
    re.MULTILINE,
)
"""Keys below `model` that only this program calls so."""
SAME = """tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size sequence_parallel
    num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels qk_layernorm add_qkv_bias
    position_embedding_type max_position_embeddings make_vocab_size_divisible_by hidden_dropout micro_batch_size global_batch_size
    moe_router_topk moe_ffn_hidden_size moe_shared_expert_intermediate_size moe_expert_capacity_factor window_size
    multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim"""
PLACES: dict[str, tuple[Path, ...]] = {
    **{name: (("model", name),) for name in SAME.split()},
    "seq_length": (("model", "data", "seq_length"), ("model", "encoder_seq_length"), ("model", "seq_length")),
    "num_experts": (("model", "num_moe_experts"),),
    "vocab_size": (("model", "override_vocab_size"),),
    "num_virtual_stages_per_pipeline_rank": (("model", "virtual_pipeline_model_parallel_size"),),
    "recompute_granularity": (("model", "activations_checkpoint_granularity"),),
    "recompute_method": (("model", "activations_checkpoint_method"),),
    "recompute_num_layers": (("model", "activations_checkpoint_num_layers"),),
    "tp_comm_overlap": (("model", "ub_tp_comm_overlap"),),
    "nnodes": (("trainer", "num_nodes"),),
    "nproc_per_node": (("trainer", "devices"),),
}
"""Where an option of Megatron stands, the place that wins first; a null there says nothing."""
GATED = ("swiglu", "geglu", "reglu", "fast-swiglu", "fast-geglu", "fast-reglu")
NORMS = {"rmsnorm": "RMSNorm", "low_precision_rmsnorm": "RMSNorm"}
DISTRIBUTED = ("distributed_fused_adam", "mcore_distributed_optim")
OPTIMIZERS = dict.fromkeys(("adam", "adamw", "fused_adam", "megatron_fused_adam", *DISTRIBUTED), "adam")
HALVES = {"bf16": "bf16", "16": "fp16", "fp16": "fp16"}
FSDP = {"full": "optim_grads_params", "hybrid": "optim_grads_params", "grad": "optim_grads"}
OTHERS = """model.activation model.bias model.normalization model.share_embeddings_and_output_weights model.mcore_gpt
    model.precision model.transformer_engine model.use_flash_attention model.fp8 model.megatron_amp_O2
    model.overlap_p2p_comm model.fsdp     model.fsdp_sharding_strategy model.fsdp_grad_reduce_dtype model.tokenizer.type
    model.tokenizer.model model.optim.name     model.optim.overlap_grad_sync model.optim.grad_sync_dtype
    model.encoder_seq_length model.data.seq_length     model.gradient_accumulation_fusion trainer.precision"""
"""Keys that are read beside those."""


def stated(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that the groups state, and under which name each stands in the file."""
    options: dict[str, Any] = {}
    names: dict[str, str] = {}
    for option, places in PLACES.items():
        place = next((one for one in places if value_at(values, one) is not None), places[-1])
        names[option] = ".".join(place)
        if (value := value_at(values, place)) is not None:
            options[option] = value
    group = values.get("model")
    model = group if isinstance(group, Mapping) else {}
    for read, name in ((_layers, "activation"), (_words, "tokenizer.type"), (_optimizer, "optim.name")):
        found = read(model)
        options |= found
        names = dict.fromkeys(found, f"model.{name}") | names
    return options | _precision(values, model), names


def read_names() -> set[str]:
    """The dotted names of all places that are read: what a place that wins leaves unsaid is read too."""
    return {".".join(place) for places in PLACES.values() for place in places} | set(OTHERS.split())


def wide_weights(values: Mapping[str, Any]) -> bool:
    """Whether products are in half precision of weights that are kept in fp32 (autocast), without a copy beside them."""
    return not value_at(values, ("model", "megatron_amp_O2")) and not value_at(values, ("model", "fsdp"))


def _layers(model: Mapping[str, Any]) -> dict[str, Any]:
    fused = bool(model.get("transformer_engine") or model.get("mcore_gpt") or model.get("use_flash_attention"))
    found: dict[str, Any] = {
        "swiglu": str(model.get("activation", "gelu")) in GATED,
        "normalization": NORMS.get(str(model.get("normalization", "layernorm")), "LayerNorm"),
        "disable_bias_linear": model.get("bias") is False,
        "untie_embeddings_and_output_weights": model.get("share_embeddings_and_output_weights") is False,
        "attention_backend": "flash" if fused else "unfused",
    }
    if model.get("virtual_pipeline_model_parallel_size") not in (None, 1):
        found["no_overlap_p2p_communication"] = not model.get("overlap_p2p_comm", False)
    if model.get("num_query_groups") is not None:
        found["group_query_attention"] = True
    method = model.get("activations_checkpoint_method")
    if method and "activations_checkpoint_granularity" not in model:
        found["recompute_granularity"] = "full"  # before 1.11 there were no parts to choose
    if method == "block" and model.get("activations_checkpoint_num_layers") == 0:
        found["recompute_granularity"] = None
    return found


def _words(model: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = model.get("tokenizer")
    if not isinstance(tokenizer, Mapping):
        return {}
    kind = tokenizer.get("type")
    if tokenizer.get("library") == "megatron":
        return {"tokenizer_type": str(kind)}
    return {"tokenizer_model": str(tokenizer.get("model") or kind or "")}


def _optimizer(model: Mapping[str, Any]) -> dict[str, Any]:
    """Optimizer, sharing of its states, precision of gradients and whether they travel beside the backward pass."""
    group = model.get("optim")
    optim: Mapping[str, Any] = group if isinstance(group, Mapping) else {}
    name = str(optim.get("name", "fused_adam"))
    found: dict[str, Any] = {"optimizer": OPTIMIZERS.get(name, name), "use_distributed_optimizer": name in DISTRIBUTED}
    if model.get("fsdp"):
        reduced = str(model.get("fsdp_grad_reduce_dtype", "fp32"))
        strategy = str(model.get("fsdp_sharding_strategy", "full"))
        found |= {"data_parallel_sharding_strategy": FSDP.get(strategy, strategy), "overlap_grad_reduce": True}
    else:
        reduced = str(optim.get("grad_sync_dtype", "fp32"))
        found["overlap_grad_reduce"] = bool(optim.get("overlap_grad_sync", name == "distributed_fused_adam"))
        if name not in DISTRIBUTED:  # copies of the weights gather gradients as they come, but for these three
            late = model.get("pipeline_model_parallel_size", 1) != 1
            late = late or model.get("sequence_parallel") or model.get("gradient_accumulation_fusion")
            found["overlap_grad_reduce"] = bool(model.get("megatron_amp_O2")) and not late
    found["grad_reduce_in_bf16"] = reduced in ("bf16", "bfloat16")
    return found


def _precision(values: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    stated = model.get("precision", value_at(values, ("trainer", "precision")))
    half = HALVES.get(str(stated).removesuffix("-mixed").removesuffix("-true"))
    found: dict[str, Any] = {half: True} if half else {}
    if model.get("fp8") and (model.get("transformer_engine") or model.get("mcore_gpt")):
        found["fp8"] = "hybrid"
    if half == "fp16":
        found["accumulate_allreduce_grads_in_fp32"] = not model.get("megatron_amp_O2")
    return found
