"""Memory of torchtitan's own runs (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, BSD-3-Clause, figures only)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.config.dialects.torchtitan import REPEATED_OPERATORS
from perfkit.core import catalog
from perfkit.core.units import GIB
from perfkit.predict.memory.memory import peak_memory, static_of
from perfkit.predict.memory.settings import settings_for

FILE = """[model]
name = "llama3"
flavor = "{flavor}"
converters = {converters}
[training]
local_batch_size = {batch}
seq_len = {length}
[parallelism]
data_parallel_shard_degree = {shards}
tensor_parallel_degree = {tensor}
pipeline_parallel_degree = {stages}
pipeline_parallel_microbatch_size = {micro}
context_parallel_degree = {context}
[activation_checkpoint]
mode = "{mode}"
selective_ac_option = "op"
"""
NAMES = ("flavor", "length", "batch", "shards", "tensor", "stages", "context", "mode", "converters")
ROWS = [
    ("8B", 8192, 2, 8, 1, 1, 1, "selective", "[]", 82.4),
    ("8B", 8192, 2, 8, 1, 1, 1, "selective", '["float8"]', 76.8),
    ("8B", 32768, 1, 8, 1, 1, 1, "full", '["float8"]', 83.9),
    ("8B", 65536, 1, 4, 1, 1, 2, "full", '["float8"]', 84.2),
    ("8B", 131072, 1, 2, 1, 1, 4, "full", '["float8"]', 84.0),
    ("8B", 262144, 1, 1, 1, 1, 8, "full", '["float8"]', 84.5),
    ("8B", 8192, 2, 128, 1, 1, 1, "selective", "[]", 67.0),
    ("8B", 8192, 2, 128, 1, 1, 1, "selective", '["float8"]', 61.8),
    ("70B", 8192, 16, 32, 8, 1, 1, "full", '["float8"]', 71.9),
    ("405B", 8192, 32, 8, 8, 8, 1, "full", '["float8"]', 82.5),
    ("405B", 32768, 8, 8, 8, 8, 1, "full", '["float8"]', 75.3),
    ("405B", 65536, 8, 4, 8, 8, 2, "full", '["float8"]', 75.9),
    ("405B", 131072, 8, 2, 8, 8, 4, "full", '["float8"]', 77.1),
    ("405B", 262144, 8, 1, 8, 8, 8, "full", '["float8"]', 84.9),
]
"""Peaks in GiB that PyTorch's allocator holds. With a pipeline a local batch made as many micro batches as there are stages."""


def plan_of(*values):
    said = dict(zip(NAMES, values, strict=False))
    said["micro"] = max(1, said["batch"] // said["stages"])
    return replace(read_text(FILE.format(**said), "train.toml"), hardware=catalog.hardware_named("H100-80GB-SXM"))


def test_the_published_peaks_are_met():
    errors = []
    for *values, measured in ROWS:
        peak = peak_memory(plan_of(*values)).peak
        errors.append(abs((peak.total - peak.amount("reserved/context")) / GIB / measured - 1))
    assert max(errors) < 0.15
    assert sum(errors) / len(errors) < 0.1


def test_selective_by_operator_keeps_the_input_attention_and_every_second_product():
    plan = plan_of(*ROWS[0])
    tokens, model = 2 * 8192, plan.model
    kept = model.hidden_size * 3 + model.num_key_value_heads * model.head_size + model.ffn_hidden_size  # input, queries, output
    statistics = 4 * model.num_attention_heads * tokens
    layer = 2 * kept * tokens + statistics
    found = peak_memory(plan).peak
    activations = sum(found.amount(f"dynamic/activations/{part}") for part in ("norm", "attention", "ffn"))
    assert activations == pytest.approx(model.num_layers * layer, rel=1e-9)
    again = read_text(write_config(replace(plan, document=None), dialect="torchtitan").text, "again.toml")
    assert set(again.recompute.operators) == set(REPEATED_OPERATORS)


def test_context_ranks_share_parameters_and_tensor_ranks_split_norms():
    plan = plan_of("8B", 65536, 1, 4, 2, 1, 2, "full", "[]")
    assert plan.parallel.optimizer_shard_size == 8
    assert plan.parallel.sequence_parallel


def test_no_gradient_is_there_at_the_loss_of_the_only_micro_batch():
    once = plan_of(*ROWS[0])
    twice = replace(once, workload=replace(once.workload, global_batch_size=2 * once.workload.global_batch_size))
    assert peak_memory(once).moment == peak_memory(twice).moment == "at the loss of a micro batch"
    assert peak_memory(once).peak.amount("static/gradients") == 0
    assert peak_memory(twice).peak.amount("static/gradients") == pytest.approx(4 * 8.03e9 / 8, rel=0.01)


@pytest.mark.parametrize("stages", [1, 2])
def test_with_a_pipeline_weights_and_gradients_stay_whole_between_micro_batches(stages):
    plan = plan_of("8B", 8192, 2, 8, 1, stages, 1, "full", "[]")
    held = static_of(plan, settings_for(plan), 0).gradients / 4
    whole = 8.03e9 / stages
    assert held == pytest.approx(whole if stages > 1 else whole / 8, rel=0.01)
