"""Names of the columns of a table of plans: those of `data/reference/step_time.csv`, and what configurations call the same."""

from __future__ import annotations

import re

import pandas as pd

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_layers", "n_layers", "n_layer", "num_hidden_layers"),
    "hidden": ("hidden_size", "d_model", "n_embd", "hidden_dim"),
    "heads": ("num_attention_heads", "num_heads", "n_heads", "n_head", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "n_kv_heads", "num_query_groups"),
    "head_dim": ("head_size", "kv_channels"),
    "ffn_hidden": ("ffn_hidden_size", "intermediate_size", "ffn_size", "ffn"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_experts", "n_routed_experts", "expert_num"),
    "experts_per_token": ("num_experts_per_token", "num_experts_per_tok", "num_experts_chosen", "moe_router_topk", "topk", "top_k"),
    "shared_experts": ("num_shared_experts", "n_shared_experts", "shared_expert_num"),
    "expert_ffn_hidden": ("expert_ffn_hidden_size", "moe_intermediate_size", "moe_ffn_hidden_size"),
    "dense_layers": ("num_dense_layers", "first_k_dense_replace"),
    "tied_embeddings": ("tie_word_embeddings",),
    "accelerator": ("device", "device_name", "gpu", "hardware"),
    "n_devices": ("num_devices", "devices", "world_size", "n_gpus", "num_gpus", "gpus"),
    "devices_per_node": ("gpus_per_node", "num_gpus_per_node"),
    "dp": ("data_parallel", "data_parallel_size"),
    "tp": ("tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "model_parallel", "mp"),
    "pp": ("pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size", "pipeline_stage"),
    "vpp": ("virtual_pipeline_parallel_size", "virtual_pipeline_model_parallel_size", "pp_interleave_num"),
    "cp": ("context_parallel", "context_parallel_size"),
    "ep": ("expert_parallel", "expert_parallel_size", "expert_model_parallel_size"),
    "cp_algorithm": ("context_parallel_algorithm", "context_parallel_algo", "cp_algo"),
    "ulysses_size": ("ulysses_degree_in_cp", "ulysses_degree"),
    "sequence_chunks": ("seq_split_num", "sequence_pieces"),
    "sequence_parallel": ("sp", "use_seq_parallel"),
    "zero_stage": ("zero", "zero_level"),
    "optimizer_shard_size": ("optimizer_weight_shard_size", "zero_shard_size"),
    "copies": ("micro_batch_interleave_num", "micro_batch_interleave_size"),
    "swapped_layers": ("swap_layers",),
    "capacity_factor": ("expert_capacity_factor", "moe_expert_capacity_factor"),
    "micro_batch": ("micro_batch_size", "mbs"),
    "global_batch": ("global_batch_size", "gbs"),
    "seq_len": ("seq_length", "sequence_length"),
    "precision": ("dtype", "compute_dtype"),
    "recompute": ("recompute_granularity", "activation_checkpointing"),
}

_KNOWN = {other: name for name, others in OTHER_NAMES.items() for other in others}


def with_usual_names(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its columns under the names that the formulas read; case, spaces and dashes do not matter.

    A column keeps its name if it is a usual one, or where the usual one is there too.
    """
    plain = {column: re.sub(r"[\s-]+", "_", str(column).strip().lower()) for column in frame.columns}
    if all(column == name and name not in _KNOWN for column, name in plain.items()):
        return frame
    taken = {column for column, name in plain.items() if column == name and name not in _KNOWN}
    renamed = {}
    for column, name in plain.items():
        usual = _KNOWN.get(name, name)
        if usual not in taken:
            renamed[column] = usual
            taken.add(usual)
    return frame.rename(columns=renamed)
