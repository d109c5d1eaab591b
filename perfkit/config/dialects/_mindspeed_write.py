"""Writing MindSpeed-Core-MS YAML: values in place in either form, or a new file in the flat one.

The recompute lists count disjoint layers there: what MindFormers counts as select or communication, less the full layers.
"""

from __future__ import annotations

from typing import Any

from perfkit.config.dialects._mindspeed_keys import is_nested, nested_change
from perfkit.config.dialects._yaml_values import new_file
from perfkit.config.dialects.compare import full_everywhere
from perfkit.config.dialects.dialect import Changes, Document
from perfkit.config.dialects.splice import splice
from perfkit.config.dialects.yaml import parse
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.recompute import Counts

Options = dict[str, Any]
HEADER = (
    "# Model, parallel and recompute settings; data set, learning rate and checkpoints are still to be added.\n"
    "# The launcher's number of devices gives data_parallel_size: {devices} of them here.\n"
)
CONTEXT_WORDS = {"ulysses": "ulysses_cp_algo", "ring": "megatron_cp_algo", "hybrid": "hybrid_cp_algo"}


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """The plan as values by key path of the flat form."""
    sections = {
        ("model_config",): _model(plan),
        ("moe_config",): _experts(plan.model),
        ("parallel_config",): _parallel(plan),
        ("parallel_config", "recompute_config"): _recompute(plan),
        ("dataset_config",): _batch(plan),
        ("training_config",): _training(plan),
        ("optimizer_config",): {"optimizer_type": plan.optimizer.name},
    }
    return {(*section, key): value for section, values in sections.items() for key, value in values.items()}


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The document's text with values changed, in the form that it is in."""
    if is_nested(parse(document.text, document.name).values):
        changes = dict(nested_change(path, value) for path, value in changes.items())
    return splice(document.text, document.name, changes)


