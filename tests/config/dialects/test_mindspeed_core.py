"""MindSpeed-Core-MS YAML: both forms, lists that count disjoint layers, and every contradiction named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from perfkit.config.dialects import edit_config, write_config
from perfkit.config.dialects.read import read_text
from perfkit.core.errors import InputError
from perfkit.core.spec.recompute import RecomputePlan

CASES = json.loads((Path(__file__).parents[2] / "data" / "plans" / "d16_mindformers_lists.json").read_text(encoding="utf-8"))[
    "cases"
]
SMALL = """model_config:
  num_layers: 8
  hidden_size: 64
  num_attention_heads: 4
  ffn_hidden_size: 256
  vocab_size: 1000
  seq_length: 16
  use_flash_attention: {flash}
parallel_config:  # sizes
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
{parallel}dataset_config: {{batch_size: 2, micro_batch_num: 4}}
"""
NESTED = """accelerate_config:
  parallelization:
    tensor_parallel: 8                       # tensor
    pipeline:
      num_stages: 4
      layer_list: "[[4,4,4,4],[4,4,4,4],[4,4,4,4],[4,4,4,2]]"
      micro_batch_size: 1
      virtual_pipeline_model_parallel_size: 4
    use_sequence_parallel: True
    use_distributed_optimizer: True
  precision:
    param_init_dtype: float32
    compute_dtype: bfloat16
    grad_accumulation_dtype: float32
    fused_operators: flash_attention, rope, rmsnorm, swiglu
model_config:
  llm:
    tokenizer: {padded_size: 165664}
    embedding: {hidden_size: 6144}
    position: {type: 'rope', max_size: 4096}
    blocks:
      num_layers: 62
      layernorm: {norm_type: 'RMSNorm'}
      attention: {attention_type: 'GQA', head_num: 48, kv_group_size: 8, qkv_bias: False, projection_bias: False}
      ffn: {hidden_size: 27648, activation: 'swiglu'}
    head: {shared_embedding: False}
train_config:
  recompute_config:
    select_comm_recompute: "[[4,4,4,4],[4,4,4,4],[4,4,4,4],[4,4,4,2]]"
