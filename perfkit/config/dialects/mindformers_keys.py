"""The keys that MindFormers knows, by section: an unknown one is an error in strict sections and a remark elsewhere.

Sources: `mindformers/tools/register/template.py` (strict sections raise KeyError for other keys) and the training files of the
releases 1.3.2, 1.5.0 and 1.7.0. Keys that perfkit reads are listed too.
"""

from __future__ import annotations

STRICT = {
    "parallel_config": """data_parallel model_parallel context_parallel expert_parallel pipeline_stage micro_batch_num seq_split_num
        use_seq_parallel optimizer_shard gradient_aggregation_group vocab_emb_dp context_parallel_algo ulysses_degree_in_cp
        mem_coeff""",
    "recompute_config": """recompute select_recompute parallel_optimizer_comm_recompute select_comm_recompute mp_comm_recompute
        recompute_slice_activation select_recompute_exclude select_comm_recompute_exclude""",
    "swap_config": "swap layer_swap op_swap default_prefetch",
    "runner_config": """batch_size epochs sink_mode sink_size gradient_accumulation_steps num_classes stop_step initial_epoch
        initial_step""",
    "moe_config": """expert_num capacity_factor aux_loss_factor num_experts_chosen expert_group_size group_wise_a2a
        comp_comm_parallel comp_comm_parallel_degree save_token_distribution cur_layer enable_cold_hot_expert update_step
        hot_expert_num cold_token_percent moe_module_name routing_policy norm_topk_prob enable_sdrop use_fused_ops_topkrouter
        router_dense_type shared_expert_num use_shared_expert_gating max_router_load topk_method topk_group n_group
        first_k_dense_replace moe_intermediate_size routed_scaling_factor aux_loss_types aux_loss_factors z_loss_factor
        balance_via_topk_bias topk_bias_update_rate use_allgather_dispatcher moe_shared_expert_overlap expert_model_parallel
        use_gating_sigmoid enable_deredundency npu_nums_per_device use_gmm enable_gmm_safe_tokens use_fused_ops_permute
        callback_moe_droprate dispatch_global_max_bs ep_extend_tp""",
}

OPEN = {
    "": """auto_trans_ckpt auto_tune autotune_per_step balanced_load callbacks ckpt_use_legacy_format context
        data_skip_steps do_eval eval_callbacks eval_dataset eval_dataset_task eval_epoch_interval eval_step_interval
        filepath_prefix ignore_data_skip init_start_profile input_data layer_decay layer_scale load_checkpoint
        load_ckpt_async load_ckpt_format lr_scale lr_scale_factor lr_schedule metric micro_batch_interleave_num model
        moe_config monitor_config mstx only_save_strategy optimizer output_dir parallel parallel_config
        predict_batch_size pretrained_model_dir print_separate_loss processor profile profile_communication
        profile_level profile_memory profile_pipeline profile_rank_ids profile_start_step profile_stop_step
        recompute_config remote_save_url resume_training run_mode runner_config runner_wrapper save_file seed
        src_strategy_path_or_dir swap_config train_dataset train_dataset_task train_precision_sync trainer
        transform_process_num use_legacy use_parallel with_stack data_simplification""",
    "parallel": """auto_pipeline dataset_strategy enable_alltoall enable_parallel_optimizer full_batch gradients_mean
        loss_repeated_mean parallel_mode parallel_optimizer_config pipeline_config search_mode strategy_ckpt_config
        strategy_ckpt_save_file device_num parameter_broadcast""",
    "model.model_config": """apply_query_key_layer_scaling apply_residual_connection_post_layernorm architectures attention_dropout
        attention_dropout_prob attention_dropout_rate attention_softmax_in_fp32 auto_register batch_size bias_dropout_fusion
        block_size bos_token_id checkpoint_name_or_path compute_in_2d do_sample emb_dropout_prob embed_dropout_prob
        embedding_init_type eos_token_id extend_method fine_grain_interleave fp32_residual_connection gated_linear_unit hidden_act
        hidden_dropout hidden_dropout_prob hidden_dropout_rate ignore_token_id initializer_range input_sliced_sig is_dynamic
        kv_channels layernorm_compute_dtype layernorm_compute_type layernorm_epsilon lm_head_dp max_decode_length
        max_position_embedding max_position_embeddings mean mlp_concat model_type moe_aux_loss_coeff moe_grouped_gemm
        moe_router_load_balancing_type moe_router_pre_softmax moe_token_drop_policy mtp_loss_factor mup_scale_factor net_name
        norm_topk_prob num_block num_blocks output_mult pad_token_id parallel_optimizer params_dtype position_embedding_type
        post_layer_norm pre_seq_len prefix_projection pretrain_seqlen qkv_concat quantization_bit repetition_penalty res_dtype
        residual_dtype return_extra_loss rms_norm_eps rmsnorm rope_ratio rope_theta rotary_dtype rotary_emb_base rotary_pct
        routed_scaling_factor router_aux_loss_coef router_dense_type scaling_factor sigma softmax_compute_dtype
        softmax_compute_type temperature theta top_k top_p use_attn_mask_compression use_cache
        use_contiguous_weight_layout_attention use_flash_attention use_fused_rope use_fused_swiglu use_incre_flash_attention
        use_llama_rope use_mup use_past use_past_shard use_prompt_flash_attention multi_query_attention wo_has_bias""",
}


def strict_keys(section: str) -> list[str]:
    """Keys that a strict section accepts, in their usual order."""
    return STRICT[section].split()
