"""Stage layers: how many layers every position (a chunk of a stage) of a pipeline holds, and what they compute again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from perfkit.core.plan_columns import FIELDS, Coded, Codes, Floats, PlanColumns, distinct
from perfkit.core.spec.plan import Plan, even_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.predict.cost.again import FULL, WAYS, Again, Run, runs_again
from perfkit.predict.memory.waiting import expert_layers_in

AMOUNTS = ("layers", "full", "core", "products", "gathers", "light_split", "light_whole", "swapped")
"""What is added up over the layers of one kind of a position, in the order of the first axis of `StageLayers.amounts`."""


REPLICAS = frozenset(
    (
        *("data_parallel_size", "global_batch_size", "micro_batch_size", "micro_batch_interleave_size", "model_name"),
        *(name for name, field in FIELDS.items() if field.part == "optimizer" or name.startswith("optimizer_shard")),
    )
)
"""Fields that change nothing of what a layer computes again of a token."""
DECISIVE = tuple(name for name in FIELDS if name not in REPLICAS)


@dataclass(frozen=True, eq=False, slots=True)
class StageLayers:
    """Sums over the layers of every position: shape (amounts, chunks, stages).

    Where dense layers lead in a model with experts, the amounts of these follow those of the layers with experts. With frozen
    layers there are those of trained, frozen and skipped layers (`Again.way`), each of both kinds; `needless` are those of the
    layers below all that is trained, of all positions: these need no backward pass, though those of later positions have one.
    """

    amounts: Floats
    needless: Floats | None = None

    @property
    def leading(self) -> bool:
        """Whether dense layers lead."""
        return len(self.amounts) > len(AMOUNTS)

    @property
    def partly(self) -> bool:
        """Whether some layers are frozen."""
        return len(self.amounts) > 2 * len(AMOUNTS)


def stage_layers(plans: PlanColumns) -> Coded[StageLayers]:
    """The layers of every plan, each different placing once.

    Plans that compute the same again in all layers need no look at their layers; others are looked at one by one.
    """
    if plans.single:
        return Coded.one(_layers_of(plans.single))
    alike = plans.recompute.flags(_repeats_alike) & ~plans.trained_layers.flags(bool)
    if alike.all():
        return _placed(plans)
    if not alike.any():
        first, places = plans.different(DECISIVE)
        return Coded(places, tuple(_looked_at(plans.plan(row)) for row in first.tolist()))
    codes, (same, other) = np.zeros(len(plans), dtype=np.intp), (np.flatnonzero(alike), np.flatnonzero(~alike))
    even = _placed(plans.take(same))
    first, places = plans.take(other).different(DECISIVE)
    codes[same], codes[other] = even.codes, len(even.values) + places
    return Coded(codes, (*even.values, *(_looked_at(plans.plan(row)) for row in other[first].tolist())))


def _repeats_alike(recompute: RecomputePlan) -> bool:
    """Whether all layers compute the same again."""
    return recompute.all_layers or not any(map(any, chain(*recompute.all_counts)))


def _layers_of(plan: Plan) -> StageLayers:
    """The layers of one plan."""
    if plan.model.trained_layers or not _repeats_alike(plan.recompute):
        return _looked_at(plan)
    dense = plan.model.num_dense_layers if plan.model.num_experts else 0
    return same_again(plan.stage_layers, _same(plan.recompute), dense)


def _same(recompute: RecomputePlan) -> Again:
    """What every layer computes again where all of them do the same."""
    return FULL if recompute.all_layers else Again(core=float(recompute.attention_core))


def _placed(plans: PlanColumns) -> Coded[StageLayers]:
    """Layers that all compute the same again."""
    names = ("num_layers", "pipeline_parallel_size", "virtual_pipeline_parallel_size")
    again = Coded.of(map(_same, plans.recompute.values))
    leading = np.where(plans.num_experts > 0, plans.num_dense_layers, 0)
    columns = [getattr(plans, name) for name in names]
    columns += [leading, plans.layers_per_stage.codes, again.codes[plans.recompute.codes]]
    found, codes = _unique(np.stack(columns).astype(np.int64))
    values = [
        same_again(plans.layers_per_stage.values[layout] or even_layers(*sizes), again.values[kind], dense)
        for *sizes, dense, layout, kind in found.T.tolist()
    ]
    return Coded(codes, tuple(values))


def _unique(columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], Codes]:
    """The different columns of a matrix, and which of them each one is; as one number each, which sorts faster."""
    if columns.shape[1] == 1:
        return columns, np.zeros(1, dtype=np.intp)
    packed, sizes = np.zeros(columns.shape[1], dtype=np.int64), (columns.max(axis=1) + 1).tolist()
    for row, size in zip(columns, sizes, strict=True):
        packed = packed * size + row
    kept, codes = distinct(packed, math.prod(sizes))
    return np.stack(np.unravel_index(kept, sizes)), codes


_again = attrgetter(*AMOUNTS[1:])


def amounts_of(again: Again) -> Floats:
    """The `AMOUNTS` of one layer."""
    return np.array((1.0, *_again(again)))


def _looked_at(plan: Plan) -> StageLayers:
    different, places = runs_again(plan)
    every, trained = [again for runs in different for _, again in runs], plan.model.trained_layers
    kinds = range(len(WAYS) * 2) if trained else range(1 + any(again.leading for again in every))
    summed = np.array([np.concatenate([_summed(runs, kind) for kind in kinds]) for runs in different])
    skipped = trained.skipped(plan.model.num_layers) if trained else 0
    first = _first((run for row in places for place in row for run in different[place]), skipped)
    needless = np.concatenate([_summed(first, kind) for kind in kinds]) if skipped else None
    return StageLayers(summed[np.array(places)].transpose(2, 0, 1), needless)


def _first(runs: Iterable[Run], count: int) -> list[Run]:
    """The first layers of some that follow each other."""
    found = []
    for layers, again in runs:
        found.append((min(layers, count), again))
        count -= found[-1][0]
    return found


@lru_cache(maxsize=65536)
def same_again(counts: Counts, again: Again, dense: int = 0) -> StageLayers:
    """Layers by chunk and stage that all compute the same again; the first `dense` ones are without experts."""
    each, layers = amounts_of(again), np.array(counts, dtype=np.float64)
    if not dense:
        return StageLayers(np.multiply.outer(each, layers))
    mixed = np.array(expert_layers_in(counts, dense), dtype=np.float64)
    return StageLayers(np.concatenate([np.multiply.outer(each, own) for own in (mixed, layers - mixed)]))


def _summed(runs: Sequence[Run], kind: int) -> Floats:
    own = (count * amounts_of(again) for count, again in runs if again.kind == kind)
    return sum(own, start=np.zeros(len(AMOUNTS)))
