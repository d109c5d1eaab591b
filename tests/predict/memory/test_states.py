"""Bytes a parameter of weights, gradients and optimizer state against published tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.params import count_params
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec import OptimizerSpec, ParallelPlan, Plan, SoftwareSpec, Workload
from perfkit.predict.memory.memory import static_of
from perfkit.predict.memory.settings import PRESETS, MemorySettings, settings_for, settings_of

PLAIN = MemorySettings()
MODEL = catalog.model("llama2-7b")
TOTAL = count_params(MODEL).total


def bytes_a_parameter(devices=1, level=0, dtype="bfloat16", settings=PLAIN, **states):
    parallel = ParallelPlan(
        data_parallel_size=devices, optimizer_shard_size=devices if level else 1, optimizer_shard_level=max(1, level)
    )
    work = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8 * devices, dtype=dtype)
    held = static_of(Plan(model=MODEL, workload=work, parallel=parallel, optimizer=OptimizerSpec(**states)), settings, 0)
    return held.parameters / TOTAL, held.gradients / TOTAL, held.optimizer / TOTAL


@pytest.mark.parametrize(("level", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_needs_what_figure_1_of_the_paper_says(level, gigabytes):
    # arXiv 1910.02054, figure 1: 7.5e9 parameters on 64 devices, 16-bit weights and gradients, K = 12 bytes of optimizer state.
    assert 7.5 * sum(bytes_a_parameter(64, level, gradient_dtype="float16")) == pytest.approx(gigabytes, rel=3e-3)


@pytest.mark.parametrize(
    ("dtype", "gradient", "alone", "shared"), [("bfloat16", "float32", 18, (6, 12)), ("float32", "float32", 16, (8, 8))]
)
def test_megatrons_distributed_optimizer_needs_what_its_table_says(dtype, gradient, alone, shared):
    # Megatron-LM, docs/source/api-guide/dist_optimizer.md: 18 and 6 + 12/d bytes; 16 and 8 + 8/d in fp32, its own master copy.
    assert sum(bytes_a_parameter(dtype=dtype, gradient_dtype=gradient)) == alone
    for devices in (2, 8, 64):
        whole, part = shared
        assert sum(bytes_a_parameter(devices, 1, dtype=dtype, gradient_dtype=gradient)) == pytest.approx(whole + part / devices)


def test_without_a_master_copy_only_the_moments_are_left():
    # AdamW keeps two moments of 4 bytes.
    assert bytes_a_parameter(master_weights=False) == (2, 4, 8)
    assert bytes_a_parameter(4, 1, master_weights=False) == (2, 4, 2)


def test_states_have_the_precision_that_is_stated():
    # DeepSeek-V3 (arXiv 2412.19437, section 3.3.3): moments in bf16, master weights and gradients in fp32.
    assert bytes_a_parameter(moment_dtype="bfloat16") == (2, 4, 4 + 2 + 2)
    assert bytes_a_parameter(master_dtype="float16") == (2, 4, 2 + 8)
    assert bytes_a_parameter(parameter_dtype="float32") == (4, 4, 8)
    assert bytes_a_parameter(state_bytes_per_parameter=0, name="sgd", gradient_accumulation_bytes_per_parameter=4) == (2, 8, 4)


def test_float16_needs_what_bfloat16_does():
    assert bytes_a_parameter(dtype="float16") == bytes_a_parameter(dtype="bfloat16")


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 2), ("float32", 4)])
def test_gathered_weights_are_as_wide_as_layers_compute(dtype, width):
    parallel = ParallelPlan(data_parallel_size=8, optimizer_shard_size=8, optimizer_shard_level=3)
    work = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=64, dtype=dtype)
    held = static_of(Plan(model=MODEL, workload=work, parallel=parallel), PLAIN, 0)
    # Two layers of 4 h x h for attention and 3 h x f for the gated feed-forward block: one in work, one on its way.
    h, f = MODEL.hidden_size, MODEL.ffn_hidden_size
    assert held.gathered == 2 * (4 * h * h + 3 * h * f) * width
    assert held.total == held.parameters + held.gradients + held.optimizer + held.gathered


def test_the_program_that_a_plan_names_decides_and_else_the_usual_one_of_the_device():
    work = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8)
    plain = Plan(model=MODEL, workload=work)
    ascend = replace(plain, hardware=catalog.hardware_named("Ascend-910B2"))
    hopper = replace(plain, hardware=catalog.hardware_named("H100-80GB-SXM"))
    named = [replace(ascend, software=SoftwareSpec(framework=name)) for name in ("megatron", "deepspeed", "fsdp", "mindspore")]
    plans = [plain, ascend, hopper, *named]
    found = [settings_for(plan) for plan in plans]
    assert [settings.framework for settings in found] == ["megatron", "mindspore", "megatron"] + [
        plan.software.framework for plan in named
    ]
    assert found[2].workspace_bytes - found[0].workspace_bytes == 28 * 2**20
    columns = settings_of(PlanColumns.of(plans))
    assert [columns[row] for row in range(len(plans))] == found


def test_the_presets_have_the_figures_of_their_sources():
    megatron, deepspeed, mindspore = (PRESETS[name] for name in ("megatron", "deepspeed", "mindspore"))
    assert {preset.vocab_multiple for preset in (megatron, deepspeed)} == {128}  # make-vocab-size-divisible-by
    assert deepspeed.bucket_elements == 5e8  # reduce_bucket_size and allgather_bucket_size
    assert megatron.context_bytes == 1.6e9  # bigscience notes
    assert mindspore.context_bytes == (62_432 - 59_392) * 2**20  # MindFormers log: memory of the device and of the pool
    # Logits in 16 bit and in fp32; MindSpore keeps the gradient apart too.
    assert (megatron.logits_bytes_per_element, mindspore.logits_bytes_per_element) == (2 + 4, 2 + 4 + 4)
    assert PRESETS["fsdp"].logits_bytes_per_element == 2 + 4 + 4 + 4 + 2  # both copies, log-softmax, both gradients
    assert megatron.workspace_bytes == 2 * 32 * 2**20 + 4 * 2**20  # cuBLAS and Transformer Engine
    assert MemorySettings().workspace_bytes == MemorySettings().context_bytes == 0
