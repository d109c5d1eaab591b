"""Strategies as plans: the `Plan` of one row, and `PlanColumns` of many, both from one plan that says what stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfkit.core.plan_columns import Coded, Floats, PlanColumns
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.switches import with_silu_mul
from perfkit.predict.plans.search.strategy_space import Columns, StrategySpace, sharing_group

NONE, SELECTIVE, FULL = "none", "selective", "full"
SIZES = {
    "data_parallel_size": "dp",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "virtual_pipeline_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_parallel_size": "ep",
    "micro_batch_interleave_size": "copies",
    "micro_batch_size": "mbs",
}
"""Fields of a plan that are dimensions of a strategy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyPlans:
    """The plans of a search: `base` gives model, batch, optimizer and device; a strategy gives the rest."""

    base: Plan
    space: StrategySpace

    def row(self, columns: Columns, index: int) -> dict[str, int]:
        """The sizes of one strategy by dimension."""
        return {name: int(values[index]) for name, values in columns.items()}

    def plan(self, row: Mapping[str, int]) -> Plan:
        """The plan of one strategy; raises InputError that lists what contradicts itself."""
        group = row["dp"] * (row["cp"] if self.space.shares_context else 1)
        shards = (row["shard"] or group) if row["zero"] else 1
        algorithm = self.base.parallel.context_parallel_algorithm
        parallel = ParallelPlan(
            data_parallel_size=row["dp"],
            tensor_parallel_size=row["tp"],
            pipeline_parallel_size=row["pp"],
            virtual_pipeline_parallel_size=row["vpp"],
            context_parallel_size=row["cp"],
            expert_parallel_size=row["ep"],
            sequence_parallel=bool(row["sp"]),
            optimizer_shard_size=shards,
            optimizer_shard_level=max(1, row["zero"]),
            micro_batch_interleave_size=row["copies"],
            context_parallel_algorithm="ring" if algorithm == "hybrid" else algorithm,
        )
        workload = replace(self.base.workload, micro_batch_size=row["mbs"], global_batch_size=self.space.global_batch)
        plain = replace(self.base, parallel=parallel, workload=workload, recompute=RecomputePlan())
        return replace(plain, recompute=recompute_of(self.space.recompute[row["recompute"]], plain))

    def plans(self, columns: Columns) -> PlanColumns:
        """The strategies as plans, equal to `plan` of every row."""
        count = len(columns["tp"])
        first = PlanColumns.of([self.plan(self.row(columns, 0))]).take(np.zeros(count, dtype=np.intp))
        sizes: dict[str, Any] = {field: columns[name].astype(np.float64) for field, name in SIZES.items()}
        return replace(
            first,
            **sizes,
            sequence_parallel=columns["sp"] > 0,
            optimizer_shard_size=_shards(columns, self.space),
            optimizer_shard_level=np.maximum(columns["zero"], 1.0),
            recompute=self._recompute(columns),
        )

    def _recompute(self, columns: Columns) -> Coded[RecomputePlan]:
        """What every strategy recomputes, which depends on its kind and on how the layers lie."""
        key = (columns["recompute"] * (columns["pp"].max() + 1) + columns["pp"]) * (columns["vpp"].max() + 1) + columns["vpp"]
        _, first, codes = np.unique(key, return_index=True, return_inverse=True)
        return Coded(codes, tuple(self.plan(self.row(columns, row)).recompute for row in first.tolist()))


def recompute_kinds(base: Plan, settings: MemorySettings) -> tuple[str, ...]:
    """The kinds worth a try, least first; selective is the attention core where scores are stored, else Silu and Mul."""
    cheap = base.workload.attention_kernel == "unfused" or (base.model.gated_ffn and settings.framework == "mindspore")
    return (NONE, SELECTIVE, FULL) if cheap else (NONE, FULL)


def recompute_of(kind: str, plan: Plan) -> RecomputePlan:
    """What a kind means for a plan."""
    if kind == NONE:
        return RecomputePlan()
    if kind == FULL:
        return RecomputePlan(all_layers=True)
    return RecomputePlan(attention_core=True) if plan.workload.attention_kernel == "unfused" else with_silu_mul(plan)


def _shards(columns: Columns, space: StrategySpace) -> Floats:
    group = np.where(columns["shard"] > 0, columns["shard"], sharing_group(columns, space))
    return np.where(columns["zero"] > 0, group, 1).astype(np.float64)
