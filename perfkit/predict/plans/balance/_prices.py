"""Prices: what the layers of a plan add to a stage, and what a stage takes besides, in the times of the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S
from perfkit.predict.cost.again import dense_of, layers_again
from perfkit.predict.cost.cost_columns import CostColumns, costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.stage_columns import StageRates, stage_passes, stage_rates, stage_times
from perfkit.predict.cost.stage_layers import AMOUNTS, amounts_of
from perfkit.predict.cost.step_columns import straggler_share
from perfkit.predict.cost.work_columns import micro_batch_work
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.problem import KINDS, EndPart, Layout

Floats = NDArray[np.float64]
DENSE, EXPERT = say("dense layer"), say("expert layer")
FROZEN = {"layer": say("frozen layer"), DENSE: say("frozen dense layer"), EXPERT: say("frozen expert layer")}
"""Names of types of layers that are frozen."""


@dataclass(frozen=True, slots=True)
class TypePlan:
    """A type of layers: the plan if all of its layers were such ones, its name, and how many there are.

    `kind` is the place of such layers among `CostColumns.kinds`; `forward_first`: nothing below them is trained, so that in the
    first position (a chunk of a stage) they have no backward pass.
    """

    plan: Plan
    name: str
    count: int
    kind: int = 0
    forward_first: bool = False


def types_of(plan: Plan) -> list[TypePlan]:
    """The types of a plan's layers in their order: leading dense layers, then those with experts; frozen ones apart."""
    model, trained = plan.model, plan.model.trained_layers
    found = _types_of(plan)
    if trained is None:
        return found
    begin = 0 if trained.first else model.num_layers - trained.last
    every = replace(trained, first=0, last=model.num_layers)
    none = replace(trained, first=0, last=0, outside=trained.outside or ("final_norm",), input_gradients=True)
    parts, start = [], 0
    for one in found:
        end = start + one.count
        borders = sorted({start, end, *(border for border in (begin, begin + trained.count) if start < border < end)})
        for first, last in pairwise(borders):
            is_trained = begin <= first < begin + trained.count
            own = replace(one.plan, model=replace(one.plan.model, trained_layers=every if is_trained else none))
            name, kind = (one.name, one.kind) if is_trained else (FROZEN[one.name], one.kind + 2)
            parts.append(TypePlan(own, name, last - first, kind, forward_first=last <= trained.skipped(model.num_layers)))
        start = end
    return parts


def _types_of(plan: Plan) -> list[TypePlan]:
    model = plan.model
    if not model.num_experts:
        return [TypePlan(plan, "layer", model.num_layers)]
    # Counts of layers hold for the layout that they were made for.
    alike = replace(plan, parallel=replace(plan.parallel, layers_per_stage=None), recompute=core_again(plan))
    dense = TypePlan(dense_of(alike), DENSE, model.num_dense_layers, kind=1)
    mixed = replace(alike, model=replace(model, num_dense_layers=0))
    return [one for one in (dense, TypePlan(mixed, EXPERT, model.num_layers - dense.count)) if one.count]


def core_again(plan: Plan) -> RecomputePlan:
    """What every layer of the plan repeats whichever kind it is of."""
    return RecomputePlan(attention_core=plan.recompute.attention_core)


