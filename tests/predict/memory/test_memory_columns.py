"""Many plans at once agree with the exact estimate of each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.plan_columns import Coded, PlanColumns
from perfkit.core.spec import ParallelPlan, Plan, RecomputePlan, Workload
from perfkit.predict.memory import table
from perfkit.predict.memory.counters import Counter, counted_bytes, counter_of, scope_of
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import PRESETS, preset
from perfkit.predict.memory.table import ALL, fullest_bytes


def plans(name: str) -> list[Plan]:
    model, found = catalog.model(name), []
    recompute = itertools.cycle([RecomputePlan(), RecomputePlan(all_layers=True), RecomputePlan(attention_core=True)])
    for tensor, stages, chunks, data, level, batch in itertools.product((1, 4), (1, 2, 4), (1, 2), (1, 8), (0, 1, 2, 3), (1, 4)):
        if (chunks > 1 and stages == 1) or (level and data == 1):
            continue
        parallel = ParallelPlan(
            tensor_parallel_size=tensor,
            pipeline_parallel_size=stages,
            virtual_pipeline_parallel_size=chunks,
            data_parallel_size=data,
            expert_parallel_size=min(8, data) if model.num_experts else 1,
            sequence_parallel=tensor > 1 and batch == 1,
            optimizer_shard_size=data if level else 1,
            optimizer_shard_level=max(1, level),
        )
        work = Workload(seq_length=4096, micro_batch_size=batch, global_batch_size=batch * data * stages * 4)
        hardware = catalog.hardware_named("A100-80GB-SXM")
        found.append(Plan(model=model, hardware=hardware, workload=work, parallel=parallel, recompute=next(recompute)))
    return found


@pytest.mark.parametrize("framework", ["megatron", "fsdp", "mindspore"])
@pytest.mark.parametrize("name", ["llama2-7b", "llama2-70b", "mixtral-8x7b"])
def test_many_plans_at_once_need_what_each_needs_alone(name, framework):
    settings, many = preset(framework), plans(name)
    alone = [peak_memory(plan, settings=settings) for plan in many]
    columns = PlanColumns.of(many)
    peak, static = fullest_bytes(columns, Coded.same(settings, len(many)), ALL, ("static",))
    np.testing.assert_array_equal(peak, [max(stage.total for stage in found.stages) for found in alone])
    np.testing.assert_array_equal(static, [max(stage.amount("static") for stage in found.stages) for found in alone])


def test_plans_of_all_kinds_may_stand_in_one_table():
    many = [plan for name in ("gpt2-124m", "deepseek-v3", "llama2-7b", "mixtral-8x7b") for plan in plans(name)[:24]]
    settings = Coded.of([preset(framework) for _, framework in zip(many, itertools.cycle(PRESETS), strict=False)])
    (peak,) = fullest_bytes(PlanColumns.of(many), settings, ALL)
    alone = [peak_memory(plan, settings=settings[row]).peak.total for row, plan in enumerate(many)]
    np.testing.assert_array_equal(peak, alone)


def test_a_larger_batch_never_needs_less():
    settings, many = preset("megatron"), PlanColumns.of(plans("llama2-7b"))
    twice = replace(many, micro_batch_size=2 * many.micro_batch_size, global_batch_size=2 * many.global_batch_size)
    same = Coded.same(settings, len(many))
    assert (fullest_bytes(twice, same, ALL)[0] > fullest_bytes(many, same, ALL)[0]).all()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1", "dualpipe", "vpp_lm"])
def test_many_micro_batches_of_any_schedule_are_told_apart(schedule):
    chunks = 2 if schedule == "vpp_lm" else 1
    many = [
        Plan(
            model=replace(catalog.model("llama2-7b"), num_layers=layers),
            workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=micro_batches, dropout=True),
            parallel=ParallelPlan(pipeline_parallel_size=4, virtual_pipeline_parallel_size=chunks),
        )
        for micro_batches in (1, 2, 3, 4, 5, 8, 15, 16, 17, 18, 20, 40, 42, 43)
        for layers in (29, 32)
    ]
    settings = Coded.same(preset("megatron"), len(many))
    (found,) = fullest_bytes(PlanColumns.of(many), settings, ALL, schedule=schedule)
    alone = [peak_memory(plan, schedule=schedule, settings=preset("megatron")).peak.total for plan in many]
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("scope", ["first", "last", "fullest"])
def test_a_counter_sees_its_part_on_its_stage(scope):
    many = plans("llama2-7b")
    counters: list[Counter] = ["static", "allocated", "device", "tensors"]
    counted = [counter for _, counter in zip(many, itertools.cycle(counters), strict=False)]
    settings = Coded.same(preset("megatron"), len(many))
    found = counted_bytes(PlanColumns.of(many), settings, Coded.of(counted), Coded.same(scope, len(many)))
    for plan, counter, amount in zip(many, counted, found, strict=True):
        stages = peak_memory(plan, settings=preset("megatron")).stages
        stages = {"first": stages[:1], "last": stages[-1:], "fullest": stages}[scope]
        assert amount == max(sum(stage.amount(path) for path in SEEN[counter]) for stage in stages)


LAYERS = ("norm", "attention", "ffn", "experts", "recomputed_layers")
SEEN = {
    # Between two steps the allocator holds states, buffers between stages and workspaces; a formula counts layers alone.
    "static": ("static", "dynamic/communication_buffers/pipeline", "reserved/workspace"),
    "allocated": ("static", "dynamic", "reserved/workspace"),
    "device": ("static", "dynamic", "reserved"),
    "tensors": (
        "static",
        *(f"dynamic/activations/{part}" for part in LAYERS),
    ),
}


def test_cells_name_counters_and_stages_in_words():
    kinds = ["static allocated (torch)", "max allocated (torch)", "analytical value of the paper", "device-used", ""]
    assert [counter_of(kind) for kind in kinds] == ["static", "allocated", "tensors", "device", "device"]
    scopes = ["last rank (last pipeline stage)", "first pipeline stage", "largest device (first/last stage)", ""]
    assert [scope_of(scope) for scope in scopes] == ["last", "first", "fullest", "fullest"]


@pytest.mark.parametrize("size", [1, 7])
def test_a_table_in_pieces_needs_what_it_needs_at_once(size: int, monkeypatch: pytest.MonkeyPatch):
    columns = PlanColumns.of(plans("llama2-7b"))
    settings = Coded.same(preset("megatron", "A100-80GB-SXM"), len(columns))
    (whole,) = fullest_bytes(columns, settings, ALL)
    monkeypatch.setattr(table, "CHUNK", size)
    (pieces,) = fullest_bytes(columns, settings, ALL)
    assert pieces.tolist() == whole.tolist()
