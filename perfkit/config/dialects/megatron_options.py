"""Which options of Megatron and MindSpeed take no value, and which take all words up to the next option."""

FLAG_NAMES = """group_query_attention swiglu untie_embeddings_and_output_weights disable_bias_linear add_qkv_bias qk_layernorm
    multi_latent_attention moe_router_enable_expert_bias bf16 fp16 sequence_parallel use_distributed_optimizer
    recompute_activations accumulate_allreduce_grads_in_fp32 use_rotary_position_embeddings use_flash_attn
    add_dense_bias embed_layernorm moe_shared_expert_gate recompute_activation_function use_megatron_fsdp use_custom_fsdp
    grad_reduce_in_bf16 recompute_norm
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split overlap_grad_reduce overlap_param_gather
    tp_comm_overlap overlap_moe_expert_parallel_comm
    no_overlap_p2p_communication swap_attention adaptive_memory_optimization reuse_fp32_param automated_pipeline
    automated_pipeline_perf recompute_in_bubble recompute_in_advance
    multi_head_latent_attention use_mcore_models mtp_mem_efficient_logits moe_fb_overlap swap_optimizer no_save_optim
    no_save_rng moe_tp_extend_ep router_gating_in_fp32 seq_aux norm_topk_prob post_norm no_rope_fusion no_masked_softmax_fusion
    attention_softmax_in_fp32 use_fused_rotary_pos_emb use_fused_swiglu use_fused_rmsnorm no_gradient_accumulation_fusion
    no_bias_swiglu_fusion moe_permutation_async_comm moe_alltoall_overlap_comm mla_fa_without_pad reset_position_ids manual_gc
    gemm_gradient_accumulation_fusion no_shared_storage use_ascend_coc coc_fused_kernel moe_permute_fusion
    cross_entropy_loss_fusion moe_shared_expert_overlap use_torch_fsdp2 log_throughput use_checkpoint_args ckpt_fully_parallel_save
    apply_layernorm_1p squared_relu fp8_param_gather optimizer_cpu_offload use_precision_aware_optimizer
    defer_embedding_wgrad_compute
    enable_dsa_indexer enable_mhc kv_compress use_g2_attention use_g2_indexer_loss enable_hyper_connections
    deepspeed checkpoint_activations deepspeed_activation_checkpointing no_pipeline_parallel
    create_moe_param_group disable_moe_token_dropping override_lr_scheduler
    no_load_optim no_load_rng moe_grouped_gemm enable_recompute_layers_per_pp_rank"""
FLAGS = frozenset(FLAG_NAMES.split())
LISTS = frozenset(
    {
        "recompute_modules",
        "lora_target_modules",
        "num_layer_list",
        "window_size",
        "compress_ratios",
        "csa_compress_ratios",
        "hierarchical_context_parallel_sizes",
        "cp_comm_type",
        "data_path",
        "train_data_path",
        "valid_data_path",
    }
)