@dataclass(frozen=True, eq=False)
class StagePrices:
    """The plan in columns, and `amounts` of one layer of every type and kind, in the order of a layout's varieties.

    `straggling` is the share by which all times are longer on many nodes.
    """

    columns: CostColumns
    efficiency: Efficiency
    straggling: float
    amounts: dict[tuple[int, str], Floats]
    layers: Floats

    @classmethod
    def of(cls, plan: Plan, efficiency: Efficiency, types: Sequence[TypePlan], select: Sequence[str]) -> StagePrices:
        """The prices of a plan's layers where none is recomputed in full or by patterns."""
        columns = costs_of([replace(plan, recompute=core_again(plan))])
        amounts = {}
        for index, part in enumerate(types):
            for kind in KINDS:
                own = np.zeros((len(columns.kinds), len(AMOUNTS)))
                own[min(part.kind, len(columns.kinds) - 1)] = _layer(part.plan, kind, select)
                amounts[index, kind] = own.ravel()
            if (amounts[index, "comm"] == amounts[index, "none"]).all():
                del amounts[index, "comm"], amounts[index, "both"]
        layers = columns.stages.values[0].amounts
        return cls(columns, efficiency, float(straggler_share(columns, efficiency)[0]), amounts, layers)

    def kinds_of(self, index: int) -> list[str]:
        """The kinds of recomputation that change something of a layer of the type."""
        return [kind for own, kind in self.amounts if own == index]

    def layer_ns(self, index: int) -> tuple[int, dict[str, int]]:
        """What one layer of a type more on a middle stage adds to its passes: forward, and backward by kind."""
        kinds, stage = self.kinds_of(index), self.layers.shape[2] // 2
        changed = np.repeat(self.layers[None], 1 + len(kinds), axis=0)
        for row, kind in zip(changed[1:], kinds, strict=True):
            row[:, 0, stage] += self.amounts[index, kind]
        passes, scale = stage_passes(self._rates, changed), self._ns_per_s
        more = [scale * (one[1:] - one[0]).sum(axis=1)[:, stage] for one in (passes.forward, passes.backward)]
        return round(float(more[0][0])), {kind: round(float(ns)) for kind, ns in zip(kinds, more[1], strict=True)}

    def ends(self) -> tuple[EndPart, EndPart]:
        """Embedding and head: what the first and last stage compute besides their layers."""
        work = micro_batch_work(self.columns, self.efficiency)
        embedding, head = (float(share[0]) for share in (work.embedding_share, work.head_share))
        return self._end(float(work.embedding[0]), embedding), self._end(float(work.head.total[0]), head)

    def besides_ns(self, plan: Plan, layout: Layout, plain: Evaluator) -> tuple[tuple[tuple[tuple[int, ...], ...], ...], int]:
        """What the passes of every position of a plan take beyond `plain` prices of its layout, and what follows the pipeline."""
        forward, backward, closing = self._times_ns(costs_of([plan]).stages.values[0].amounts[None])
        times = np.rint(np.stack([forward[0], backward[0]])).astype(np.int64) - plain.chunk_times_ns(layout[None])[0][:2]
        return tuple(tuple(tuple(row) for row in rows) for rows in times.tolist()), round(float(closing[0]))

    def _times_ns(self, amounts: Floats) -> tuple[Floats, Floats, Floats]:
        passes, closing = stage_times(self._rates, amounts)
        host = self.efficiency.step_host_s * self.efficiency.host
        return self._ns_per_s * passes.forward, self._ns_per_s * passes.backward, self._ns_per_s * (closing + host)

    @cached_property
    def _rates(self) -> StageRates:
        return stage_rates(self.columns, self.efficiency)

    @property
    def _ns_per_s(self) -> float:
        return NS_PER_S * (1 + self.straggling)

    def _end(self, seconds: float, share: float) -> EndPart:
        whole = seconds * self._ns_per_s
        return EndPart(fwd_ns=round(share * whole), bwd_ns=round((1 - share) * whole), param_bytes=0)


def _layer(plan: Plan, kind: str, select: Sequence[str]) -> Floats:
    """The amounts of one layer of a kind."""
    every = plan.stage_layers
    recompute = RecomputePlan(
        all_layers=kind == "full",
        operators=dict.fromkeys(select, every) if kind in ("select", "both") else {},
        communication=every if kind in ("comm", "both") else (),
        attention_core=plan.recompute.attention_core,
    )
    return amounts_of(layers_again(replace(plan, recompute=recompute))[0][0][0][1])
