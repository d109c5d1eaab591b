"""Whether two plans mean the same, whatever dialect each is from: fields are compared after spellings of one thing are joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.texts import say

PARTS = ("model", "workload", "parallel", "recompute", "optimizer", "hardware", "memory_limit", "software")
UNCOMPARED = {"model": ("name",), "hardware": ("sources",), "memory_limit": ("source",), "software": ("framework",)}
"""What a thing is called and where it is from; a file of another program is meant for that program."""


def differences(wanted: Plan, found: Plan) -> list[str]:
    """Every field in which two plans differ in meaning, as "parallel.tensor_parallel_size: 4, here 2"."""
    one, other = meaning(wanted), meaning(found)
    return [
        say("{field}: {wanted}, here {found}", field=name, wanted=_shown(first), found=_shown(second))
        for part in PARTS
        for name, first, second in _fields(part, getattr(one, part), getattr(other, part))
        if not (part == "software" and first in (None, ""))  # what a plan leaves open, a program has a default for
    ]


def meaning(plan: Plan) -> Plan:
    """The plan in the one spelling that plans of equal meaning share."""
    layers = plan.stage_layers
    return replace(
        plan,
        model=_model(plan.model),
        parallel=_parallel(plan.parallel, layers),
        recompute=_recompute(plan.recompute, layers),
        optimizer=replace(plan.optimizer, name=_optimizer_name(plan.optimizer.name)),
        document=None,
    )


def full_everywhere(recompute: RecomputePlan, layers: Counts) -> bool:
    """Whether every layer is recomputed in full, however that is written."""
    counts = recompute.full_layers
    return recompute.all_layers or (
        bool(counts)
        and all(count >= room for row, rooms in zip(counts, layers, strict=True) for count, room in zip(row, rooms, strict=True))
    )


def _model(model: ModelSpec) -> ModelSpec:
    shared, width = model.shared_expert_ffn_hidden_size, model.expert_ffn_hidden_size
    if not model.num_experts:
        return replace(
            model, num_experts_per_token=0, expert_ffn_hidden_size=0, num_shared_experts=0, shared_expert_ffn_hidden_size=0,
            shared_expert_gate=False, router_bias=False, num_dense_layers=0, expert_capacity_factor=0.0,
        )  # fmt: skip
    if model.num_shared_experts and shared and width and not shared * model.num_shared_experts % width:
        # Shared experts side by side are one wider expert.
        return replace(model, num_shared_experts=shared * model.num_shared_experts // width, shared_expert_ffn_hidden_size=0)
    return model


def _parallel(parallel: ParallelPlan, layers: Counts) -> ParallelPlan:
    alone = parallel.context_parallel_size == 1
    return replace(
        parallel,
        layers_per_stage=uneven(layers),
        optimizer_shard_level=parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 1,
        context_parallel_algorithm="ring" if alone else parallel.context_parallel_algorithm,
        ulysses_size=0 if alone or parallel.context_parallel_algorithm != "hybrid" else parallel.ulysses_size,
        sequence_parallel=parallel.sequence_parallel and parallel.tensor_parallel_size > 1,
    )


def _recompute(recompute: RecomputePlan, layers: Counts) -> RecomputePlan:
    if full_everywhere(recompute, layers):
        return RecomputePlan(all_layers=True)
    full = recompute.full_layers if any(map(any, recompute.full_layers)) else ()
    # A cell and the operator it holds are one thing: releases differ in whether the activation is wrapped.
    spelled = {pattern.replace(r"activation\.silu", "activation"): counts for pattern, counts in recompute.operators.items()}
    named = {pattern: counts for pattern, counts in spelled.items() if _beyond(counts, full)}
    return RecomputePlan(
        full_layers=full,
        operators={pattern: named[pattern] for pattern in sorted(named)},
        communication=recompute.communication if _beyond(recompute.communication, full) else (),
        attention_core=recompute.attention_core,
        swapped_layers=recompute.swapped_layers if any(map(any, recompute.swapped_layers)) else (),
    )


def _beyond(counts: Counts, full: Counts) -> bool:
    """Whether any chunk has more layers in `counts` than are recomputed in full anyway."""
    return any(count > (full[chunk][stage] if full else 0) for chunk, row in enumerate(counts) for stage, count in enumerate(row))


def _optimizer_name(name: str) -> str:
    """Adam by any name has the same state."""
    word = name.lower().rpartition(".")[2]
    return "adam" if "adam" in word else word


def _fields(name: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if one == other:
        return
    if is_dataclass(one) and is_dataclass(other):
        for field in fields(one):
            if field.name not in UNCOMPARED.get(name, ()):
                yield from _fields(f"{name}.{field.name}", getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            yield from _fields(f"{name}.{key}", one.get(key), other.get(key))
    else:
        yield name, one, other


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if is_dataclass(value):
        return str(value if isinstance(value, MemoryLimit) else getattr(value, "name", "") or "given")
    return str([list(row) for row in value]) if isinstance(value, tuple) and value and isinstance(value[0], tuple) else str(value)
