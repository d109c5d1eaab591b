"""Memory against published figures, and the laws that hold for every plan."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.core.spec import ModelSpec, OptimizerSpec, ParallelPlan, Plan, RecomputePlan, Workload
from perfkit.core.units import GIB
from perfkit.predict.memory.activations import layer_tensors
from perfkit.predict.memory.guide import (
    BYTES_A_PARAMETER,
    activation_table,
    freed_bytes,
    guide_activations,
    guide_static,
    static_table,
)
from perfkit.predict.memory.in_flight import in_flight
from perfkit.predict.memory.memory import chunk_activations, parameters_of, peak_memory, static_of
from perfkit.predict.memory.settings import PRESETS, SOURCES, MemorySettings, preset, settings_for

PLAIN = MemorySettings()
LLAMA_7B, LLAMA_13B = catalog.model("llama2-7b"), catalog.model("llama2-13b")


def gpt(layers: int, hidden: int, heads: int) -> ModelSpec:
    return ModelSpec(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_size=hidden // heads,
        ffn_hidden_size=4 * hidden,
        vocab_size=51200,
        gated_ffn=False,
        norm="layernorm",
        bias="all",
    )


def plan_of(model: ModelSpec, *, seq=4096, batch=1, micro_batches=1, recompute=None, optimizer=None, work=None, **sizes) -> Plan:
    parallel = ParallelPlan(**sizes)
    return Plan(
        model=model,
        workload=Workload(
            seq_length=seq,
            micro_batch_size=batch,
            global_batch_size=batch * micro_batches * parallel.data_parallel_size * parallel.micro_batch_interleave_size,
            **(work or {}),
        ),
        parallel=parallel,
        recompute=recompute or RecomputePlan(),
        optimizer=optimizer or OptimizerSpec(),
    )


def layers_in_flight(plan: Plan, stage: int = 0, settings: MemorySettings = PLAIN) -> float:
    """Activations of layers alone, in bytes, as published formulas count them."""
    chunks = plan.parallel.virtual_pipeline_parallel_size
    vectors = in_flight("1f1b", plan.parallel.pipeline_parallel_size, chunks, plan.num_micro_batches)[stage]
    each = [sum(chunk_activations(plan, settings, chunk, stage).values()) for chunk in range(chunks)]
    return max(sum(count * amount for count, amount in zip(vector, each, strict=True)) for vector in vectors)


OLD_GPT = {"dropout": True, "attention_kernel": "unfused"}
KORTHIKANTI = {
    "22B": (gpt(48, 6144, 64), 4, 1, 1, 59.25, 9.5625),
    "175B": (gpt(96, 12288, 96), 1, 8, 3, 66.84375, 12.3515625),
    "530B": (gpt(105, 20480, 128), 1, 35, 3, 114.0234375, 23.076171875),
    "1T": (gpt(128, 25600, 160), 1, 64, 1, 131.25, 26.5625),
}


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_activations_of_the_first_stage_are_those_of_the_paper(name):
    model, batch, stages, chunks, plain, selective = KORTHIKANTI[name]
    sizes = {
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": stages,
        "virtual_pipeline_parallel_size": chunks,
        "micro_batches": 4 * stages,
    }
    nothing = plan_of(model, seq=2048, batch=batch, work=OLD_GPT, **sizes)
    both = plan_of(
        model, seq=2048, batch=batch, work=OLD_GPT, sequence_parallel=True, recompute=RecomputePlan(attention_core=True), **sizes
    )
    assert layers_in_flight(nothing) / GIB == plain
    assert layers_in_flight(both) / GIB == selective


def test_static_memory_of_the_7b_test_run_of_megatron():
    model = replace(gpt(32, 4096, 32), num_key_value_heads=8, vocab_size=131_073, max_position_embeddings=8192)
    plan = plan_of(model, seq=8192, batch=2, data_parallel_size=2, tensor_parallel_size=4, optimizer_shard_size=2)
    held = parameters_of(plan, preset("megatron"), 0)
    assert held.matrices + held.embedding == 1_678_770_176
    static = static_of(plan, preset("megatron"), 0)
    assert (static.parameters + static.gradients + static.optimizer) == 12 * held.total
    # Measured between steps on an A100, framework counter; all but 0.02 % is accounted for.
    measured = 20_634_103_808
    assert (12 * held.total + preset("megatron").workspace_bytes) == pytest.approx(measured, rel=2e-4)


@pytest.mark.parametrize("name", ["llama2-7b", "llama2-70b", "mixtral-8x7b", "deepseek-v2", "gpt2-124m", "qwen2-7b", "bloom-176b"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_parameters_of_the_stages_sum_to_the_model(name, stages):
    model = catalog.model(name)
    plan = plan_of(model, pipeline_parallel_size=stages, micro_batches=stages)
    total = sum(parameters_of(plan, PLAIN, stage).total for stage in range(stages))
    copied = model.vocab_size * model.hidden_size if model.tied_embeddings and stages > 1 else 0
    assert total == count_params(model).total + copied


def test_the_guides_static_memory_and_the_exact_one():
    assert guide_static(7e9) == 70e9
    assert guide_static(7e9, shards=8) == 8.75e9
    assert guide_static(7e9, shards=8, accumulation=True) == 22.75e9
    thirteen = count_params(LLAMA_13B).total
    assert guide_static(thirteen, shards=8, accumulation=True) == pytest.approx(42.30e9, rel=1e-4)
    assert guide_static(thirteen / 2, shards=8, accumulation=True) == pytest.approx(21.15e9, rel=1e-4)
    seven = count_params(LLAMA_7B).total
    assert [round(width * seven / 1e9, 2) for width in BYTES_A_PARAMETER.values()] == [67.38, 107.81, 121.29]
    for gradient, width in (("bfloat16", 16), ("float32", 18)):
        plan = plan_of(LLAMA_7B, optimizer=OptimizerSpec(gradient_dtype=gradient))
        static = static_of(plan, PLAIN, 0)
        assert static.parameters + static.gradients + static.optimizer == width * seven
    table = static_table(plan_of(LLAMA_7B, data_parallel_size=8, optimizer_shard_size=8, micro_batches=4))
    assert table["guide_bytes"].sum() == pytest.approx(10 * seven / 8 + 2 * seven)
    with pytest.raises(InputError, match="must be positive"):
        guide_static(0)


def test_a_gradient_copy_exists_with_accumulation_or_a_pipeline():
    mindspore = PRESETS["mindspore"]
    sizes = {"data_parallel_size": 8, "optimizer_shard_size": 8}
    total = count_params(LLAMA_7B).total
    single = OptimizerSpec(gradient_dtype="bfloat16")
    once = static_of(plan_of(LLAMA_7B, optimizer=single, **sizes), mindspore, 0)
    several = static_of(plan_of(LLAMA_7B, optimizer=single, micro_batches=2, **sizes), mindspore, 0)
    assert once.gradients == 2 * total / 8
    assert several.gradients == 2 * total
    assert once.parameters + once.gathered == 2 * total


def test_zero_levels_share_more_and_more():
    total = count_params(LLAMA_7B).total
    found = []
    for level in (1, 2, 3):
        plan = plan_of(LLAMA_7B, data_parallel_size=8, optimizer_shard_size=8, optimizer_shard_level=level)
        static = static_of(plan, PLAIN, 0)
        found.append((static.parameters / total, static.gradients / total, static.optimizer / total))
        assert (static.gathered > 0) == (level == 3)
    assert found == [(2, 4, 1.5), (2, 0.5, 1.5), (0.25, 0.5, 1.5)]


def test_other_optimizers_keep_other_states():
    total, plan = count_params(LLAMA_7B).total, plan_of(LLAMA_7B)
    sgd = replace(plan, optimizer=OptimizerSpec(name="sgd", state_bytes_per_parameter=4, master_weights=False))
    assert static_of(sgd, PLAIN, 0).optimizer == 4 * total
    muon = replace(plan, optimizer=OptimizerSpec(name="muon", matrix_state_bytes_per_parameter=4))
    held = parameters_of(plan, PLAIN, 0)
    assert static_of(muon, PLAIN, 0).optimizer == 8 * held.matrices + 12 * (held.embedding + held.others)


def test_8_bit_products_keep_the_weights_of_the_layers_twice_more():
    plan = plan_of(LLAMA_7B)
    eight = replace(plan, workload=replace(plan.workload, dtype="float8"))
    held = parameters_of(plan, PLAIN, 0)
    assert static_of(eight, PLAIN, 0).parameters == static_of(plan, PLAIN, 0).parameters + 2 * held.matrices
    once = replace(PLAIN, float8_copy_bytes=1)
    assert static_of(eight, once, 0).parameters == 2 * held.total + held.matrices


GPT_7B = gpt(32, 4096, 32)


def test_the_guides_activation_rows_sum_to_the_layer():
    table = activation_table(plan_of(GPT_7B, work=OLD_GPT))
    by_part = table.groupby("part")["guide_bytes"].sum()
    sbh = 4096 * 4096
    assert by_part["attention"] == 11 * sbh + 5 * 32 * 4096**2
    assert by_part["ffn"] == 19 * sbh
    assert by_part["norm"] == 4 * sbh
    assert table["guide_bytes"].sum() == table["exact_bytes"].sum() == 3_254_779_904


def test_what_only_the_guides_table_has_takes_nothing_of_the_plan():
    plan = plan_of(LLAMA_7B)
    table, tensors = activation_table(plan), layer_tensors(plan, PLAIN, experts=False)
    assert table["exact_bytes"].sum() == sum(tensor.bytes for tensor in tensors)
    assert len(table) > len(tensors), "as masks of dropout"


@pytest.mark.parametrize(
    ("case", "sequence_parallel", "core", "expected"),
    [
        ("tensor", False, False, 553_648_128),
        ("tensor and sequence", True, False, 406_847_488),
        ("tensor, selective", False, True, 218_103_808),
        ("tensor and sequence, selective", True, True, 71_303_168),
    ],
)
def test_the_guides_splits_over_the_tensor_group(case, sequence_parallel, core, expected):
    plan = plan_of(
        replace(GPT_7B, num_layers=1),
        work=OLD_GPT,
        tensor_parallel_size=8,
        sequence_parallel=sequence_parallel,
        recompute=RecomputePlan(attention_core=core),
    )
    assert guide_activations(plan, case) == expected
    assert layers_in_flight(plan) == expected


def test_full_recomputation_keeps_the_input_of_a_layer():
    plan = plan_of(replace(GPT_7B, num_layers=1), work=OLD_GPT, recompute=RecomputePlan(all_layers=True))
    assert layers_in_flight(plan) == guide_activations(plan, "full") == 33_554_432
    with pytest.raises(InputError, match="must be one of tensor"):
        guide_activations(plan, "none")


@pytest.mark.parametrize(("tensor", "sequence_parallel"), [(1, False), (4, False), (4, True)])
def test_a_llama_layer_keeps_what_its_formula_says(tensor, sequence_parallel):
    model = catalog.model("llama2-70b")
    plan = plan_of(model, tensor_parallel_size=tensor, sequence_parallel=sequence_parallel)
    s, h, a, k, f = 4096, model.hidden_size, model.num_attention_heads, model.num_key_value_heads, model.ffn_hidden_size
    split = (4 + 4 * k / a) * h + 8 * f
    norms = 8 * h / tensor if sequence_parallel else 8 * h
    statistics = 4 * a * s / tensor  # Flash attention keeps a maximum and a sum a row, in one 32-bit number.
    total = sum(tensor.bytes for tensor in layer_tensors(plan, PLAIN, experts=False))
    assert total == s * (norms + split / tensor) + statistics
    fused = sum(tensor.bytes for tensor in layer_tensors(plan, preset("megatron"), experts=False))
    assert total - fused == 2 * s * f / tensor


def test_single_recomputations_free_what_the_guides_say():
    mindspore, plan = PRESETS["mindspore"], plan_of(LLAMA_13B)
    norm = next(tensor for tensor in layer_tensors(plan, mindspore, experts=False) if tensor.part == "norm")
    assert norm.bytes == 83_886_080
    assert norm.bytes - freed_bytes(plan, (r"attention_norm\.cast",), mindspore) == 41_943_040
    silu_mul = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
    assert freed_bytes(plan, silu_mul, mindspore) == 226_492_416
    assert 40 * freed_bytes(plan, silu_mul, mindspore) == pytest.approx(9.06e9, rel=1e-3)


def test_repeating_only_the_cast_down_costs_memory():
    mindspore, plan = PRESETS["mindspore"], plan_of(LLAMA_13B)
    assert freed_bytes(plan, (r"attention_norm\.rcast",), mindspore) == -41_943_040
    assert freed_bytes(plan, (r"attention_norm\.rcast", r"attention_norm\.norm"), mindspore) == 41_943_040


def test_gathering_again_keeps_only_the_devices_own_slice():
    mindspore = PRESETS["mindspore"]
    plan = plan_of(LLAMA_7B, tensor_parallel_size=8, sequence_parallel=True)
    assert freed_bytes(plan, (), mindspore, gather_again=True) == 2 * 29_360_128
    assert freed_bytes(plan, (), PLAIN, gather_again=True) == 0


def test_pp2_keeps_two_micro_batches_first_and_one_last():
    assert in_flight("1f1b", 2, 1, 8) == (((2,),), ((1,),))


@pytest.mark.parametrize(
    ("schedule", "chunks", "stage", "expected"),
    [
        ("gpipe", 1, 0, ((8,),)),
        ("1f1b", 1, 1, ((3,),)),
        ("zbh1", 1, 3, ((4,),)),
        ("vpp", 2, 0, ((7, 4), (8, 3))),
        ("vpp", 2, 3, ((4, 1), (5, 0))),
        ("vpp_lm", 2, 0, ((4, 4), (5, 3), (6, 2), (7, 1), (8, 0))),
        ("dualpipe", 1, 1, ((3, 2),)),
    ],
)
def test_micro_batches_in_flight_of_four_stages_and_eight_micro_batches(schedule, chunks, stage, expected):
    assert in_flight(schedule, 4, chunks, 8)[stage] == expected


def test_fewer_micro_batches_than_stages_and_pieces_of_a_sequence():
    assert in_flight("1f1b", 4, 1, 2) == (((2,),), ((2,),), ((2,),), ((1,),))
    # All four pieces of a micro batch go forward before one comes back.
    assert in_flight("1f1b", 2, 1, 8, 4) == (((5,),), ((4,),))


def test_a_pipeline_of_pieces_keeps_less():
    whole = plan_of(LLAMA_7B, pipeline_parallel_size=4, micro_batches=8)
    pieces = plan_of(LLAMA_7B, pipeline_parallel_size=4, micro_batches=8, sequence_chunks=4)
    kept = [peak_memory(plan, settings=PLAIN).stages[0].amount("dynamic/activations/ffn") for plan in (whole, pieces)]
    assert kept[1] == kept[0] * (7 / 4) / 4


def test_long_pipelines_repeat_their_pattern():
    assert in_flight("vpp", 4, 3, 400) == in_flight("vpp", 4, 3, 16)


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 2), ("none", 1), ("zbh1", 3)])
def test_a_schedule_that_does_not_fit_is_refused(schedule, chunks):
    with pytest.raises(InputError, match="schedule"):
        in_flight(schedule, 4, chunks, 8)


def test_recompute_lists_apply_to_the_first_layers_of_a_stage():
    silu_mul = {r"feed_forward\.mul": ((3, 0),), r"feed_forward\.w1\.activation\.silu": ((3, 0),)}
    plan = plan_of(
        LLAMA_13B,
        pipeline_parallel_size=2,
        micro_batches=4,
        recompute=RecomputePlan(full_layers=((1, 0),), operators=silu_mul),
    )
    plain = plan_of(LLAMA_13B, pipeline_parallel_size=2, micro_batches=4)
    first, second = (sum(chunk_activations(plan, PLAIN, 0, stage).values()) for stage in (0, 1))
    layer = sum(tensor.bytes for tensor in layer_tensors(plain, PLAIN, experts=False))
    assert second == 20 * layer
    assert second - first == layer - 2 * 4096 * 5120 + 2 * 226_492_416


def test_swapped_layers_leave_all_but_two_on_the_host():
    plan = plan_of(LLAMA_13B, recompute=RecomputePlan(swapped_layers=((10,),)))
    layer = sum(tensor.bytes for tensor in layer_tensors(plan, PLAIN, experts=False))
    assert sum(chunk_activations(plan, PLAIN, 0, 0).values()) == 32 * layer


@pytest.mark.parametrize("algorithm", ["ring", "ulysses", "hybrid"])
def test_context_parallel_divides_all_activations(algorithm):
    single = plan_of(LLAMA_7B)
    split = plan_of(
        LLAMA_7B, context_parallel_size=4, context_parallel_algorithm=algorithm, ulysses_size=2 * (algorithm == "hybrid")
    )
    assert layers_in_flight(split) == layers_in_flight(single) / 4
    assert peak_memory(split).peak.amount("dynamic/communication_buffers/context") > 0


def test_experts_count_the_tokens_that_are_routed_to_them():
    model = catalog.model("mixtral-8x7b")
    plan = plan_of(model, data_parallel_size=8, expert_parallel_size=8)

    def experts(settings: MemorySettings = PLAIN, capacity: float = 0.0) -> float:
        changed = replace(plan, model=replace(model, expert_capacity_factor=capacity))
        return chunk_activations(changed, settings, 0, 0)["experts"] / model.num_layers

    routed = 4096 * 2
    h, f = model.hidden_size, model.expert_ffn_hidden_size
    assert experts() == routed * (4 * h + 8 * f) + 4096 * 2 * h + 8 * 4096 * 8
    assert experts(replace(PLAIN, expert_imbalance=1.5)) - experts() == pytest.approx(0.5 * routed * (4 * h + 8 * f))
    assert experts(capacity=1.25) - experts() == pytest.approx(0.25 * routed * (4 * h + 8 * f))


def test_leading_dense_layers_are_no_mixture_layers():
    model = catalog.model("deepseek-v2")
    plan = plan_of(model, pipeline_parallel_size=4, micro_batches=4, data_parallel_size=8, expert_parallel_size=8)
    assert "ffn" in chunk_activations(plan, PLAIN, 0, 0)
    assert "ffn" not in chunk_activations(plan, PLAIN, 0, 1)


def test_the_leaves_sum_to_the_peak_and_the_fullest_stage_decides():
    estimate = peak_memory(plan_of(LLAMA_13B, tensor_parallel_size=2, pipeline_parallel_size=4, micro_batches=8))
    assert estimate.fullest_stage == 0
    assert sum(estimate.peak.parts.values()) == estimate.peak.total == max(stage.total for stage in estimate.stages)
    assert {path.split("/")[0] for path in estimate.peak.parts} == {"static", "dynamic", "reserved"}
    assert estimate.fits(estimate.peak.total)
    assert not estimate.fits(estimate.peak.total - 1)
    assert estimate.moments[-1] == "at the loss of a micro batch"


def test_a_large_vocabulary_makes_the_loss_the_peak():
    small = plan_of(replace(LLAMA_7B, vocab_size=1024), work=OLD_GPT, recompute=RecomputePlan(all_layers=True))
    assert peak_memory(small).moment == "in the backward pass of a layer"
    large = replace(small, model=replace(LLAMA_7B, vocab_size=2_000_000))
    assert peak_memory(large).moment == "at the loss of a micro batch"


def test_an_uneven_split_gives_the_first_stages_one_layer_more():
    assert plan_of(replace(LLAMA_7B, num_layers=10), pipeline_parallel_size=4, micro_batches=4).stage_layers == ((3, 3, 2, 2),)


def test_settings_follow_the_file_and_the_device():
    plan = plan_of(LLAMA_7B)
    assert settings_for(plan) == PRESETS["megatron"]
    assert settings_for(replace(plan, hardware=catalog.hardware_named("Ascend-910B2"))) == PRESETS["mindspore"]
    hopper = settings_for(replace(plan, hardware=catalog.hardware_named("H100-80GB-SXM")))
    assert hopper.workspace_bytes - PRESETS["megatron"].workspace_bytes == 28 * 2**20
    with pytest.raises(InputError, match="known are megatron, deepspeed, fsdp, mindspore"):
        preset("jax")
    with pytest.raises(InputError) as error:
        MemorySettings(fragmentation=1.5, expert_imbalance=math.nan, context_bytes=-1)
    assert len(error.value.problems) == 3
    assert all(hasattr(PLAIN, name) for name in SOURCES)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {
            "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
            "pipeline_parallel_size": st.sampled_from([1, 2, 4]),
            "data_parallel_size": st.sampled_from([1, 2, 8]),
            "optimizer_shard_level": st.integers(1, 3),
            "sequence_parallel": st.booleans(),
            "batch": st.integers(1, 4),
        }
    ),
    chunks=st.sampled_from([1, 2]),
    groups=st.integers(1, 3),
    framework=st.sampled_from(list(PRESETS)),
    dtype=st.sampled_from(["bfloat16", "float32"]),
)
def test_more_of_anything_never_needs_less(sizes, chunks, groups, framework, dtype):
    stages = sizes["pipeline_parallel_size"]
    plan = plan_of(
        LLAMA_7B,
        seq=1024,
        micro_batches=groups * stages,
        virtual_pipeline_parallel_size=chunks if stages > 1 else 1,
        optimizer_shard_size=sizes["data_parallel_size"],
        work={"dtype": dtype},
        **sizes,
    )
    settings, batch = preset(framework), sizes["batch"]
    peak = peak_memory(plan, settings=settings).peak.total
    work = replace(plan.workload, micro_batch_size=2 * batch, global_batch_size=2 * plan.workload.global_batch_size)
    assert peak_memory(replace(plan, workload=work), settings=settings).peak.total >= peak
    assert peak_memory(replace(plan, recompute=RecomputePlan(all_layers=True)), settings=settings).peak.total <= peak * 1.05
    for parts in peak_memory(plan, settings=settings).stages:
        assert all(isinstance(amount, int) and amount > 0 for amount in parts.parts.values())
