"""MindSpeed-LLM's FSDP2 YAML: the model from a folder or its name, groups, batches; what nothing counts is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perfkit import read_config
from perfkit.config.dialects import read_text, write_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.predict.limits import not_counted
from tests.config.dialects.test_deepspeed import MODEL

JOB = """model:
  model_id: qwen3_moe
  model_name_or_path: ./weights/Qwen3-30B-A3B-merged/  # after conversion
  train_from_scratch: False

data:
  dataset:
    file_name: "./train.parquet"
  cutoff_len: 8192

parallel:
  fsdp_size: 16
  fsdp_modules:
    - model.layers.{*}
    - lm_head
  tp_size: 2
  ep_size: 4
  ep_modules:
    - model.layers.{*}.mlp.experts
  ep_dispatcher: eager
  recompute: True
  recompute_modules:
    - model.layers.{*}
  reduce_dtype: bf16
  cp_size: 2
  cp_type: ulysses

training:
  stage: pt
  per_device_train_batch_size: 1
  gradient_accumulation_steps: 4
  optimizer: adamw
  lr: 1e-05
  use_fused_rmsnorm: True
"""


def test_groups_batches_and_the_model_by_the_name_of_its_folder():
    plan = read_text(JOB, "pretrain.yaml")
    assert plan.model == catalog.model("qwen3-30b-a3b")
    sizes = plan.parallel
    assert (plan.num_devices, sizes.data_parallel_size, sizes.tensor_parallel_size, sizes.expert_parallel_size) == (64, 16, 2, 4)
    assert (sizes.context_parallel_size, sizes.context_parallel_algorithm, sizes.optimizer_shard_level) == (2, "ulysses", 3)
    assert (plan.num_micro_batches, plan.workload.global_batch_size, plan.workload.seq_length) == (4, 64, 8192)
    assert (plan.recompute.all_layers, plan.optimizer.gradient_dtype) == (True, "bfloat16")
    assert not_counted(plan) == (("training.use_fused_rmsnorm", "time: fused operators and kernels"),)


def test_a_folder_with_a_model_wins_over_its_name(tmp_path):
    (tmp_path / "weights" / "Qwen3-30B-A3B-merged").mkdir(parents=True)
    (tmp_path / "weights" / "Qwen3-30B-A3B-merged" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "run.yaml").write_text(JOB.replace("ep_size: 4", "ep_size: 1"))
    assert read_config(tmp_path / "run.yaml").model.hidden_size == MODEL["hidden_size"]


def test_what_the_launcher_decides_is_assumed_and_a_file_without_a_model_is_refused():
    text = JOB.replace("  fsdp_size: 16\n", "").replace("  per_device_train_batch_size: 1\n", "")
    plan = read_text(text, "pretrain.yaml")
    assert plan.num_devices == 8
    assert any("data_parallel_size = 2: the file shares over all devices" in one for one in plan.document.defaulted)
    with pytest.raises(InputError) as caught:
        read_text(JOB.replace("Qwen3-30B-A3B", "mine").replace("cp_type: ulysses", "cp_type: star"), "pretrain.yaml")
    assert len(caught.value.problems) == 2
    assert "model.model_name_or_path: names no folder with a Hugging Face config.json" in caught.value.problems[0]
    assert "parallel.cp_type: 'star' must be one of ulysses, ring" in caught.value.problems[1]


def test_a_change_keeps_the_rest():
    plan = read_text(JOB, "pretrain.yaml")
    written = write_config(replace(plan, parallel=replace(plan.parallel, expert_parallel_size=8)))
    assert written.lost == ()
    assert written.text == JOB.replace("ep_size: 4", "ep_size: 8")


def test_a_folder_may_leave_out_how_many_parameters_are_active():
    text = JOB.replace("Qwen3-30B-A3B-merged", "qwen3-235b-mergeExperts").replace("ep_size: 4", "ep_size: 1")
    assert read_text(text, "pretrain.yaml").model == catalog.model("qwen3-235b-a22b")


def test_layers_that_are_listed_whole_are_recomputed_whatever_else_is_listed():
    """MindSpeed-LLM's DeepSeek-V4: its own layers, and those that predict further tokens."""
    text = JOB.replace("  recompute_modules:\n", "  recompute_modules:\n    - mtp.layers.{*}.layer\n    - model.hc_head\n")
    plan = read_text(text.replace("\nparallel:\n", "\nparallel:\n  ignored_modules: [model.hc_head]\n"), "pretrain.yaml")
    assert plan.recompute.all_layers
    assert [line for line in plan.document.defaulted if "model.hc_head" in line and "mtp" not in line]
    assert "parallel.ignored_modules" in dict(plan.document.unread)


def test_parts_of_a_layer_that_are_recomputed_are_not_counted_as_whole_layers():
    text = JOB.replace("  recompute_modules:\n    - model.layers.{*}\n", "  recompute_modules:\n    - model.layers.{*}.self_attn\n")
    plan = read_text(text, "pretrain.yaml")
    assert plan.recompute.all_layers is False
    assert any(line.startswith("recompute = none") and "self_attn" in line for line in plan.document.defaulted)


LAUNCHED = """#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 4 train_fsdp2.py \\
    pretrain.yaml \\
    --parallel.fsdp_size 8 --parallel.tp_size=1 \\
    --training.per_device_train_batch_size 2 --parallel.recompute false \\
    | tee logs/run.log
"""


def test_options_of_the_launch_line_win_over_the_file_that_it_names(tmp_path):
    (tmp_path / "pretrain.yaml").write_text(JOB)
    script = tmp_path / "run.sh"
    script.write_text(LAUNCHED)
    plan, file = read_config(script), read_config(tmp_path / "pretrain.yaml")
    assert (plan.parallel.data_parallel_size, plan.parallel.tensor_parallel_size, plan.workload.micro_batch_size) == (8, 1, 2)
    assert (plan.model, plan.num_micro_batches) == (file.model, file.num_micro_batches)
    assert (plan.recompute.all_layers, file.recompute.all_layers) == (False, True)
    assert plan.document.notes[0].startswith(
        "pretrain.yaml, which run.sh starts; its launch line wins over parallel.fsdp_size, parallel.tp_size"
    )


def test_a_launch_line_says_where_its_sizes_are_where_the_file_is_not_beside_it(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(LAUNCHED)
    with pytest.raises(InputError, match=r"configuration is pretrain\.yaml: open that file; options .* parallel\.fsdp_size"):
        read_config(script)
    (tmp_path / "pretrain.yaml").write_text("steps: 4\n")
    with pytest.raises(InputError, match="open that file"):
        read_config(script)
    (tmp_path / "pretrain.yaml").write_text(JOB)
    script.write_text(LAUNCHED.replace("fsdp_size 8", "fsdp_size many"))
    with pytest.raises(InputError, match=r"pretrain.yaml: 1 problem\n.*fsdp_size: 'many' must be a whole number"):
        read_config(script)
