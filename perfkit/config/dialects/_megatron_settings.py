"""What a plan says in Megatron's and MindSpeed's options: the inverse of the reader; None is an option that must not be given.

Recomputation is one number for every stage there: where stages differ, the largest is taken, which needs the least memory and the
most time. What the options cannot say is found when the text is read back.
"""

from __future__ import annotations

import math
from typing import Any

from perfkit.config.dialects._adapters import MEGATRON, modules_of
from perfkit.config.dialects.compare import full_everywhere
from perfkit.config.dialects.megatron_stages import ACTIVATION_PATTERNS, ATTENTION_MODULES, layout_text
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts

Options = dict[str, Any]
LARGEST_DIVISOR = 128
USUAL_LIMIT = 7.0  # of gpt-oss (arXiv 2508.10925, section 2.1)


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """The plan as values by option name, with `_` for `-`; True is an option without a value."""
    options = {
        "world_size": plan.num_devices,
        **_model(plan.model, plan.workload.seq_length),
        **_vocabulary(plan),
        **_experts(plan.model),
        **_adapters(plan.model),
        **_workload(plan),
        **_parallel(plan),
        **_stages(plan),
        **_recompute(plan),
        **_optimizer(plan),
        **_overlaps(plan),
    }
    return {(name,): value for name, value in options.items()}


def _flag(on: bool) -> bool | None:
    return True if on else None


def _model(model: ModelSpec, seq_length: int) -> Options:
    latent = bool(model.kv_lora_rank)
    grouped = model.num_key_value_heads != model.num_attention_heads
    usual_head = model.num_attention_heads * model.head_size == model.hidden_size
    return {
        "num_layers": model.num_layers - model.num_mtp_layers,
        "mtp_num_layers": model.num_mtp_layers or None,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "group_query_attention": _flag(grouped),
        "num_query_groups": model.num_key_value_heads if grouped else None,
        "kv_channels": None if usual_head or latent else model.head_size,
        "swiglu": _flag(model.gated_ffn),
        "activation_func_clamp_value": USUAL_LIMIT if model.clamped_gate else None,
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "position_embedding_type": _positions(model),
        "max_position_embeddings": model.max_position_embeddings or seq_length,
        "disable_bias_linear": _flag(model.bias != "all"),
        "add_qkv_bias": _flag(model.bias in ("qkv", "attention")),
        "add_dense_bias": _flag(model.bias == "attention"),
        "untie_embeddings_and_output_weights": _flag(not model.tied_embeddings),
        "embed_layernorm": _flag(model.embedding_norm),
        "qk_layernorm": _flag(model.query_key_norm),
        "multi_latent_attention": _flag(latent),
        "window_size": f"{model.attention_window - 1},0" if model.attention_window else None,
        "window_attn_skip_freq": _skipped(model),
        "q_lora_rank": model.query_lora_rank or None,
        "kv_lora_rank": model.kv_lora_rank or None,
        "qk_head_dim": model.nope_head_size if latent else None,
        "qk_pos_emb_head_dim": model.rope_head_size if latent else None,
        "v_head_dim": model.value_head_size if latent else None,
    }


def _adapters(model: ModelSpec) -> Options:
    """Rank and targets of MindSpeed-LLM; it has no name for a part of a fused matrix."""
    modules = modules_of(model.adapters, MEGATRON) if model.adapters else []
    return {"lora_r": model.adapters.rank, "lora_target_modules": modules} if model.adapters and modules else {}


def _positions(model: ModelSpec) -> str:
    return "learned_absolute" if model.max_position_embeddings else "yarn" if model.scaled_positions else "rope"


def _skipped(model: ModelSpec) -> str | int | None:
    """Which layers have the window: one in so many has none where that says it, else the first ones listed."""
    whole, layers = model.num_layers - model.num_windowed_layers, model.num_layers
    if not model.attention_window or not whole:
        return None
    if layers // (layers // whole) == whole:
        return layers // whole
    return f"([1]*{model.num_windowed_layers}+[0]*{whole})"


