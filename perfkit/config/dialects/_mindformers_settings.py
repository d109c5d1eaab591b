"""What a plan says in the keys of a MindFormers YAML: the inverse of the reader.

Layers become `offset` against an even split, recompute counts become lists (one, or one a chunk). Keys without effect, such as
micro_batch_num without stages, are left out, so that a file's own value stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects._adapters import MINDFORMERS, modules_of
from perfkit.config.dialects._mindformers_class import counts_further_apart
from perfkit.config.dialects._mindformers_lists import DEFAULT_SELECT
from perfkit.config.dialects.compare import full_everywhere
from perfkit.config.dialects.memory_text import POOL_KEY, size_text
from perfkit.config.dialects.splice import value_at
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts

Settings = dict[tuple[str, ...], Any]
CONFIG = ("model", "model_config")
CONTEXT_WORDS = {"ring": "colossalai_cp", "ulysses": "ulysses_cp", "hybrid": "hybird_cp"}
ATTENTION_CORE = r"attention\.flash_attention"
CORE_PATTERNS = {
    "flash": (ATTENTION_CORE,),
    "unfused": (r"attention\.batch_matmul_q_k", r"attention\.softmax", r"attention\.batch_matmul"),
}


def settings(plan: Plan) -> Settings:
    """The plan as values by key path, in the order of the released files."""
    return {
        ("use_parallel",): plan.num_devices > 1,
        ("trainer", "model_name"): plan.model.name or "model",
        **_batch(plan),
        ("optimizer", "type"): plan.optimizer.name,
        **_parallel(plan),
        **_model(plan),
        **_experts(plan.model),
        **_adapters(plan.model),
        **_recompute(plan),
        **_context(plan),
    }


def _context(plan: Plan) -> Settings:
    """The pool's limit, and the copies that hide collectives; what a plan leaves open stays as the file has it."""
    limit, found = plan.memory_limit, Settings()
    if limit is not None and limit.limit_bytes is not None and limit.part == "pool":
        found[POOL_KEY] = size_text(limit.limit_bytes)
    if plan.software.overlap_tp is not None:
        found[*CONFIG, "fine_grain_interleave"] = 2 if plan.software.overlap_tp else 1
    return found


def _adapters(model: ModelSpec) -> Settings:
    """Adapters as a pattern of the names of modules."""
    if model.adapters is None:
        return {}
    pattern = "|".join(f".*{name}" for name in modules_of(model.adapters, MINDFORMERS))
    stated = {"pet_type": "lora", "lora_rank": model.adapters.rank, "target_modules": pattern}
    return {(*CONFIG, "pet_config", key): value for key, value in stated.items()}


def _batch(plan: Plan) -> Settings:
    found: Settings = {("runner_config", "batch_size"): plan.workload.micro_batch_size}
    if plan.parallel.pipeline_parallel_size == 1:
        found["runner_config", "gradient_accumulation_steps"] = plan.num_micro_batches
    return found


def _parallel(plan: Plan) -> Settings:
    parallel = plan.parallel
    found: Settings = {}
    split = parallel.num_devices > parallel.data_parallel_size or parallel.expert_parallel_size > 1
    if split or parallel.micro_batch_interleave_size > 1 or plan.num_devices == 1:
        found["parallel", "parallel_mode"] = 1
    sizes: Settings = {
        ("parallel", "enable_parallel_optimizer"): parallel.optimizer_shard_size > 1,
        ("parallel", "parallel_optimizer_config", "optimizer_weight_shard_size"): _shard_size(plan),
        ("parallel", "parallel_optimizer_config", "optimizer_level"): f"level{parallel.optimizer_shard_level}",
        ("parallel", "pipeline_config", "pipeline_interleave"): parallel.virtual_pipeline_parallel_size > 1,
        ("parallel", "pipeline_config", "pipeline_scheduler"): "seqpipe" if parallel.sequence_chunks > 1 else "1f1b",
        ("parallel_config", "data_parallel"): parallel.data_parallel_size,
        ("parallel_config", "model_parallel"): parallel.tensor_parallel_size,
        ("parallel_config", "pipeline_stage"): parallel.pipeline_parallel_size,
        ("parallel_config", "context_parallel"): parallel.context_parallel_size,
        ("parallel_config", "expert_parallel"): parallel.expert_parallel_size,
        ("parallel_config", "use_seq_parallel"): parallel.sequence_parallel,
        ("parallel_config", "context_parallel_algo"): CONTEXT_WORDS[parallel.context_parallel_algorithm],
        ("parallel_config", "ulysses_degree_in_cp"): parallel.ulysses_size or 1,
        ("parallel_config", "seq_split_num"): parallel.sequence_chunks,
        ("micro_batch_interleave_num",): parallel.micro_batch_interleave_size,
    }
    found |= sizes
    if parallel.pipeline_parallel_size > 1:
        found["parallel_config", "micro_batch_num"] = plan.num_micro_batches
    return found | {(*CONFIG, "pp_interleave_num"): parallel.virtual_pipeline_parallel_size, (*CONFIG, "offset"): _offset(plan)}


def _shard_size(plan: Plan) -> int:
    """-1 stands for all replicas, which is also what a plan without sharding says."""
    size = plan.parallel.optimizer_shard_size
    return -1 if size in (1, plan.parallel.data_parallel_size) else size


