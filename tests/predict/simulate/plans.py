"""Plans that the tests of simulated runs share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfkit.core import catalog
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload

A100 = catalog.hardware_named("A100-80GB-SXM")
SHORT = {
    "dp": "data_parallel_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "vp": "virtual_pipeline_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
}


def plan_of(model: str, batch: int, *, micro: int = 1, seq: int = 2048, recompute: bool = False, **sizes: Any) -> Plan:
    """A plan of a catalogue model on A100; sizes are `ParallelPlan` fields or dp, tp, pp, vp, cp, ep."""
    return Plan(
        model=catalog.model(model),
        workload=Workload(seq_length=seq, micro_batch_size=micro, global_batch_size=batch),
        parallel=ParallelPlan(**{SHORT.get(name, name): size for name, size in sizes.items()}),
        recompute=RecomputePlan(all_layers=recompute),
        hardware=A100,
    )


def with_adapters(plan: Plan) -> Plan:
    """The plan if it trains adapters on all matrices of its layers alone."""
    adapters = Adapters(rank=16, targets=("query", "key", "value", "output", "gate", "up", "down"))
    return replace(plan, model=replace(plan.model, adapters=adapters))


def with_trained(plan: Plan, text: str) -> Plan:
    """The plan if it trains these layers alone."""
    return replace(plan, model=replace(plan.model, trained_layers=TrainedLayers.of(text)))


SMALL = plan_of("gpt-7.5b", 16, micro=2, dp=2, tp=2, pp=2)
TINY = replace(SMALL, model=replace(SMALL.model, num_layers=4))
