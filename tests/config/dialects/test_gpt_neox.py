"""GPT-NeoX's YAML: the published model, both spellings of names, widths of gated layers, what is named, and bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import edit_config, read_text, write_config
from perfkit.config.lint import lint_text
from perfkit.core.errors import InputError
from perfkit.core.params import count_params

OF_20B = """# GPT-NeoX-20B as it was trained on 96 devices
{
  "pipe-parallel-size": 4,
  "model-parallel-size": 2,
  "num-layers": 44,
  "hidden-size": 6144,
  "num-attention-heads": 64,
  "seq-length": 2048,
  "max-position-embeddings": 2048,
  "norm": "layernorm",
  "pos-emb": "rotary",
  "no-weight-tying": true,
  "gpt_j_residual": true,
  "optimizer": {"type": "Adam", "params": {"lr": 0.97e-4, "betas": [0.9, 0.95],}},
  "zero_optimization": {"stage": 1, "overlap_comm": True, "reduce_bucket_size": 1260000000, "cpu_offload": False},
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 32,
  "checkpoint-activations": true,
  "checkpoint-num-layers": 1,
  "partition-activations": false,
  "hidden-dropout": 0,
  "fp16": {"fp16": true, "enabled": true, "loss_scale": 0},
  "tokenizer_type": "HFTokenizer",  # %s
}
"""


def of_20b(**changes):
    text = OF_20B
    for key, value in changes.items():
        text = text.replace("  # %s", f'\n  "{key}": {value},\n  # %s')
    return read_text(text, "20B.yml")


def test_the_published_model_has_its_published_parameters():
    plan = of_20b()
    assert count_params(plan.model).total == 20_554_567_680  # arXiv 2204.06745, table 1
    assert (plan.parallel.tensor_parallel_size, plan.parallel.pipeline_parallel_size) == (2, 4)
    assert (plan.workload.dtype, plan.workload.micro_batch_size, plan.num_micro_batches) == ("float16", 4, 32)
    assert plan.recompute.all_layers
    assert plan.workload.attention_kernel == "unfused"
    assert plan.software.overlap_dp


def test_devices_follow_from_all_three_batches():
    plan = of_20b(train_batch_size=12 * 4 * 32)
    assert (plan.num_devices, plan.parallel.data_parallel_size, plan.parallel.optimizer_shard_size) == (96, 12, 12)


def test_both_spellings_mean_the_same():
    other = OF_20B.replace("-parallel-", "_parallel_").replace("num-", "num_").replace("hidden-size", "hidden_size")
    assert replace(read_text(other, "20B.yml"), document=None) == replace(of_20b(), document=None)


@pytest.mark.parametrize(
    ("lines", "width"),
    [
        ('"activation": "swiglu", "intermediate_size": 32768, "mlp_multiple_of": 256', 11008),  # configs/llama2/7B.yml
        ('"mlp_type": "llama"', 11008),
    ],
)
def test_a_gated_layer_is_as_wide_as_the_program_makes_it(lines, width):
    heads = OF_20B.replace('"num-attention-heads": 64', '"num-attention-heads": 32')
    text = heads.replace('"hidden-size": 6144', f'"hidden-size": 4096, {lines}')
    model = read_text(text, "7B.yml").model
    assert (model.gated_ffn, model.ffn_hidden_size) == (True, width)


def test_what_decides_something_is_named_and_nothing_is_unknown():
    document = of_20b(sparsity_config="{}", moe_expert_interval=2).document
    assert [key for key, _ in document.unread] == ["gpt_j_residual", "zero_optimization.reduce_bucket_size", "moe_expert_interval"]
    assert document.unknown == ()


def test_a_plan_is_written_and_read_and_a_value_is_changed_where_it_stands():
    plan = of_20b(train_batch_size=12 * 4 * 32)
    text = write_config(replace(plan, document=None), dialect="gpt-neox").text
    again = read_text(text, "new.yaml")
    assert (again.model.ffn_hidden_size, again.parallel, again.workload, again.recompute) == (
        plan.model.ffn_hidden_size,
        plan.parallel,
        plan.workload,
        plan.recompute,
    )
    written = edit_config(plan.document, {"model_parallel_size": 4})
    assert [line for line in written.diff().splitlines() if line.startswith(("-  ", "+  "))] == [
        '-  "model-parallel-size": 2,',
        '+  "model-parallel-size": 4,',
    ]


def test_what_is_wrong_has_its_line_and_its_own_name():
    bad = OF_20B.replace('"num-layers": 44', '"num-layers": many').replace('  "train_micro_batch_size_per_gpu": 4,\n', "")
    with pytest.raises(InputError, match=r"line 5, num-layers") as error:
        read_text(bad, "bad.yml")
    assert any(problem.startswith("train_micro_batch_size_per_gpu: is missing") for problem in error.value.problems)
    with pytest.raises(InputError, match="layers of mamba"):
        of_20b(attention_config='[[["mamba"], 44]]')


def test_layers_that_do_not_divide_are_spread_and_no_error():
    text = OF_20B.replace('"num-layers": 44', '"num-layers": 45')
    assert sorted(read_text(text, "20B.yml").stage_layers[0]) == [11, 11, 11, 12]
    assert [problem for problem in lint_text("20B.yml", text).problems if problem.severity == "error"] == []
