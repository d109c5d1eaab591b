"""NeMo's YAML: a run of its launcher, references, precision and sharing by its own switches, what is named, and bad input."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from perfkit.config.dialects import edit_config, read_text, write_config
from perfkit.config.dialects.key_effects import left_over, reason_of
from perfkit.config.dialects.nemo_keys import read_names
from perfkit.config.lint import lint_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params

LLAMA3_70B = """# From NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training/llama/llama3_70b.yaml (Apache-2.0)
defaults:
  - _self_
run:
  name: llama3_70b
  results_dir: ${base_results_dir}/${.name}
trainer:
  num_nodes: 128
  devices: 8
  precision: bf16
  max_steps: 300000 # consumed_samples = global_step * global_batch_size
exp_manager:
  checkpoint_callback_params:
    model_parallel_size: ${multiply:${training.model.tensor_model_parallel_size}, ${training.model.pipeline_model_parallel_size}}
model:
  mcore_gpt: true
  micro_batch_size: 1
  global_batch_size: 2048
  rampup_batch_size: null
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  context_parallel_size: 2
  encoder_seq_length: 8192
  max_position_embeddings: 8192
  num_layers: 80
  hidden_size: 8192
  ffn_hidden_size: 28672
  num_attention_heads: 64
  num_query_groups: 8
  hidden_dropout: 0.0
  kv_channels: null
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  tokenizer:
    library: huggingface
    type: meta-llama/Meta-Llama-3-70B
  megatron_amp_O2: true
  activations_checkpoint_granularity: null
  activations_checkpoint_method: null
  activations_checkpoint_num_layers: null
  sequence_parallel: true
  transformer_engine: true
  fp8: False
  ub_tp_comm_overlap: true
  overlap_p2p_comm: true
  batch_p2p_comm: false
  optim:
    name: mcore_distributed_optim
    overlap_grad_sync: true
    overlap_param_sync: true
  data:
    seq_length: ${model.encoder_seq_length}
    data_prefix:
    - .0333
    - ${data_dir}/my-llama_00_text_document