def new(settings: Changes) -> str:
    """A new file of settings."""
    sizes = {path[-1]: value for path, value in settings.items() if path[0] == "parallel_config"}
    names = ("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    devices = 1
    for name in names:
        devices *= sizes[name]
    return new_file(HEADER.format(devices=devices), settings)


def _batch(plan: Plan) -> Options:
    """The micro batches that make the same global batch; copies of one that hide communication count as micro batches."""
    size = plan.workload.micro_batch_size
    return {"batch_size": size, "micro_batch_num": plan.workload.global_batch_size // (size * plan.parallel.data_parallel_size)}


def _model(plan: Plan) -> Options:
    model, work = plan.model, plan.workload
    grouped, latent = model.num_key_value_heads != model.num_attention_heads, bool(model.kv_lora_rank)
    return {
        "model_name": model.name or None,
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "group_query_attention": grouped,
        "num_query_groups": model.num_key_value_heads,
        "kv_channels": None if latent else model.head_size,
        "vocab_size": model.vocab_size,
        "seq_length": work.seq_length,
        "hidden_act": "swiglu" if model.gated_ffn else "gelu",
        "gated_linear_unit": model.gated_ffn,
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "position_embedding_type": "absolute" if model.max_position_embeddings else "rope",
        "max_position_embeddings": model.max_position_embeddings or work.seq_length,
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "add_bias_linear": model.bias == "all",
        "qkv_has_bias": model.bias in ("qkv", "attention", "all"),
        "out_proj_has_bias": model.bias in ("attention", "all"),
        "embed_layernorm": True if model.embedding_norm else None,
        "qk_layernorm": True if model.query_key_norm else None,
        "q_lora_rank": model.query_lora_rank or None,
        "kv_lora_rank": model.kv_lora_rank or None,
        "qk_head_dim": model.nope_head_size or None,
        "qk_pos_emb_head_dim": model.rope_head_size or None,
        "v_head_dim": model.value_head_size or None,
        "use_flash_attention": work.attention_kernel == "flash",
        "attention_dropout_rate": 0.1 if work.dropout else 0.0,
        "hidden_dropout_rate": 0.1 if work.dropout else 0.0,
        "params_dtype": _stored(plan),
        "compute_dtype": work.dtype,
    }


def _experts(model: ModelSpec) -> Options:
    if not model.num_experts:
        return {}
    return {
        "num_experts": model.num_experts,
        "moe_router_topk": model.num_experts_per_token,
        "moe_ffn_hidden_size": model.expert_ffn_hidden_size,
        "moe_shared_expert_intermediate_size": model.num_shared_experts
        * (model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size),
        "moe_shared_expert_gate": model.shared_expert_gate,
        "moe_router_enable_expert_bias": model.router_bias,
        "first_k_dense_replace": model.num_dense_layers,
        "moe_expert_capacity_factor": model.expert_capacity_factor or None,
    }


def _parallel(plan: Plan) -> Options:
    parallel, rows = plan.parallel, plan.stage_layers
    shards, replicas = parallel.optimizer_shard_size, parallel.data_parallel_size
    return {
        "data_parallel_size": replicas,
        "tensor_model_parallel_size": parallel.tensor_parallel_size,
        "pipeline_model_parallel_size": parallel.pipeline_parallel_size,
        "virtual_pipeline_model_parallel_size": len(rows) if len(rows) > 1 else None,
        "num_layers_per_virtual_pipeline_stage": None,
        "num_layer_list": _short(rows) if uneven(rows) else None,
        "context_parallel_size": parallel.context_parallel_size,
        "context_parallel_algo": CONTEXT_WORDS[parallel.context_parallel_algorithm],
        "ulysses_degree_in_cp": parallel.ulysses_size or None,
        "expert_model_parallel_size": parallel.expert_parallel_size,
        "expert_tensor_parallel_size": parallel.expert_tensor_parallel_size or None,
        "sequence_parallel": parallel.sequence_parallel,
        "overlap_p2p_comm": plan.software.overlap_pp if len(rows) > 1 else None,
        "zero_level": f"z{parallel.optimizer_shard_level}" if shards > 1 and not _distributed(plan) else None,
        "zero_shard_size": shards if shards not in (1, replicas) and not _distributed(plan) else None,
    }


def _distributed(plan: Plan) -> bool:
    """Whether the distributed optimizer says it: its states alone, shared by all replicas."""
    parallel = plan.parallel
    everyone = parallel.data_parallel_size * parallel.context_parallel_size
    return parallel.optimizer_shard_size == everyone > 1 and parallel.optimizer_shard_level == 1


def _recompute(plan: Plan) -> Options:
    recompute, layers = plan.recompute, plan.stage_layers
    none = tuple((0,) * len(row) for row in layers)
    full = layers if full_everywhere(recompute, layers) else recompute.full_layers or none
    # Under flash attention a select layer repeats the activation, so that there is no word for the core.
    named = [layers] if recompute.attention_core and plan.workload.attention_kernel != "flash" else []
    return {
        "recompute": _short(full),
        "select_recompute": _short(_beyond([*named, *recompute.operators.values()], full)),
        "select_comm_recompute": _short(_beyond([recompute.communication] if recompute.communication else [], full)),
    }


def _beyond(counts: list[Counts], full: Counts) -> Counts:
    """The largest count of any pattern behind the full layers, by chunk and stage."""
    return tuple(
        tuple(max([0, *(rows[chunk][stage] - first for rows in counts)]) for stage, first in enumerate(row))
        for chunk, row in enumerate(full)
    )


def _stored(plan: Plan) -> str:
    """The weights' type: 32 bit where a master copy and the gradients are, else that of the gradients."""
    spec = plan.optimizer
    if spec.gradient_dtype != "float32":
        return spec.gradient_dtype
    return "float32" if spec.master_weights else plan.workload.dtype


def _training(plan: Plan) -> Options:
    spec, half = plan.optimizer, plan.workload.dtype
    copied = spec.master_weights and spec.gradient_dtype != "float32"
    return {
        "use_distributed_optimizer": _distributed(plan),
        "bf16": copied and half == "bfloat16",
        "fp16": copied and half == "float16",
        "accumulate_allreduce_grads_in_fp32": spec.gradient_dtype == "float32",
        "overlap_grad_reduce": plan.software.overlap_dp,
    }


def _short(rows: Counts) -> list[Any]:
    return list(rows[0]) if len(rows) == 1 else [list(row) for row in rows]