def _offset(plan: Plan) -> Any:
    rows, document = plan.stage_layers, plan.document
    section = value_at(document.values, CONFIG) if document is not None and document.dialect == "mindformers" else None
    apart = plan.model.num_mtp_layers if isinstance(section, Mapping) and counts_further_apart(section) else 0
    average = (plan.model.num_layers - apart) // (len(rows) * len(rows[0]))
    offset = [[count - average for count in row] for row in rows]
    offset[-1][-1] -= apart  # a file that names the model's class counts them with the last layer
    if not any(map(any, offset)):
        return 0
    return _short(offset)


def _model(plan: Plan) -> Settings:
    model, work = plan.model, plan.workload
    family = _glm if _is_glm(model) else _gpt if _is_gpt(model) else _llama
    values = {
        **family(model),
        "seq_length": work.seq_length,
        "compute_dtype": work.dtype,
        "param_init_type": "float32" if plan.optimizer.master_weights else plan.optimizer.gradient_dtype,
        "use_flash_attention": work.attention_kernel == "flash",
    }
    return {(*CONFIG, key): value for key, value in values.items()}


def _is_gpt(model: ModelSpec) -> bool:
    return not model.gated_ffn or model.max_position_embeddings > 0 or model.embedding_norm


def _is_glm(model: ModelSpec) -> bool:
    return model.gated_ffn and model.norm != "rmsnorm" and not model.max_position_embeddings


def _sizes(model: ModelSpec) -> dict[str, Any]:
    return {
        "num_layers": model.num_layers - model.num_mtp_layers,
        **({"mtp_depth": model.num_mtp_layers} if model.num_mtp_layers else {}),
        "hidden_size": model.hidden_size,
        "num_heads": model.num_attention_heads,
        "vocab_size": model.vocab_size,
    }


def _gpt(model: ModelSpec) -> dict[str, Any]:
    values = {
        "type": "BloomConfig" if model.embedding_norm else "GPT2Config",
        **_sizes(model),
        "ffn_hidden_size": model.ffn_hidden_size,
    }
    return values if model.embedding_norm else values | {"max_position_embeddings": model.max_position_embeddings}


def _glm(model: ModelSpec) -> dict[str, Any]:
    groups = model.num_key_value_heads
    return {
        "type": "ChatGLM2Config",
        **_sizes(model),
        "ffn_hidden_size": model.ffn_hidden_size,
        "multi_query_attention": groups != model.num_attention_heads,
        "multi_query_group_num": groups,
        "kv_channels": model.head_size,
        "rmsnorm": model.norm == "rmsnorm",
        "add_bias_linear": model.bias == "all",
        "add_qkv_bias": model.bias in ("qkv", "all"),
    }


def _llama(model: ModelSpec) -> dict[str, Any]:
    latent = bool(model.kv_lora_rank)
    values = {
        "type": "DeepseekV3Config" if latent else "LlamaConfig",
        **_sizes(model),
        "n_kv_heads": model.num_key_value_heads,
        "head_dim": model.head_size,
        "intermediate_size": model.ffn_hidden_size,
        "tie_word_embeddings": model.tied_embeddings,
        "qkv_has_bias": model.bias == "qkv",
        "qk_layernorm": model.query_key_norm,
    }
    if model.bias in ("attention", "all"):
        values["has_bias" if model.bias == "attention" else "add_bias_linear"] = True
    if latent:
        values |= {
            "q_lora_rank": model.query_lora_rank,
            "kv_lora_rank": model.kv_lora_rank,
            "qk_nope_head_dim": model.nope_head_size,
            "qk_rope_head_dim": model.rope_head_size,
            "v_head_dim": model.value_head_size,
        }
        del values["head_dim"]
    return values


def _experts(model: ModelSpec) -> Settings:
    if not model.num_experts:
        return {}
    shared, width = model.num_shared_experts, model.expert_ffn_hidden_size
    if wide := model.shared_expert_ffn_hidden_size:
        shared = shared * wide // width if width and not shared * wide % width else shared
    values = {
        "expert_num": model.num_experts,
        "num_experts_chosen": model.num_experts_per_token,
        "moe_intermediate_size": width,
        "shared_expert_num": shared,
        "use_shared_expert_gating": model.shared_expert_gate,
        "first_k_dense_replace": model.num_dense_layers,
        "balance_via_topk_bias": model.router_bias,
    }
    return {("moe_config", key): value for key, value in values.items()}


def _recompute(plan: Plan) -> Settings:
    recompute, layers = plan.recompute, plan.stage_layers
    everywhere = full_everywhere(recompute, layers)
    operators = dict(recompute.operators)
    if recompute.attention_core:
        operators |= dict.fromkeys(CORE_PATTERNS[plan.workload.attention_kernel], layers)
    values = {
        "recompute": True if everywhere else _counts(recompute.full_layers),
        "select_recompute": _patterns(operators, layers),
        "select_comm_recompute": layers == recompute.communication or _counts(recompute.communication),
    }
    return {("recompute_config", key): value for key, value in values.items()}


def _patterns(operators: dict[str, Counts], layers: Counts) -> Any:
    """True, counts of the default patterns, a list of patterns for all layers, or counts a pattern."""
    counts = set(operators.values())
    if not operators:
        return False
    if set(operators) == set(DEFAULT_SELECT) and len(counts) == 1:
        return True if counts == {layers} else _counts(counts.pop())
    if counts == {layers}:
        return list(operators)
    return {pattern: _counts(rows) for pattern, rows in operators.items()}


def _counts(rows: Counts) -> Any:
    return _short([list(row) for row in rows]) if any(map(any, rows)) else False


def _short(rows: list[list[int]]) -> Any:
    return rows[0] if len(rows) == 1 else rows