"""


def read(parallel: str = "", flash: bool = True):
    return read_text(SMALL.format(parallel=parallel, flash=flash), "ms.yaml")


def problems(parallel: str) -> str:
    with pytest.raises(InputError) as error:
        read(parallel)
    return str(error.value)


def test_the_guides_example_is_within_its_limits():
    plan = read(
        "  num_layer_list: [4, 4]\n"
        "  recompute_config: {recompute: [1, 1], select_recompute: [1, 1], select_comm_recompute: [1, 1]}\n"
    )
    assert plan.recompute.full_layers == ((1, 1),)
    assert plan.recompute.operators == {r"feed_forward\.w1\.activation": ((2, 2),)}
    assert plan.recompute.communication == ((2, 2),)
    assert plan.workload.global_batch_size == 8


def test_sums_over_the_layers_name_stage_and_number():
    message = problems(
        "  num_layer_list: [2, 6]\n  recompute: [2, 1]\n  select_recompute: [1, 1]\n  select_comm_recompute: '[0, 6]'\n"
    )
    assert "stage 0: recompute + select_recompute = 3 of 2 layers" in message
    assert "stage 1: recompute + select_comm_recompute = 7 of 6 layers" in message


@pytest.mark.parametrize(
    ("parallel", "wanted"),
    [
        ("  num_layer_list: [4, 4, 4]\n", "num_layer_list: [4, 4, 4] must be a list of 2 counts"),
        ("  num_layer_list: [4, 3]\n", "places 7 layers, the model has 8"),
        ("  recompute: [1, -1]\n", "recompute: [1, -1] must be a list of 2 counts"),
        ("  recompute: True\n", "recompute: True must be a list of 2 counts"),
        ("  recompute: '[1, 1'\n", "recompute: '[1, 1' must be a list"),
        ("  recompute_config: {all: [1, 1]}\n", "unknown key 'all'"),
        ("  virtual_pipeline_model_parallel_size: 2\n  recompute: [1, 1]\n", "must be 2 lists of 2 counts, one a chunk"),
        ("  virtual_pipeline_model_parallel_size: 4\n  num_layers_per_virtual_pipeline_stage: 2\n", "make 2 chunks"),
        ("  data_parallel_size: 4\n  zero_shard_size: 3\n", "zero_shard_size: 3 must be more than 1"),
        ("  zero_level: z4\n", "zero_level: 'z4' must be one of"),
        (
            "  recompute: [1, 1]\n  recompute_config: {recompute: [1, 1]}\n",
            "stands in parallel_config.recompute_config.recompute too",
        ),
    ],
)
def test_what_breaks_the_rules_is_named(parallel, wanted):
    assert wanted in problems(parallel)


def test_without_flash_attention_a_select_layer_repeats_the_core():
    assert read("  select_recompute: [4, 4]\n", flash=False).recompute.attention_core
    partly = read("  select_recompute: [4, 0]\n", flash=False).recompute.operators
    assert partly[r"attention\.softmax"] == ((4, 0),)


def test_the_nested_form_is_the_pangu_configuration():
    plan = read_text(NESTED, "pangu.yaml")
    assert plan.parallel.virtual_pipeline_parallel_size == 4
    assert plan.parallel.layers_per_stage[3] == (4, 4, 4, 2)
    assert plan.recompute.communication == plan.parallel.layers_per_stage
    assert (plan.model.num_key_value_heads, plan.model.gated_ffn, plan.model.tied_embeddings) == (8, True, False)
    assert plan.workload.attention_kernel == "flash"


def test_the_nested_form_changes_in_place():
    plan = read_text(NESTED, "pangu.yaml")
    wanted = replace(plan, parallel=replace(plan.parallel, tensor_parallel_size=4), recompute=RecomputePlan(all_layers=True))
    written = wanted.write()
    assert written.lost == ()
    assert "tensor_parallel: 4                       # tensor" in written.text
    assert "recompute: [[4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 2]]" in written.text


def test_zero_levels_and_shards():
    parallel = read("  data_parallel_size: 8\n  zero_level: z3\n  zero_shard_size: 4\n").parallel
    assert (parallel.optimizer_shard_size, parallel.optimizer_shard_level) == (4, 3)


def test_a_single_value_changes_alone():
    plan = read("  num_layer_list: [4, 4]\n")
    text = edit_config(plan.document, {"parallel_config.num_layer_list": [3, 5]}).text
    assert text == plan.document.text.replace("[4, 4]", "[3, 5]")


@pytest.mark.parametrize("case", [case for case in CASES if case["expected"]["ok"]], ids=lambda case: case["name"])
def test_mindformers_lists_become_the_published_disjoint_lists(case):
    config, expected = case["config"], case["expected"]["mindspeed_core_ms"]
    chunks = config.get("pp_interleave_num", 1)
    model = {"hidden_size": 64, "num_heads": 4, "vocab_size": 100, "seq_length": 16, "use_flash_attention": True}
    document = {
        "use_parallel": True,
        "parallel": {"parallel_mode": 1, "pipeline_config": {"pipeline_interleave": chunks > 1}},
        "parallel_config": {"pipeline_stage": config["pipeline_stage"], "micro_batch_num": 8},
        "recompute_config": config.get("recompute_config", {}),
        "model": {
            "model_config": model | {key: config[key] for key in ("num_layers", "offset", "pp_interleave_num") if key in config}
        },
    }
    written = write_config(read_text(yaml.safe_dump(document), "lists.yaml"), dialect="mindspeed-core")
    section = yaml.safe_load(written.text)["parallel_config"]
    for key in ("recompute", "select_recompute", "select_comm_recompute"):
        assert section["recompute_config"][key] == expected[key], key
    if "num_layer_list" in section:
        assert section["num_layer_list"] == expected["num_layer_list"]


def test_python_tags_are_refused(tmp_path):
    witness = tmp_path / "witness"
    with pytest.raises(InputError, match="is refused; it is never executed"):
        read_text(SMALL.format(parallel=f"  x: !!python/object/apply:os.mkdir ['{witness}']\n", flash=True), "x.yaml")
    assert not witness.exists()
