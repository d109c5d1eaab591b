"""Strategy memory: the exact peak of many strategies at once, put together from parts that many of them share.

A peak is static memory (by tp, pp, ep, sharing), the activations of one layer and sequence (by tp, cp, sp, recompute; a micro batch
has as many times that), and how many of them wait (by pp, vpp, micro batches). Every part is computed once by the functions behind
`perfkit.predict.memory.memory.peak_memory`; only stages that can be the fullest are looked at. The result differs from
`peak_memory` by the rounding of its parts to whole bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts
from perfkit.predict.cost.plan_columns import Flags, Floats
from perfkit.predict.memory import memory
from perfkit.predict.memory.layout import expert_layers_in, in_flight_of, stage_layers
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.shared import communication_buffers, workspace_bytes
from perfkit.predict.memory.static import static_bytes
from perfkit.predict.plans.search._strategy_plans import StrategyPlans, recompute_of
from perfkit.predict.plans.search.strategy_space import Columns, Ints, sharing_group

_STATIC = ("tp", "pp", "chunks", "ep", "group", "zero", "shard", "alone")
_LAYER = ("tp", "cp", "sp")
_WAITING = ("pp", "vpp", "units")


@dataclass(frozen=True, slots=True)
class _Slot:
    """A stage that can be the fullest: its index, whether its last chunk has experts, and (dense, expert, first chunk) waiting."""

    stage: int
    mixed: bool
    waiting: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class StrategyMemory:
    """Bytes of every strategy: the `peak` of its fullest stage, and what its fullest stage holds from step to step."""

    peak: Floats
    static: Floats


def strategy_memory(plans: StrategyPlans, columns: Columns, settings: MemorySettings) -> StrategyMemory:
    """The peaks of all strategies, in bytes."""
    keyed = {**columns, **_keys(plans, columns)}
    waiting_of, first_waiting = _groups(keyed, _WAITING)
    layer_of, first_layer = _groups(keyed, _LAYER)
    static_of, first_static = _groups(keyed, _STATIC)
    slots = [_slots(plans.plan({**plans.row(columns, row), "recompute": 0}), int(keyed["units"][row])) for row in first_waiting]
    layers = [_layer_parts(plans, {**plans.row(columns, row), "mbs": 1, "copies": 1}, settings) for row in first_layer]
    table = {name: np.array([parts[name] for parts in layers]) for name in layers[0]}
    static = [
        _static_parts(plans.plan({**plans.row(columns, row), "vpp": int(keyed["chunks"][row])}), settings) for row in first_static
    ]
    return _combined(columns, settings, (slots, waiting_of), (table, layer_of), (static, static_of))


def _keys(plans: StrategyPlans, columns: Columns) -> Columns:
    """What parts depend on beside the dimensions: micro batches as far as they matter, chunks as far as stages differ by them."""
    m, pp, vpp, model = columns["m"], columns["pp"], columns["vpp"], plans.base.model
    even = (model.num_layers % (pp * vpp) == 0) & (model.num_experts == 0 or model.num_dense_layers == 0)
    return {
        "units": np.where(vpp > 1, np.where(m <= 4 * pp, m, 4 * pp + m % pp), np.minimum(m, pp)),
        "chunks": np.where(even, 1, vpp),
        "group": sharing_group(columns, plans.space),
        "alone": ((pp == 1) & (m == 1)).astype(np.int64),
    }


def _combined(
    columns: Columns,
    settings: MemorySettings,
    waiting: tuple[list[tuple[_Slot, ...]], Ints],
    layer: tuple[dict[str, Floats], Ints],
    static: tuple[list[dict[int, tuple[float, float]]], Ints],
) -> StrategyMemory:
    (slots, slot_of), (table, layer_of), (held, held_of) = waiting, layer, static
    length, kind, sequences = len(slot_of), columns["recompute"], columns["mbs"] * columns["copies"]
    highest, highest_static = np.zeros(length), np.zeros(length)
    for index in range(max(len(found) for found in slots)):
        rows = np.flatnonzero(np.array([len(found) > index for found in slots])[slot_of])
        group = slot_of[rows]
        stages = np.array([found[index].stage if len(found) > index else 0 for found in slots])[group]
        mixed = np.array([found[index].mixed if len(found) > index else False for found in slots])[group]
        of, repeats = layer_of[rows], kind[rows]
        kept = (table["dense"][of, repeats], table["experts"][of, repeats])
        vectors = np.array([_padded(found, index, slots) for found in slots], dtype=np.float64)[group]
        waits = vectors[:, :, 0] * kept[0][:, None] + vectors[:, :, 1] * kept[1][:, None]
        best = waits.argmax(axis=1)
        last = stages == columns["pp"][rows] - 1
        each = np.arange(len(rows))
        base = waits[each, best] + _outside(table, of, vectors[each, best, 2], stages == 0, last)
        again = np.where(mixed, table["backward experts"][of, repeats], table["backward dense"][of, repeats])
        dynamic = base + np.maximum(again, np.where(last, table["logits"][of], 0.0))
        boundary = np.where(columns["pp"][rows] > 1, np.where(columns["vpp"][rows] > 1, 2.0, 1.0), 0.0) * table["boundary"][of]
        own = _of_stage(held, held_of[rows], stages)
        moving = (dynamic + boundary + table["buffers"][of]) * sequences[rows]
        total = own[:, 0] + own[:, 1] + moving + table["workspace"][of]
        highest[rows] = np.maximum(highest[rows], total)
        highest_static[rows] = np.maximum(highest_static[rows], own[:, 0])
    return StrategyMemory(highest * (1 + settings.fragmentation) + settings.context_bytes, highest_static)


def _outside(table: dict[str, Floats], of: Ints, live: Floats, first: Flags, last: Flags) -> Floats:
    ends = np.where(first | last, table["batch"][of], 0.0)
    return ends + np.where(first, live * table["embedding"][of], 0.0) + np.where(last, table["head"][of], 0.0)


def _of_stage(held: list[dict[int, tuple[float, float]]], group: Ints, stages: Ints) -> Floats:
    """Static and gathered bytes of the given stage of every row."""
    pairs = group.astype(np.int64) * 100_000 + stages
    unique, inverse = np.unique(pairs, return_inverse=True)
    values = [held[pair // 100_000][pair % 100_000] for pair in unique.tolist()]
    return np.array(values)[inverse]


def _groups(columns: Columns, names: Sequence[str]) -> tuple[Ints, list[int]]:
    """The group of every row by the named columns, and one row of every group."""
    key = np.zeros(len(columns[names[0]]), dtype=np.int64)
    for name in names:
        key = key * (int(columns[name].max()) + 1) + columns[name]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return inverse, first.tolist()


def _padded(found: tuple[_Slot, ...], index: int, slots: list[tuple[_Slot, ...]]) -> list[tuple[int, int, int]]:
    """The vectors of a slot, padded to the longest of all slots of that index."""
    longest = max(len(other[index].waiting) for other in slots if len(other) > index)
    own = found[index].waiting if len(found) > index else ()
    return [*own, *([(0, 0, 0)] * (longest - len(own)))]


def _slots(plan: Plan, units: int) -> tuple[_Slot, ...]:
    """First and last stage, and of those between the first of every kind: later ones have fewer micro batches waiting."""
    layers = stage_layers(plan)
    mixed = expert_layers_in(plan.model, layers)
    last = plan.parallel.pipeline_parallel_size - 1
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for stage in range(1, last):
        kinds.setdefault((tuple(row[stage] for row in layers), tuple(row[stage] for row in mixed)), stage)
    return tuple(
        _slot(layers, mixed, stage, units, masks=plan.workload.dropout) for stage in dict.fromkeys((0, *kinds.values(), last))
    )


@cache
def _slot(layers: Counts, mixed: Counts, stage: int, units: int, *, masks: bool) -> _Slot:
    waiting = [
        (
            sum(n * (row[stage] - expert[stage]) for n, row, expert in zip(vector, layers, mixed, strict=True)),
            sum(n * expert[stage] for n, expert in zip(vector, mixed, strict=True)),
            vector[0],
        )
        for vector in in_flight_of("1f1b", len(layers[0]), len(layers), units, stage)
    ]
    if not masks:  # Without masks to keep for the embedding the first chunk's count does not matter.
        different = {(dense, experts, 0) for dense, experts, _ in waiting}
        waiting = [one for one in different if not any(other != one and _covers(other, one) for other in different)]
    return _Slot(stage, mixed[-1][stage] > 0, tuple(waiting))


def _covers(other: tuple[int, int, int], one: tuple[int, int, int]) -> bool:
    return all(a >= b for a, b in zip(other, one, strict=True))


def _static_parts(plan: Plan, settings: MemorySettings) -> dict[int, tuple[float, float]]:
    layers = stage_layers(plan)
    mixed = expert_layers_in(plan.model, layers)
    last = plan.parallel.pipeline_parallel_size - 1
    found: dict[int, tuple[float, float]] = {}
    seen: set[tuple[int, int]] = set()
    kinds = [(sum(row[stage] for row in layers), sum(row[stage] for row in mixed)) for stage in range(last + 1)]
    sizes: dict[tuple[int, int], tuple[float, float]] = {}
    for stage, kind in enumerate(kinds):
        if stage in (0, last) or kind not in seen:
            held = static_bytes(plan, settings, stage)
            found[stage] = (held.parameters + held.gradients + held.optimizer, held.gathered)
            if stage not in (0, last):
                seen.add(kind)
                sizes[kind] = found[stage]
        else:
            found[stage] = sizes[kind]
    return found


def _layer_parts(plans: StrategyPlans, row: dict[str, int], settings: MemorySettings) -> dict[str, object]:
    """What one layer, and what lies outside of the layers, needs for one sequence: by kind of recomputation a list."""
    whole = plans.plan({**row, "recompute": 0})
    parallel = replace(
        whole.parallel,
        data_parallel_size=1,
        pipeline_parallel_size=1,
        virtual_pipeline_parallel_size=1,
        expert_parallel_size=1,
        optimizer_shard_size=1,
    )
    one = replace(whole, model=replace(whole.model, num_layers=1, num_dense_layers=0), parallel=parallel)
    dense = replace(one, model=replace(one.model, num_experts=0))
    outside = memory.outside_layers(one, settings, 0, (1,))
    parts: dict[str, object] = {name: outside.get(name, 0.0) for name in ("embedding", "head", "batch")}
    parts["logits"] = _total(next(iter(memory.at_loss(one, settings, 0, {}).values())))
    parts["buffers"] = _total(communication_buffers(one, settings, 0))
    parts["boundary"] = _boundary(dense, parallel, settings)
    parts["workspace"] = workspace_bytes(one, settings)
    for name, plan in (("dense", dense), ("experts", one)):
        variants = [replace(plan, recompute=recompute_of(kind, plan)) for kind in plans.space.recompute]
        parts[name] = [_total(memory.chunk_activations(variant, settings, 0, 0)) for variant in variants]
        parts[f"backward {name}"] = [
            _total(next(iter(memory.in_backward(variant, settings, 0, {}).values()))) for variant in variants
        ]
    return parts


def _boundary(plan: Plan, parallel: ParallelPlan, settings: MemorySettings) -> float:
    """Buffers between stages without interleaving."""
    piped = replace(plan, model=replace(plan.model, num_layers=2), parallel=replace(parallel, pipeline_parallel_size=2))
    buffers = communication_buffers(piped, settings, 0)
    return buffers["dynamic/communication_buffers/pipeline"]


def _total(parts: object) -> float:
    assert isinstance(parts, dict)
    return float(sum(parts.values()))
