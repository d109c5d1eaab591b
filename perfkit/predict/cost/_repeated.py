"""Repeated work: what every plan computes again in its backward pass, of the stage that repeats most.

Plans that repeat nothing, everything or the core of attention need no look at their stages; others are looked at one by one, each
different one once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from perfkit.core.params import attention_weights
from perfkit.core.plan_columns import FIELDS, Coded, Codes, Floats, PlanColumns
from perfkit.core.recomputed import recomputed_parts
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.predict.cost._light import at, light_bytes_by_stage, swapped_bytes_by_stage

REPEATED = (
    "recompute_full",
    "recompute_core",
    "recompute_extra",
    "recompute_gathers",
    "recompute_mean",
    "light_split",
    "light_whole",
    "swapped",
)
"""Columns that follow from the recompute plan."""

REPLICAS = frozenset(
    (
        *("data_parallel_size", "global_batch_size", "micro_batch_size", "micro_batch_interleave_size", "model_name"),
        *(name for name, field in FIELDS.items() if field.part == "optimizer" or name.startswith("optimizer_shard")),
    )
)
"""Fields that change nothing of what a layer repeats of a token."""


def repeated_columns(plans: PlanColumns) -> dict[str, Floats]:
    """The columns of `CostColumns` that follow from the recompute plans."""
    plain = plans.recompute.numbers(_plain)
    found = {name: np.zeros(len(plans)) for name in REPEATED}
    found["recompute_full"][plain == 1] = 1.0
    found["recompute_core"][plain == 2] = 1.0
    found["recompute_mean"] += 1.0
    rows = np.flatnonzero(plain == 3)
    if len(rows):
        first, places = _different(plans.take(rows))
        repeated = [repeated_row(plans.plan(int(rows[index]))) for index in first]
        for name in REPEATED:
            found[name][rows] = np.array([one[name] for one in repeated])[places]
    return found


def _plain(recompute: RecomputePlan) -> float:
    """0 for nothing, 1 for everything, 2 for the core of attention alone, 3 for anything else."""
    if recompute.all_layers:
        return 1
    if any(map(any, _all_counts(recompute))):
        return 3
    return 2 if recompute.attention_core else 0


def _different(plans: PlanColumns) -> tuple[list[int], Codes]:
    """One position of every plan that differs in what layers repeat, and which of them each plan is."""
    columns = (getattr(plans, name) for name in FIELDS if name not in REPLICAS)
    cells = [column.codes if isinstance(column, Coded) else column for column in columns]
    _, first, places = np.unique(np.stack(cells).astype(np.float64), axis=1, return_index=True, return_inverse=True)
    return first.tolist(), places.ravel()


def repeated_row(plan: Plan) -> dict[str, float]:
    """What the stage that repeats most repeats of its layers, and what all stages do over that."""
    layers, recompute = plan.stage_layers, plan.recompute
    found = dict.fromkeys(REPEATED, 0.0) | {"recompute_mean": 1.0}
    totals = [sum(row[stage] for row in layers) for stage in range(len(layers[0]))]
    light = light_bytes_by_stage(plan) if recompute.operators else [(0.0, 0.0)] * len(totals)
    swapped = swapped_bytes_by_stage(plan) if recompute.swapped_layers else [0.0] * len(totals)
    shares, known = [], dict[Any, dict[str, float]]()
    for stage, count in enumerate(totals):
        key = (count, _counts_of(recompute, len(layers), stage))
        if key not in known:
            known[key] = _repeated_of(plan, stage, max(count, 1), light[stage], swapped[stage])
        shares.append(known[key])
    works = [count * _weight(share) for count, share in zip(totals, shares, strict=True)]
    most = max(range(len(works)), key=works.__getitem__)
    per_layer = works[most] / max(totals[most], 1)
    mean = sum(works) / (plan.model.num_layers * per_layer) if per_layer else 1.0
    return found | shares[most] | {"recompute_mean": min(round(mean, 12), 1.0)}


def _repeated_of(plan: Plan, stage: int, count: int, light: tuple[float, float], swapped: float) -> dict[str, float]:
    """Share of the `count` layers of a stage repeated in full, of the others' attention and products, and bytes a token."""
    one = _of_stage(plan.recompute, len(plan.stage_layers), stage)
    full = one.num_full_layers(count) / count
    if full >= 1:
        return {"recompute_full": 1.0}
    parts = recomputed_parts(plan.model, one, count)
    gathers = sum(map(sum, one.communication)) / count if plan.parallel.sequence_parallel else 0.0
    scores, values = float(parts["scores"]), float(parts["values"])
    # A fused kernel is repeated whole for either of its products.
    core = (max(scores, values) if plan.workload.attention_kernel == "flash" else (scores + values) / 2) - full
    return {
        "recompute_full": full,
        "recompute_core": max(core / (1 - full), 0.0),
        "recompute_extra": max((_repeated_products(plan.model, parts) - full) / (1 - full), 0.0),
        "recompute_gathers": min(max(gathers - full, 0.0), 1.0),
        "light_split": light[0] / count,
        "light_whole": light[1] / count,
        "swapped": swapped / count,
    }


def _repeated_products(model: ModelSpec, parts: Mapping[str, Fraction]) -> float:
    """Share of the products with weights that is repeated."""
    block = "experts" if model.num_experts else "ffn"
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if model.num_experts else model.ffn_hidden_size
    sizes = {**attention_weights(model), block: (3 if model.gated_ffn else 2) * model.hidden_size * width}
    return sum(float(parts[part]) * size for part, size in sizes.items()) / sum(sizes.values())


def _weight(share: Mapping[str, float]) -> float:
    """How much a stage repeats of a layer, to compare stages: the light operators of a layer move some hundred bytes a value."""
    full = share["recompute_full"]
    rest = 0.8 * share.get("recompute_extra", 0.0) + 0.2 * share.get("recompute_core", 0.0)
    return full + (1 - full) * rest + 1e-9 * (share.get("light_split", 0.0) + share.get("light_whole", 0.0))


def _of_stage(recompute: RecomputePlan, chunks: int, stage: int) -> RecomputePlan:
    """The plan of one stage: one entry a chunk."""

    def own(counts: Counts) -> Counts:
        return tuple((at(counts, chunk, stage),) for chunk in range(chunks)) if counts else ()

    return replace(
        recompute,
        full_layers=own(recompute.full_layers),
        operators={pattern: own(counts) for pattern, counts in recompute.operators.items()},
        communication=own(recompute.communication),
        swapped_layers=own(recompute.swapped_layers),
    )


def _counts_of(recompute: RecomputePlan, chunks: int, stage: int) -> tuple[int, ...]:
    """All counts of a stage, by which stages are told apart."""
    named = (recompute.full_layers, recompute.communication, recompute.swapped_layers, *recompute.operators.values())
    return tuple(at(counts, chunk, stage) for counts in named for chunk in range(chunks))


def _all_counts(recompute: RecomputePlan) -> list[Sequence[int]]:
    named = (recompute.full_layers, recompute.communication, recompute.swapped_layers, *recompute.operators.values())
    return [row for counts in named for row in counts]
