"""Plans that the studies are asked about."""

from __future__ import annotations

import pytest

from perfkit.core import catalog
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Llama2-13B of the guides: two servers, two stages, everything recomputed."""
    return Plan(
        model=catalog.model("llama2-13b"),
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=1024),
        parallel=ParallelPlan(data_parallel_size=8, pipeline_parallel_size=2, optimizer_shard_size=8),
        recompute=RecomputePlan(all_layers=True),
        hardware=catalog.hardware_named("Ascend-910B2"),
    )
