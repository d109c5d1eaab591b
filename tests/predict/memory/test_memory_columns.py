"""Many plans at once agree with the exact estimate of each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.spec import ParallelPlan, Plan, RecomputePlan, Workload
from perfkit.predict.cost.plan_rows import plan_columns
from perfkit.predict.memory._columns import peak_columns
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import preset


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
def test_columns_agree_with_the_estimate_of_every_plan(name, framework):
    settings, many = preset(framework), plans(name)
    exact = np.array([peak_memory(plan, settings=settings).peak.total for plan in many])
    errors = np.abs(peak_columns(plan_columns(many), settings) / exact - 1)
    assert errors.max() < 0.02
    assert errors.mean() < 0.005


def test_a_larger_batch_or_fewer_devices_never_need_less():
    settings, columns = preset("megatron"), plan_columns(plans("llama2-7b"))
    base = peak_columns(columns, settings)
    names = {name: getattr(columns, name) for name in columns.__dataclass_fields__}
    twice = type(columns)(**{**names, "micro_batch": 2 * columns.micro_batch, "global_batch": 2 * columns.global_batch})
    assert (peak_columns(twice, settings) > base).all()
