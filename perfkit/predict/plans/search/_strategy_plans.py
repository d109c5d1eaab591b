"""Strategies as plans: the `Plan` of one row, and `PlanColumns` of many, both from one plan that says what stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from perfkit.core.plan_columns import Coded
from perfkit.core.plan_columns import PlanColumns as Plans
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.cost.labels import Labels, network_of, stack_of
from perfkit.predict.cost.plan_columns import FLAGS, Floats, PlanColumns
from perfkit.predict.cost.plan_rows import REPEATED, plan_columns
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

    def plans(self, columns: Columns) -> Plans:
        """The strategies as plans, equal to `plan` of every row."""
        count = len(columns["tp"])
        first = Plans.of([self.plan(self.row(columns, 0))]).take(np.zeros(count, dtype=np.intp))
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

    def columns(self, columns: Columns) -> PlanColumns:
        """The strategies in the form of the step-time formulas; equal to `plan_columns` of their plans."""
        first = self.row(columns, 0)
        repeated = [plan_columns([self.plan({**first, "recompute": kind})]) for kind in range(len(self.space.recompute))]
        constant, length = repeated[0], len(columns["tp"])
        found = {field.name: np.full(length, getattr(constant, field.name)[0]) for field in fields(PlanColumns)}
        found |= _sizes(columns, self.space) | _layers(columns, self.space.layers)
        for name in REPEATED:
            found[name] = np.array([float(getattr(kind, name)[0]) for kind in repeated])[columns["recompute"]]
        return PlanColumns(**{name: values.astype(bool if name in FLAGS else np.float64) for name, values in found.items()})

    def labels(self, columns: Columns) -> Labels:
        """What the calibration is looked up by, of every strategy."""
        device = self.base.hardware
        name, link = (device.name, device.links.get("inter_node")) if device else ("", None)
        network = network_of(link.topology if link else "")
        unique = tuple(
            (name, stack_of(name, sharded_parameters=sharded, split=split), network)
            for sharded in (False, True)
            for split in (False, True)
        )
        sharded = (columns["zero"] >= 2) & (_shards(columns, self.space) > 1)
        split = (columns["tp"] > 1) | (columns["pp"] > 1)
        return Labels(unique, 2 * sharded.astype(np.intp) + split.astype(np.intp))


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


def _sizes(columns: Columns, space: StrategySpace) -> dict[str, Floats]:
    names = {"data": "dp", "tensor": "tp", "pipeline": "pp", "virtual": "vpp", "context": "cp", "expert_parallel": "ep"}
    names |= {"sequence_parallel": "sp", "interleave": "copies", "micro_batch": "mbs"}
    found = {field: columns[name].astype(np.float64) for field, name in names.items()}
    shards = _shards(columns, space)
    return {**found, "optimizer_shards": shards, "zero": np.where(shards > 1, columns["zero"], 0.0)}


def _layers(columns: Columns, layers: int) -> dict[str, Floats]:
    """Layers of the first, the fullest other and the last stage of an even split."""
    each, extra = np.divmod(layers, columns["pp"])
    fullest = (each + (extra > 0)).astype(np.float64)
    return {"layers_first": each.astype(np.float64), "layers_middle": fullest, "layers_last": each.astype(np.float64)}
