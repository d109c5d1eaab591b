"""Megatron-Bridge's containers: the plan of Megatron's options under other names, what wins over what, and what is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import read_config, read_text, write_config
from perfkit.config.lint import lint_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.predict.limits import assumed, not_counted

SAVED = Path(__file__).parents[2] / "data" / "configs" / "megatron_bridge" / "llama3_8b.yaml"
OVERRIDES = """model:
  num_layers: 48
  hidden_size: 2048
  num_attention_heads: 32
  num_query_groups: 4
  kv_channels: 128
  ffn_hidden_size: 6144
  vocab_size: 151936
  gated_linear_unit: true
  add_bias_linear: false
  share_embeddings_and_output_weights: false
  normalization: RMSNorm
  position_embedding_type: rope
  qk_layernorm: true
  num_moe_experts: 128
  moe_router_topk: 8
  moe_ffn_hidden_size: 768
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 3
  expert_model_parallel_size: 16
  expert_tensor_parallel_size: 1
  sequence_parallel: true
  recompute_granularity: selective
  recompute_modules: [core_attn]
  seq_length: 4096
mixed_precision: bf16_mixed
comm_overlap:
  tp_comm_overlap: true
train:
  global_batch_size: 256
  micro_batch_size: 1
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: false
"""


def text(**changes: str) -> str:
    found = OVERRIDES
    for old, new in changes.items():
        line = next(one for one in OVERRIDES.splitlines() if one.strip().startswith(f"{old}:"))
        found = found.replace(line, f"{line.partition(':')[0]}: {new}")
    return found


def test_a_saved_container_is_the_model_that_it_trains():
    plan = read_config(SAVED)
    assert replace(plan.model, name="") == replace(catalog.model("llama3-8b"), name="")
    assert (plan.workload.seq_length, plan.workload.global_batch_size, plan.workload.dtype) == (4096, 8, "float8")
    assert plan.document.unknown == ()
    named = {one.field for one in assumed(plan)}
    assert {"data_parallel_size", "mixed_precision.fp8_recipe"} <= named
    assert "comm_overlap" not in named, "what the file leaves out decides nothing"


def test_groups_that_override_a_recipe_are_a_plan():
    plan = read_text(OVERRIDES, "run.yaml")
    assert replace(plan.model, name="") == replace(catalog.model("qwen3-30b-a3b"), name="")
    parallel = plan.parallel
    assert (parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.virtual_pipeline_parallel_size) == (2, 4, 3)
    assert parallel.data_parallel_size == 8, "the fewest replicas with room for 16 groups of experts on 2 devices each"
    assert plan.recompute.attention_core
    assert plan.workload.dtype == "bfloat16"
    assert plan.optimizer.gradient_dtype == "float32"


@pytest.mark.parametrize(
    ("change", "overlaps"),
    [
        ({}, (True, True, True)),
        ({"tp_comm_overlap": "false"}, (True, False, True)),
        ({"tp_comm_overlap": "true\n  overlap_grad_reduce: false\n  overlap_p2p_comm: false"}, (False, True, False)),
    ],
)
def test_overlaps_that_are_chosen_win_and_the_rest_of_them_is_on(change, overlaps):
    software = read_text(text(**change), "run.yaml").software
    assert (software.overlap_dp, software.overlap_tp, software.overlap_pp) == overlaps


def test_exchanges_of_tokens_run_beside_other_work_where_the_recipe_says_so():
    assert read_text(text(), "run.yaml").software.overlap_ep is False
    stated = text(tp_comm_overlap="true\n  overlap_moe_expert_parallel_comm: true")
    assert read_text(stated, "run.yaml").software.overlap_ep is True
    assert not any("overlap_moe" in key for key, _ in not_counted(read_text(stated, "run.yaml")))


def test_without_such_a_group_the_model_and_the_gradients_say_what_overlaps():
    software = read_text(OVERRIDES.replace("comm_overlap:\n  tp_comm_overlap: true\n", ""), "run.yaml").software
    assert (software.overlap_dp, software.overlap_tp) == (False, False)


@pytest.mark.parametrize(
    ("recipe", "dtype", "gradients"),
    [
        ("bf16_mixed", "bfloat16", "float32"),
        ("fp16_mixed", "float16", "float16"),
        ("bf16_with_fp8_current_scaling_mixed", "float8", "float32"),
        ("{bf16: true, grad_reduce_in_fp32: false}", "bfloat16", "bfloat16"),
        ("{bf16: true, fp8: hybrid, grad_reduce_in_fp32: true}", "float8", "float32"),
    ],
)
def test_a_recipe_of_precision_is_read_by_name_and_by_its_fields(recipe, dtype, gradients):
    plan = read_text(text(mixed_precision=recipe), "run.yaml")
    assert (plan.workload.dtype, plan.optimizer.gradient_dtype) == (dtype, gradients)


def test_devices_count_where_the_file_says_them():
    plan = read_text(text(tp_comm_overlap="true\n  data_parallel_size: 16"), "run.yaml")
    assert (plan.num_devices, plan.parallel.data_parallel_size) == (128, 16)
    assert not any("data_parallel_size" in one for one in plan.document.defaulted)


def test_every_problem_is_told_under_the_files_own_name_with_its_line():
    with pytest.raises(InputError) as error:
        read_text(text(hidden_size="wide", num_moe_experts="-1", moe_router_topk="8.5"), "run.yaml")
    told = str(error.value)
    assert "line 3, model.hidden_size: 'wide' must be a whole number" in told
    assert "model.num_moe_experts" in told
    assert "num_experts:" not in told.replace("model.num_moe_experts:", "")


def test_a_key_that_nothing_counts_is_named():
    plan = read_text(text(seq_length="4096\n  cuda_graph_impl: local\n  a_key_of_next_year: 3"), "run.yaml")
    assert "model.a_key_of_next_year" in plan.document.unknown
    assert "model.cuda_graph_impl" in dict(plan.document.unread)


def test_changes_are_written_where_the_file_states_them():
    plan = read_config(SAVED)
    written = replace(plan, workload=replace(plan.workload, seq_length=8192, micro_batch_size=2)).write()
    changed = [line for line in written.diff().splitlines() if line[:1] in "+-" and line[1:2] == " "]
    assert changed == ["-  seq_length: 4096", "+  seq_length: 8192", "-  micro_batch_size: 1", "+  micro_batch_size: 2"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tp_comm_overlap": "true\n  data_parallel_size: 1.5"}, "comm_overlap.data_parallel_size: 1.5 must be a whole number"),
        ({"tp_comm_overlap": "true\n  data_parallel_size: -3"}, "comm_overlap.data_parallel_size: -3 must be a whole number"),
        ({"mixed_precision": "[1]"}, "mixed_precision: [1] must be a section, or a recipe"),
        ({"mixed_precision": "best_mixed"}, "mixed_precision: 'best_mixed' must be a section, or a recipe"),
        ({"seq_length": "4096\n  moe_layer_freq: [0, a, 1]"}, "model.moe_layer_freq: [0, 'a', 1] must be 1 or"),
    ],
)
def test_values_of_any_type_are_refused_in_words(change, told):
    with pytest.raises(InputError) as error:
        read_text(text(**change), "run.yaml")
    assert told in str(error.value)


def test_any_argument_of_an_enumeration_is_read():
    backend = "4096\n  attention_backend: {_args_: [[1]], _call_: true, _target_: x.AttnBackend}"
    assert read_text(text(seq_length=backend), "run.yaml").workload.attention_kernel == "flash"


def test_what_is_switched_off_is_false_and_stands_where_it_decides():
    plan = read_text(OVERRIDES, "run.yaml")
    parallel = replace(plan.parallel, sequence_parallel=False, optimizer_shard_size=1)
    written = replace(plan, parallel=parallel, software=replace(plan.software, overlap_dp=False)).write()
    assert written.lost == ()
    assert "null" not in written.text
    assert "  sequence_parallel: False" in written.text
    assert read_text(written.text, "run.yaml").software.overlap_dp is False


def test_a_megatron_script_and_its_container_are_one_plan():
    plan = read_text(OVERRIDES, "run.yaml")
    script = write_config(replace(plan, document=None), dialect="megatron")
    assert script.lost == ()
    again = read_text(write_config(read_text(script.text, "run.sh"), dialect="megatron-bridge").text, "run.yaml")
    assert count_params(again.model) == count_params(plan.model)
    assert (again.parallel, again.workload, again.recompute, again.optimizer) == (
        plan.parallel, plan.workload, plan.recompute, plan.optimizer,
    )  # fmt: skip


PLAIN = SAVED.parents[1] / "others" / "config_mixtral_large.yaml"


def test_groups_of_fields_with_options_beside_them_are_read():
    plan = read_config(PLAIN)
    model, parallel = plan.model, plan.parallel
    assert (model.num_layers, model.num_experts, model.num_key_value_heads, model.gated_ffn) == (2, 4, 8, True)
    assert (parallel.tensor_parallel_size, parallel.expert_parallel_size, parallel.sequence_parallel) == (2, 2, True)
    assert (plan.workload.dtype, plan.workload.global_batch_size, model.tied_embeddings) == ("float32", 4, False)


def test_groups_of_fields_are_changed_where_a_field_stands():
    plan = read_config(PLAIN)
    written = write_config(replace(plan, parallel=replace(plan.parallel, tensor_parallel_size=4)))
    again = read_text(written.text, "again.yaml")
    assert again.parallel.tensor_parallel_size == 4
    assert "  tensor_model_parallel_size: 4" in written.text.splitlines()
    assert again.model == plan.model


def test_half_precision_of_the_groups_counts():
    text = PLAIN.read_text().replace('compute_dtype: "float32"', 'compute_dtype: "bfloat16"')
    assert read_text(text, "half.yaml").workload.dtype == "bfloat16"


def test_groups_of_fields_are_checked_where_they_stand():
    problems = lint_text("plain.yaml", PLAIN.read_text()).problems
    assert {one.rule for one in problems} == {"key-not-counted"}
    assert all(one.line for one in problems)


def test_the_override_of_a_recipe_says_where_its_sizes_are():
    text = "model:\n  num_layers: 8\n  tensor_model_parallel_size: 2\ntrain:\n  global_batch_size: 16\n  micro_batch_size: 1\n"
    with pytest.raises(InputError, match=r"overrides a recipe.*run_config\.yaml") as error:
        read_text(text, "override.yaml")
    assert len(error.value.problems) == 1
