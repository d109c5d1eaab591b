"""What `balance` says of a plan is what the estimate says of the plan that it writes, in time, memory and whether it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload
from perfkit.predict.estimate import efficiency_of, estimate
from perfkit.predict.plans.balance.from_plan import balanced, problem_of_plan
from perfkit.predict.plans.schedule.order import shape_problems
from tests.predict.random_plans import random_plans

EXACT = 1e-4


def bundled() -> dict[str, Plan]:
    """The bundled configurations with a pipeline, on a device where they name none."""
    found = {}
    for path in sorted((data_folder() / "configs").rglob("*.*")):
        if path.suffix not in (".yaml", ".toml", ".sh"):
            continue
        plan = read_config(path)
        plan = plan if plan.hardware else replace(plan, hardware=catalog.hardware_named("Ascend-910B2"))
        if plan.parallel.pipeline_parallel_size > 1:
            found[path.name] = plan
    return found


def drawn(count: int) -> dict[str, Plan]:
    """Random plans with a pipeline for which a schedule and a layer a chunk exist."""
    found = {}
    for number, plan in enumerate(random_plans(4 * count, seed=23)):
        parallel = plan.parallel
        stages, chunks = parallel.pipeline_parallel_size, parallel.virtual_pipeline_parallel_size
        wanting = shape_problems("vpp" if chunks > 1 else "1f1b", stages, chunks, plan.num_micro_batches)
        if stages > 1 and not wanting and plan.model.num_layers >= stages * chunks:
            found[f"random {number}"] = plan
    return dict(list(found.items())[:count])


def chosen() -> dict[str, Plan]:
    """What only the core of attention makes small, and a mixture laid out by hand with counts that hold for that layout alone."""
    device, sizes = catalog.hardware_named("H100-80GB-SXM"), {"pipeline_parallel_size": 4, "tensor_parallel_size": 8}
    work = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=16, attention_kernel="unfused")
    core = Plan(
        model=catalog.model("llama2-13b"),
        workload=work,
        parallel=ParallelPlan(sequence_parallel=True, **sizes),
        recompute=RecomputePlan(attention_core=True, swapped_layers=((2, 0, 0, 0),)),
        hardware=device,
    )
    mixed = replace(catalog.model("mixtral-8x7b"), num_layers=12, num_dense_layers=1)
    hand = ParallelPlan(data_parallel_size=8, expert_parallel_size=8, pipeline_parallel_size=2, layers_per_stage=((10, 2),))
    uneven = Plan(model=mixed, workload=work, parallel=hand, recompute=RecomputePlan(full_layers=((10, 2),)), hardware=device)
    adapters = Adapters(rank=16, targets=("query", "key", "value", "output", "gate", "up", "down"))
    adapted = replace(core, model=replace(core.model, adapters=adapters), recompute=RecomputePlan())
    frozen = {
        text: replace(core, model=replace(core.model, trained_layers=TrainedLayers.of(text)), recompute=RecomputePlan())
        for text in ("last 10, head", "first 12", "last 4, attention, input_gradients")
    }
    return {
        **frozen,
        "frozen experts": replace(uneven, model=replace(mixed, trained_layers=TrainedLayers.of("last 3"))),
        "adapters": adapted,
        "core and swap": core,
        "core again": replace(core, recompute=RecomputePlan(attention_core=True)),
        "uneven": uneven,
    }


PLANS = bundled() | chosen() | drawn(14)


@pytest.mark.parametrize("name", PLANS)
def test_the_estimate_of_what_is_written_is_what_the_balance_says(name):
    plan = PLANS[name]
    found = problem_of_plan(plan, efficiency_of(plan))
    result = balanced(found, time_limit_s=2)
    if result.layout is None:
        assert not estimate(plan).fits
        return
    predicted = estimate(found.plan_of(result.layout))
    assert result.makespan_ns == pytest.approx(predicted.step_time_s * 1e9, rel=EXACT)
    assert max(result.peak_bytes) == pytest.approx(predicted.peak_memory_bytes, rel=EXACT)
    assert predicted.fits
    assert result.bound_ns <= result.makespan_ns


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_fits_is_never_called_infeasible_nor_made_slower(name):
    """The limit is what the plan itself needs, to the byte."""
    plan = PLANS[name]
    needed = estimate(replace(plan, memory_limit=None))
    limit = MemoryLimit(limit_bytes=needed.peak_memory_bytes, part="device", source="as much as it needs")
    large = replace(plan.hardware, memory_bytes=10 * needed.peak_memory_bytes)
    tight = replace(plan, memory_limit=limit, hardware=large)
    assert estimate(tight).fits
    result = balanced(problem_of_plan(tight, efficiency_of(tight)), time_limit_s=1)
    assert result.layout is not None, result.why()
    assert result.makespan_ns <= estimate(tight).step_time_s * 1e9 * (1 + EXACT)
    assert max(result.peak_bytes) <= needed.peak_memory_bytes


def test_a_limit_that_no_layout_meets_is_infeasible_and_says_the_smallest():
    plan = PLANS["pretrain_llama2_70b_bf16_64p.yaml"]
    found = problem_of_plan(plan, efficiency_of(plan), memory_limit_bytes=8 * 2**30)
    result = balanced(found, time_limit_s=5)
    assert (result.status, result.layout) == ("infeasible", None)
    enough = result.smallest_feasible_limit_mib * 2**20
    assert balanced(problem_of_plan(plan, efficiency_of(plan), memory_limit_bytes=enough), time_limit_s=5).layout is not None
