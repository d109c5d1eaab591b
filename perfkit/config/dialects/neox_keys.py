"""GPT-NeoX's keys: by which one a file is known, which stand for options of Megatron, and which are read besides."""

from __future__ import annotations

import re

MARK = re.compile(r"^[ \t{]*[\"']?pipe[-_]parallel[-_]size[\"']?[ \t]*:", re.MULTILINE)
"""The one size that only this program calls so; most of its other keys are called as Megatron's options."""
SAME = """num_layers hidden_size num_attention_heads seq_length max_position_embeddings context_parallel_size sequence_parallel
    make_vocab_size_divisible_by hidden_dropout attention_dropout"""
NAMES = {
    **{name: name for name in SAME.split()},
    "model_parallel_size": "tensor_model_parallel_size",
    "num_kv_heads": "num_query_groups",
    "no_weight_tying": "untie_embeddings_and_output_weights",
    "use_qk_layernorm": "qk_layernorm",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "fp32_allreduce": "accumulate_allreduce_grads_in_fp32",
    "moe_top_k": "moe_router_topk",
    "te_fp8_format": "fp8",
    "global_num_gpus": "world_size",
}
"""Keys whose value an option of Megatron has too."""
OTHERS = """pipe_parallel_size norm pos_emb intermediate_size expansion_factor activation mlp_type mlp_multiple_of use_bias_in_mlp
    use_bias_in_attn_linear attention_config train_batch_size gradient_accumulation_steps precision fp16.enabled fp16.fp16 fp16.type
    bf16.enabled zero_optimization.stage zero_optimization.overlap_comm checkpoint_activations checkpoint_num_layers moe_num_experts
    moe_expert_parallel_size optimizer.type sliding_window_width te_mha tokenizer_type num_gpus num_nodes"""
"""Keys that are read beside those."""
