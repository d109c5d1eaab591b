"""MindFormers YAML for PyNative: sizes of the class, groups, stages, recomputed layers, and bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.predict.limits import not_counted

JOB = """training:
  steps: 10
  local_batch_size: 1
  global_batch_size: 32
  deterministic: True
optimizer:
  type: Muon
parallelism:
  data_parallel_shard: 8
  tensor_parallel: 2
  sequence_parallel: True
  pipeline_parallel: 4
  pipeline_parallel_layers_per_stage: ["0-3", "4-7", "8-11", "12-15"]
  expert_parallel: 8
recompute:
  mode: full
  full_recompute_layer: [0-2, 13]
train_dataset:
  dataloader: {config: {seq_length: 4096}}
model:
  model_type: deepseek_v3
  hidden_size: 1792
  intermediate_size: 3072
  num_hidden_layers: 16
  num_attention_heads: 8
  moe_intermediate_size: 1024
  n_routed_experts: 8
  num_experts_per_tok: 4
  first_k_dense_replace: 1
  params_dtype: bfloat16
  rope_theta: 10000
  mla_qkv_concat: True
"""


def test_sizes_that_the_file_leaves_out_are_those_of_its_class():
    plan = read_text(JOB, "run.yaml")
    model = plan.model
    assert (model.vocab_size, model.kv_lora_rank, model.query_lora_rank, model.value_head_size) == (129280, 512, 1536, 128)
    assert (model.num_layers, model.num_mtp_layers, model.num_shared_experts, model.router_bias) == (17, 1, 1, True)
    assert plan.document is not None
    assert "vocab_size = 129280: of deepseek_v3" in " ".join(plan.document.defaulted)
    assert plan.document.unknown == ()
    assert not_counted(plan) == (("training.deterministic", "time: repeatable execution"),)


def test_groups_batches_stages_and_the_layers_that_are_recomputed():
    plan = read_text(JOB, "run.yaml")
    assert (plan.num_devices, plan.num_micro_batches, plan.parallel.expert_parallel_size) == (64, 4, 8)
    assert plan.parallel.layers_per_stage == ((4, 4, 4, 5),)  # what predicts further tokens is on the last stage
    assert plan.recompute.full_layers == ((3, 0, 0, 1),)
    assert plan.parallel.optimizer_shard_level == 2  # a pipeline keeps its weights
    assert (plan.optimizer.gradient_dtype, plan.optimizer.matrix_state_bytes_per_parameter) == ("bfloat16", 4)


def test_without_a_number_of_devices_as_many_are_taken_as_the_experts_need():
    text = JOB.replace("data_parallel_shard: 8", "data_parallel_shard: -1").replace("expert_parallel: 8", "expert_parallel: 4")
    plan = read_text(text, "run.yaml")
    assert plan.parallel.data_parallel_size == 2
    assert any("does not say how many" in line for line in plan.document.defaulted)


def test_a_changed_plan_is_written_in_place_and_reads_back():
    plan = read_text(JOB, "run.yaml")
    wider = replace(
        plan, parallel=replace(plan.parallel, tensor_parallel_size=4), workload=replace(plan.workload, micro_batch_size=2)
    )
    written = write_config(wider)
    assert written.lost == ()
    assert [line for line in written.diff().splitlines() if line.startswith("+ ")] == [
        "+  local_batch_size: 2",
        "+  tensor_parallel: 4",
    ]
    again = read_text(written.text, "run.yaml")
    assert (again.parallel, again.workload, count_params(again.model).total) == (
        wider.parallel,
        wider.workload,
        count_params(plan.model).total,
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('["0-3", "4-7", "8-11", "12-15"]', "auto", ""),
        ('["0-3", "4-7", "8-11", "12-15"]', '["0-3", "4-7", "8-15"]', "must give each of 4 stages 1 ranges, together 16 layers"),
        ("num_hidden_layers: 16", "num_hidden_layers: 18", "together 18 layers"),
        ("mode: full", "mode: all", "must be one of None, full, select"),
        ("tensor_parallel: 2", "tensor_parallel: two", "must be a whole number"),
        ("model_type: deepseek_v3", "model_type: bert", "no decoder-only language model"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(old, new, told):
    text = JOB.replace(old, new)
    if not told:
        assert read_text(text, "run.yaml").parallel.layers_per_stage == ((4, 4, 4, 5),)
        return
    with pytest.raises(InputError, match=told):
        read_text(text, "run.yaml")