"""
TEMPLATE = """micro_batch_size global_batch_size rampup_batch_size tensor_model_parallel_size pipeline_model_parallel_size
    virtual_pipeline_model_parallel_size encoder_seq_length max_position_embeddings num_layers hidden_size ffn_hidden_size
    num_attention_heads init_method_std use_scaled_init_method hidden_dropout attention_dropout ffn_dropout kv_channels
    apply_query_key_layer_scaling normalization layernorm_epsilon do_layer_norm_weight_decay make_vocab_size_divisible_by
    pre_process post_process persist_layer_norm bias activation headscale transformer_block_type openai_gelu
    normalize_attention_scores position_embedding_type rotary_percentage attention_type
    share_embeddings_and_output_weights overlap_p2p_comm batch_p2p_comm seq_len_interpolation_factor num_query_groups
    tokenizer.library tokenizer.type tokenizer.model native_amp_init_scale native_amp_growth_interval hysteresis
    fp32_residual_connection fp16_lm_cross_entropy megatron_amp_O2 grad_allreduce_chunk_size_mb grad_div_ar_fusion
    gradient_accumulation_fusion bias_activation_fusion bias_dropout_add_fusion masked_softmax_fusion
    get_attention_mask_from_fusion seed resume_from_checkpoint use_cpu_initialization onnx_safe apex_transformer_log_level
    gradient_as_bucket_view sync_batch_comm nccl_communicator_config_path fsdp fsdp_sharding_strategy
    fsdp_grad_reduce_dtype fsdp_sharded_checkpoint activations_checkpoint_granularity activations_checkpoint_method
    activations_checkpoint_num_layers num_micro_batches_with_partial_activation_checkpoints
    activations_checkpoint_layers_per_pipeline sequence_parallel transformer_engine fp8 fp8_e4m3 fp8_hybrid fp8_margin
    fp8_interval fp8_amax_history_len fp8_amax_compute_algo reduce_amax use_emha ub_tp_comm_overlap ub_tp_comm_overlap_cfg
    use_flash_attention cpu_offloading cpu_offloading_num_layers cpu_offloading_activations cpu_offloading_weights sharp
    data.data_prefix data.index_mapping_dir data.data_impl data.splits_string data.seq_length data.skip_warmup
    data.num_workers data.dataloader_type data.reset_position_ids data.reset_attention_mask data.eod_mask_loss
    data.validation_drop_last data.no_seqlen_plus_one_input_tokens data.pad_samples_to_global_batch_size
    data.shuffle_documents data.exchange_indices_distributed data.mock_dataset nsys_profile.enabled nsys_profile.ranks
    optim.name optim.lr optim.weight_decay optim.betas optim.sched.name gc_interval"""
"""Keys below `model` of NeMo 1.22 (examples/nlp/language_modeling/conf/megatron_gpt_config.yaml)."""


def text(**changes: str) -> str:
    found = LLAMA3_70B
    for key, value in changes.items():
        line = re.compile(rf"^( +){key}:.*$", re.MULTILINE)
        found = (
            line.sub(rf"\g<1>{key}: {value}", found)
            if line.search(found)
            else found.replace("\nmodel:\n", f"\nmodel:\n  {key}: {value}\n")
        )
    return found


def of_70b(**changes: str):
    return read_text(text(**changes), "llama3_70b.yaml")


def test_a_run_of_the_launcher_is_the_model_that_it_trains():
    plan = of_70b()
    padded = 128512 - 128256
    assert replace(plan.model, name="", vocab_size=128256) == replace(catalog.model("llama3-70b"), name="")
    assert count_params(plan.model).total == count_params(catalog.model("llama3-70b")).total + 2 * padded * 8192
    parallel = plan.parallel
    assert (plan.num_devices, parallel.data_parallel_size, parallel.context_parallel_size) == (1024, 32, 2)
    assert (parallel.virtual_pipeline_parallel_size, parallel.optimizer_shard_size) == (5, 64)
    assert (plan.workload.seq_length, plan.workload.dtype, plan.num_micro_batches) == (8192, "bfloat16", 64)
    software = plan.software
    assert (software.overlap_dp, software.overlap_tp, software.overlap_pp) == (True, True, True)
    assert plan.document.unknown == ()
    assert [key for key, _ in plan.document.unread] == ["model.optim.overlap_param_sync"]


def test_every_key_of_the_programs_own_template_is_read_named_or_without_effect():
    keys = {f"model.{key}" for key in TEMPLATE.split()}
    other = {key for key in keys if reason_of("nemo", key) is None and key not in read_names()}
    named = left_over("nemo", dict.fromkeys(other, "a value"), ())
    assert named.unknown == ()
    assert {"model.headscale", "model.num_micro_batches_with_partial_activation_checkpoints", "model.sharp"} <= {
        key for key, _ in named.unread
    }


@pytest.mark.parametrize(
    ("written", "width"),
    [
        ("${multiply:4, ${.hidden_size}}", 32768),
        ("${multiply:4, ${training.model.hidden_size}}", 32768),
        ("${model.hidden_size}", 8192),
    ],
)
def test_references_are_followed_from_wherever_they_begin(written, width):
    assert of_70b(ffn_hidden_size=written).model.ffn_hidden_size == width


@pytest.mark.parametrize("written", ["${.ffn_hidden_size}", "${multiply:4, ${oc.env:HIDDEN}}", "${base.ffn}", "${divide:4, 0}"])
def test_a_reference_that_the_file_does_not_answer_is_a_problem_with_its_line(written):
    with pytest.raises(InputError, match=r"line 28, model\.ffn_hidden_size: .* names a variable that the file does not set"):
        of_70b(ffn_hidden_size=written)


def test_without_their_own_copies_weights_are_wide_and_nothing_stands_beside_them():
    narrow, wide = of_70b().optimizer, of_70b(megatron_amp_O2="false").optimizer
    assert (narrow.master_weights, narrow.parameter_dtype) == (True, "")
    assert (wide.master_weights, wide.parameter_dtype) == (False, "float32")


@pytest.mark.parametrize(
    ("change", "level", "gradients"),
    [
        ({"fsdp": "true", "name": "fused_adam"}, 3, "float32"),
        ({"fsdp": "true\n  fsdp_sharding_strategy: grad\n  fsdp_grad_reduce_dtype: bf16"}, 2, "bfloat16"),
        ({"overlap_grad_sync": "true\n    grad_sync_dtype: bf16"}, 1, "bfloat16"),
    ],
)
def test_sharing_and_the_precision_of_gradients_follow_the_optimizer_or_fsdp(change, level, gradients):
    plan = of_70b(**change)
    assert (plan.parallel.optimizer_shard_level, plan.optimizer.gradient_dtype) == (level, gradients)
    assert plan.software.overlap_dp is True


@pytest.mark.parametrize(
    ("change", "overlaps"),
    [
        ({}, False),
        ({"sequence_parallel": "false"}, False),
        ({"sequence_parallel": "false", "pipeline_model_parallel_size": "1"}, True),
    ],
)
def test_without_a_shared_optimizer_gradients_travel_early_only_without_stages_and_split_sequences(change, overlaps):
    changes = {"name": "fused_adam", "virtual_pipeline_model_parallel_size": "null", **change}
    plan = read_text(text(**changes).replace("name: fused_adam\n  results", "name: x\n  results"), "x.yaml")
    assert plan.software.overlap_dp is overlaps
    assert plan.parallel.optimizer_shard_size == 1


def test_recomputation_is_that_of_its_release():
    full = of_70b(
        activations_checkpoint_granularity="full", activations_checkpoint_method="block", activations_checkpoint_num_layers="2"
    )
    assert full.recompute.full_layers == ((2,) * 4,) * 5
    old = text(activations_checkpoint_method="uniform").replace("  activations_checkpoint_granularity: null\n", "")
    assert read_text(old, "old.yaml").recompute.all_layers, "before there were parts to choose, a method alone was all layers"
    assert not of_70b(activations_checkpoint_method="block", activations_checkpoint_num_layers="0").recompute.full_layers


def test_experts_are_read_and_their_ways_named():
    plan = of_70b(
        num_moe_experts="8",
        moe_router_topk="2",
        expert_model_parallel_size="8",
        moe_token_dispatcher_type="alltoall",
        type="mistralai/Mixtral-8x7B-v0.1",
    )
    assert (plan.model.num_experts, plan.parallel.expert_parallel_size, plan.model.vocab_size) == (8, 8, 32256)
    assert "model.moe_token_dispatcher_type" in dict(plan.document.unread)


@pytest.mark.parametrize("precision", ["16", "'16-mixed'", "16-mixed"])
def test_precision_is_that_of_the_trainer(precision):
    assert of_70b(precision=precision).workload.dtype == "float16"


def test_a_plan_is_written_and_read_and_a_value_is_changed_where_it_stands():
    plan = of_70b()
    assert write_config(replace(plan, document=None), dialect="nemo").lost == ()
    longer = replace(plan, workload=replace(plan.workload, seq_length=4096)).write()
    assert longer.lost == ()
    assert next(line for line in longer.diff().splitlines() if line.startswith("+  ")) == "+  encoder_seq_length: 4096"
    written = edit_config(plan.document, {"model.tensor_model_parallel_size": 8})
    assert written.notes == ()
    assert written.diff().count("\n+") == 2  # the line and the name of the file


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("hyena", "{order: 2}", "layers that are no attention"),
        ("encoder", "{num_layers: 12}", "an encoder beside its decoder"),
        ("num_layers", "many", "line 26, model.num_layers: 'many' must be a whole number"),
        ("hidden_size", "???", "model.hidden_size: is missing"),
        ("num_nodes", "1", "8 devices are not divisible by 32"),
        ("name", "adafactor", "model.optim.name: 'adafactor' must be one of"),
    ],
)
def test_what_is_wrong_has_its_own_name(key, value, told):
    with pytest.raises(InputError, match=told):
        of_70b(**{key: value})


def test_a_checkpoint_that_has_the_sizes_is_named():
    tuning = (
        "trainer:\n  devices: 8\nmodel:\n  megatron_amp_O2: true\n  restore_from_path: /models/llama.nemo\n  micro_batch_size: 1\n"
    )
    with pytest.raises(InputError, match="sizes of the model are in this checkpoint"):
        read_text(tuning, "sft.yaml")


def test_micro_batches_that_follow_from_the_batches_are_no_error():
    """64 micro batches fill 4 stages; the file does not state their number, which an error was made of."""
    assert [
        problem.rule for problem in lint_text("llama3_70b.yaml", LLAMA3_70B).problems if problem.severity != "information"
    ] == []
    few = lint_text("llama3_70b.yaml", text(global_batch_size="64")).problems
    assert "micro-less-than-stages" in {problem.rule for problem in few}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("_target_: nemo.collections.llm.api.pretrain\ntrainer:\n  devices: 8\n", "NeMo-Run"),
        ("import nemo_run as run\nrecipe = run.Partial(pretrain)\n", "NeMo 2, a recipe in Python"),
        ("from megatron.bridge.recipes.llama import llama3_8b_pretrain_config\n", "Megatron-Bridge, a recipe in Python"),
    ],
)
def test_a_recipe_that_is_a_program_is_named_with_what_to_open(text: str, named: str):
    with pytest.raises(InputError, match=r"run_config\.yaml") as raised:
        read_text(text, "recipe")
    assert named in raised.value.problems[0]
    assert len(raised.value.problems) == 1