def _vocabulary(plan: Plan) -> Options:
    """A vocabulary that stays as it is when it is padded to a multiple of this many entries for each tensor-parallel device."""
    size, split = plan.model.vocab_size, plan.parallel.tensor_parallel_size
    if size % split:
        return {"padded_vocab_size": size}
    return {"vocab_size": size, "make_vocab_size_divisible_by": math.gcd(size // split, LARGEST_DIVISOR)}


def _experts(model: ModelSpec) -> Options:
    if not model.num_experts:
        return {"num_experts": None}
    width = model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size
    dense, layers = model.num_dense_layers, model.num_layers - model.num_mtp_layers
    return {
        "num_experts": model.num_experts,
        "moe_router_topk": model.num_experts_per_token,
        "moe_ffn_hidden_size": model.expert_ffn_hidden_size,
        "moe_shared_expert_intermediate_size": model.num_shared_experts * width or None,
        "moe_shared_expert_gate": _flag(model.shared_expert_gate),
        "moe_router_enable_expert_bias": _flag(model.router_bias),
        "moe_expert_capacity_factor": model.expert_capacity_factor or None,
        "moe_layer_freq": f"([0]*{dense}+[1]*{layers - dense})" if dense else None,
    }


def _workload(plan: Plan) -> Options:
    work = plan.workload
    return {
        "seq_length": work.seq_length,
        "micro_batch_size": work.micro_batch_size,
        "global_batch_size": work.global_batch_size,
        "bf16": _flag(work.dtype == "bfloat16"),
        "fp16": _flag(work.dtype == "float16"),
        "attention_backend": "flash" if work.attention_kernel == "flash" else "unfused",
        "attention_dropout": 0.1 if work.dropout else 0.0,
        "hidden_dropout": 0.1 if work.dropout else 0.0,
    }


def _parallel(plan: Plan) -> Options:
    parallel = plan.parallel
    shards, replicas = parallel.optimizer_shard_size, parallel.data_parallel_size * parallel.context_parallel_size
    copies = replicas // shards if shards > 1 and replicas % shards == 0 else 1
    strategy = {2: "optim_grads", 3: "optim_grads_params"}.get(parallel.optimizer_shard_level) if shards > 1 else None
    words = {"ring": "p2p", "ulysses": "a2a", "hybrid": "a2a+p2p"}
    split, inner = parallel.context_parallel_size > 1, parallel.ulysses_size
    return {
        "tensor_model_parallel_size": parallel.tensor_parallel_size,
        "pipeline_model_parallel_size": parallel.pipeline_parallel_size,
        "context_parallel_size": parallel.context_parallel_size,
        "cp_comm_type": words[parallel.context_parallel_algorithm] if split else None,
        "hierarchical_context_parallel_sizes": [inner, parallel.context_parallel_size // inner] if split and inner else None,
        "expert_model_parallel_size": parallel.expert_parallel_size,
        "expert_tensor_parallel_size": parallel.expert_tensor_parallel_size or None,
        "sequence_parallel": _flag(parallel.sequence_parallel),
        "use_distributed_optimizer": _flag(shards > 1),
        "num_distributed_optimizer_instances": copies if copies > 1 else None,
        "use_megatron_fsdp": _flag(strategy is not None),
        "data_parallel_sharding_strategy": strategy,
    }


def _stages(plan: Plan) -> Options:
    rows, further = plan.stage_layers, plan.model.num_mtp_layers
    *others, last = [count for row in rows for count in row]
    even = len({*others, last - further}) == 1
    return {
        "num_virtual_stages_per_pipeline_rank": len(rows) if even and len(rows) > 1 else None,
        "num_layers_per_virtual_pipeline_stage": None,
        "pipeline_model_parallel_layout": None if even else layout_text(rows, further),
        "decoder_first_pipeline_num_layers": None,
        "decoder_last_pipeline_num_layers": None,
        "num_layer_list": None,
    }


def _recompute(plan: Plan) -> Options:
    recompute, layers = plan.recompute, plan.stage_layers
    everywhere, block = full_everywhere(recompute, layers), _largest(recompute.full_layers)
    modules = ["core_attn"] if recompute.attention_core else []
    modules += ["mlp"] if "feed_forward" in recompute.operators else []
    patterns = [counts for pattern, counts in recompute.operators.items() if pattern in ACTIVATION_PATTERNS]
    products = max((_largest(counts, recompute.full_layers) for counts in patterns), default=0)
    selective = modules and not everywhere and not block
    return {
        "recompute_granularity": "full" if everywhere or block else "selective" if selective else None,
        "recompute_method": "uniform" if everywhere else "block" if block else None,
        "recompute_num_layers": 1 if everywhere else block or None,
        "recompute_modules": modules if selective and modules != list(ATTENTION_MODULES) else None,
        "recompute_activation_function": _flag(products > 0 and not everywhere),
        "recompute_activation_function_num_layers": products
        if products and not everywhere and products < max(map(max, layers))
        else None,
        "recompute_activations": None,
    }


def _overlaps(plan: Plan) -> Options:
    software, interleaved = plan.software, plan.parallel.virtual_pipeline_parallel_size > 1
    return {
        "overlap_grad_reduce": _flag(software.overlap_dp is True),
        "tp_comm_overlap": _flag(software.overlap_tp is True),
        "no_overlap_p2p_communication": _flag(interleaved and software.overlap_pp is False),
        "overlap_moe_expert_parallel_comm": _flag(software.overlap_ep is True),
    }


def _largest(counts: Counts, less: Counts = ()) -> int:
    """The largest count of any stage, of layers beyond those in `less`."""
    return max(
        (count - (less[chunk][stage] if less else 0) for chunk, row in enumerate(counts) for stage, count in enumerate(row)),
        default=0,
    )


def _optimizer(plan: Plan) -> Options:
    spec, half = plan.optimizer, plan.workload.dtype == "float16"
    return {
        "optimizer": spec.name.lower() if spec.name.lower() in ("sgd", "lion", "muon") else "adam",
        "accumulate_allreduce_grads_in_fp32": _flag(half and spec.gradient_dtype == "float32"),
        "grad_reduce_in_bf16": _flag(spec.gradient_dtype == "bfloat16"),
    }
