"""NeMo Automodel's YAML: the model by its name, groups, batches of stages, precision of what is kept, what is named, bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import edit_config, read_text, write_config
from perfkit.config.lint import lint_text
from perfkit.core import catalog
from perfkit.core.errors import InputError

LLAMA3_70B = """# From NVIDIA-NeMo/Automodel examples/llm_pretrain/llama3_70b_pretrain.yaml (Apache-2.0)
recipe: TrainFinetuneRecipeForNextTokenPrediction

step_scheduler:
  global_batch_size: 128
  local_batch_size: 4
  ckpt_every_steps: 2000
  num_epochs: 1
  max_steps: 60

dist_env:
  backend: nccl
  timeout_minutes: 1

model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B
  torch_dtype: float32  # of what is stored
  trust_remote_code: True

checkpoint:
  enabled: False

dataset:
  _target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset
  dataset_name: rajpurkar/squad
  split: train

loss_fn:
  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy

optimizer:
  _target_: torch.optim.AdamW
  lr: 2.0e-5
  betas: [0.9, 0.95]

distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 4
  cp_size: 1
  pp_size: 4
  sequence_parallel: false
  activation_checkpointing: true
  mp_policy:
    _target_: torch.distributed.fsdp.MixedPrecisionPolicy
    param_dtype: bfloat16
    reduce_dtype: float32
    output_dtype: bfloat16
  pipeline:
    pp_schedule: interleaved1f1b
    pp_microbatch_size: 1
    layers_per_stage: 4

packed_sequence:
  packed_sequence_size: 4096
  split_across_pack: False

lr_scheduler:
  min_lr: 1.0e-6
"""


def of_70b(*changes: tuple[str, str]):
    text = LLAMA3_70B
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_text(text, "llama3_70b_pretrain.yaml")


def test_model_groups_batches_and_precision():
    plan = of_70b()
    assert plan.model == catalog.model("llama3-70b"), "3.1 has the shapes of 3"
    sizes = plan.parallel
    assert (sizes.tensor_parallel_size, sizes.pipeline_parallel_size, sizes.data_parallel_size) == (4, 4, 1)
    assert any(text.startswith("data_parallel_size = 1: the file shares over all") for text in plan.document.defaulted)
    assert (plan.workload.seq_length, plan.workload.micro_batch_size, plan.num_micro_batches) == (4096, 1, 128)
    assert (plan.optimizer.master_weights, plan.optimizer.moment_dtype, plan.optimizer.gradient_dtype) == (
        True,
        "float32",
        "float32",
    )
    assert plan.recompute.all_layers
    assert any(text.startswith("schedule = all micro batches follow one another") for text in plan.document.defaulted)
    assert plan.document.unknown == ()
    assert [key for key, _ in plan.document.unread] == ["distributed.pipeline.pp_schedule", "distributed.pipeline.layers_per_stage"]


def test_a_file_that_shares_over_all_devices_has_room_for_the_groups_of_its_experts():
    """32 of them were refused, as 8 devices were taken."""
    moe = (("meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B"), ("tp_size: 4", "tp_size: 1"), ("pp_size: 4", "pp_size: 1"))
    plan = of_70b(*moe, ("cp_size: 1", "cp_size: 2\n  ep_size: 64"))
    assert (plan.parallel.data_parallel_size, plan.parallel.expert_parallel_size, plan.num_devices) == (32, 64, 64)
    assert of_70b(*moe, ("cp_size: 1", "cp_size: 1\n  ep_size: 4")).num_devices == 8


def test_replicas_that_are_stated_and_their_copies_count():
    plan = of_70b(("dp_size: none", "dp_size: 8\n  dp_replicate_size: 2"), ("pp_size: 4", "pp_size: 1"))
    assert (plan.num_devices, plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == (32, 4, 3)
    assert plan.workload.micro_batch_size == 4, "without stages a local batch runs at once"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("torch_dtype: float32", "torch_dtype: bfloat16", (False, "bfloat16", True, 2)),
        ("strategy: fsdp2", "strategy: ddp", (True, "float32", True, 1)),
        ("activation_checkpointing: true", "activation_checkpointing: selective", (True, "float32", False, 2)),
    ],
)
def test_switches_say_what_they_say(old, new, told):
    plan = of_70b((old, new))
    found = (
        plan.optimizer.master_weights,
        plan.optimizer.moment_dtype,
        plan.recompute.all_layers,
        plan.parallel.optimizer_shard_level,
    )
    assert found == told


def test_what_decides_something_is_named_and_nothing_is_unknown():
    document = of_70b(
        ("loss.masked_ce.MaskedCrossEntropy", "loss.linear_ce.FusedLinearCrossEntropy"),
        (
            "packed_sequence:",
            "peft:\n  _target_: nemo_automodel.PeftConfig\n  dim: 8\n\ncompile:\n  enabled: true\n\npacked_sequence:",
        ),
    ).document
    assert {"loss_fn._target_", "peft.dim", "compile.enabled"} <= {key for key, _ in document.unread}
    assert document.unknown == ()


def test_a_plan_is_written_and_read_and_a_value_is_changed_where_it_stands():
    plan = of_70b(("dp_size: none", "dp_size: 4"))
    again = read_text(write_config(replace(plan, document=None), dialect="nemo-automodel").text, "new.yaml")
    assert (again.model, again.parallel, again.workload, again.recompute, again.optimizer) == (
        plan.model,
        plan.parallel,
        plan.workload,
        plan.recompute,
        plan.optimizer,
    )
    assert edit_config(plan.document, {"distributed.tp_size": 8}).diff().count("\n+  tp_size: 8") == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("tp_size: 4", "tp_size: many", "line 40, distributed.tp_size: 'many' must be a whole number"),
        ("meta-llama/Llama-3.1-70B", "acme/Secret-9B", "names no folder with a Hugging Face config.json"),
        ("torch_dtype: float32", "torch_dtype: int4", "model.torch_dtype: 'int4' must be one of"),
        ("activation_checkpointing: true", "activation_checkpointing: often", "must be True, False, full or selective"),
        ("dp_size: none", "dp_size: 8\n  dp_replicate_size: 3", "3 does not divide 8 replicas"),
    ],
)
def test_what_is_wrong_has_its_own_name(old, new, told):
    with pytest.raises(InputError, match=told):
        of_70b((old, new))


def test_a_right_file_has_no_errors():
    assert [one.rule for one in lint_text("a.yaml", LLAMA3_70B).problems if one.severity == "error"] == []
