"""What a plan says in GPT-NeoX's keys: the inverse of the reader; None is a key that must not stand there."""

from __future__ import annotations

from typing import Any

from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """The plan as values by key path; what the keys cannot say is found when the text is read back."""
    work, parallel = plan.workload, plan.parallel
    stage = parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0
    values: dict[str, Any] = {
        "pipe_parallel_size": parallel.pipeline_parallel_size,
        "model_parallel_size": parallel.tensor_parallel_size,
        "context_parallel_size": parallel.context_parallel_size if parallel.context_parallel_size > 1 else None,
        "sequence_parallel": True if parallel.sequence_parallel else None,
        **_model(plan.model),
        "seq_length": work.seq_length,
        "max_position_embeddings": plan.model.max_position_embeddings or work.seq_length,
        "train_batch_size": work.global_batch_size,
        "train_micro_batch_size_per_gpu": work.micro_batch_size,
        "gradient_accumulation_steps": plan.num_micro_batches,
        "precision": {"bfloat16": "bfloat16", "float16": "fp16", "float32": "fp32"}.get(work.dtype, "bfloat16"),
        "te_fp8_format": "hybrid" if work.dtype == "float8" else None,
        "fp32_allreduce": True if plan.optimizer.gradient_dtype == "float32" else None,
        "hidden_dropout": 0.1 if work.dropout else 0,
        "checkpoint_activations": plan.recompute.all_layers,
    }
    flash = work.attention_kernel != "unfused"
    values["attention_config"] = [[["flash"], plan.model.num_layers]] if flash else None
    optimizer = plan.optimizer.name.lower()
    return {(name,): value for name, value in values.items()} | {
        ("zero_optimization", "stage"): stage,
        ("zero_optimization", "overlap_comm"): bool(plan.software.overlap_dp),
        ("optimizer", "type"): optimizer if optimizer in ("sgd", "lion") else "Adam",
    }


def _model(model: ModelSpec) -> dict[str, Any]:
    grouped = model.num_key_value_heads != model.num_attention_heads
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_key_value_heads if grouped else None,
        "intermediate_size": 3 * model.ffn_hidden_size if model.gated_ffn else model.ffn_hidden_size,
        "activation": "swiglu" if model.gated_ffn else "gelu",
        "norm": model.norm,
        "pos_emb": "learned" if model.max_position_embeddings else "rotary",
        "no_weight_tying": not model.tied_embeddings,
        "use_qk_layernorm": True if model.query_key_norm else None,
        "use_bias_in_attn_linear": model.bias == "all",
        "use_bias_in_mlp": model.bias == "all",
        "sliding_window_width": model.attention_window - 1 if model.attention_window else None,
        "make_vocab_size_divisible_by": 1,
        "moe_num_experts": model.num_experts or None,
        "moe_top_k": model.num_experts_per_token if model.num_experts else None,
    }
