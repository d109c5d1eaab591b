"""Memory switches: what each single change of a plan would do to its peak, computed by changing it.

Every switch keeps the number of devices and the global batch. One that the plan already has, or that cannot apply to it, is left
out; one that would contradict the rest of the plan is kept with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.recomputed import SILU_MUL
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.relaid import relaid
from perfkit.predict.memory.memory import MemoryEstimate, peak_memory
from perfkit.predict.memory.settings import MemorySettings


@dataclass(frozen=True, slots=True)
class Switch:
    """A change by `name`, what it costs in words, the changed plan and its estimate; or `why_not`."""

    name: str
    price: str
    plan: Plan | None
    estimate: MemoryEstimate | None
    why_not: str = ""


def switches(plan: Plan, settings: MemorySettings, schedule: str = "1f1b") -> tuple[Switch, ...]:
    """All switches of a plan, the one with the lowest peak first, impossible ones last."""
    found = [_try(change, settings, schedule) for change in _changes(plan)]
    return tuple(sorted(found, key=lambda switch: float("inf") if switch.estimate is None else switch.estimate.peak.total))


def with_silu_mul(plan: Plan) -> RecomputePlan:
    """Silu and Mul repeated in every layer."""
    counts = plan.stage_layers
    return RecomputePlan(operators=dict.fromkeys(SILU_MUL, counts))


def with_full_layers(plan: Plan, layers: int) -> RecomputePlan:
    """The first `layers` of every chunk and stage recomputed in full."""
    return RecomputePlan(full_layers=tuple(tuple(min(layers, count) for count in row) for row in plan.stage_layers))


_Change = tuple[str, str, Callable[[], Plan]]


def _try(named: _Change, settings: MemorySettings, schedule: str) -> Switch:
    name, price, change = named
    try:
        changed = change()
        return Switch(name, price, changed, peak_memory(changed, schedule=schedule, settings=settings))
    except InputError as error:
        return Switch(name, price, None, None, "; ".join(error.problems))


def _changes(plan: Plan) -> Iterator[_Change]:
    yield from _recomputations(plan)
    yield from _sharings(plan)
    yield from _splits(plan)
    yield from _numerics(plan)


def _recomputations(plan: Plan) -> Iterator[_Change]:
    now, work = plan.recompute, plan.workload
    nothing = RecomputePlan()
    if not now.all_layers:
        half = max(1, max(max(row) for row in plan.stage_layers) // 2)
        yield (
            "recompute every layer",
            "one more forward pass (a third more computing)",
            lambda: _with(plan, recompute=RecomputePlan(all_layers=True)),
        )
        yield (
            f"recompute {half} layers a stage",
            "half of a forward pass more",
            lambda: _with(plan, recompute=with_full_layers(plan, half)),
        )
    if plan.model.gated_ffn and not now.operators and not now.all_layers:
        yield "recompute Silu and Mul", "two element-wise operators a layer", lambda: _with(plan, recompute=with_silu_mul(plan))
    if work.attention_kernel == "unfused" and not now.attention_core and not now.all_layers:
        yield (
            "recompute the attention core",
            "scores and values once more",
            lambda: _with(plan, recompute=RecomputePlan(attention_core=True)),
        )
    if now != nothing:
        yield "recompute nothing", "saves the repeated computing", lambda: _with(plan, recompute=nothing)
    if not now.all_layers and not now.swapped_layers:
        yield (
            "swap all layers to the host",
            "host link traffic twice a step",
            lambda: _with(plan, recompute=replace(now, swapped_layers=plan.stage_layers)),
        )


def _sharings(plan: Plan) -> Iterator[_Change]:
    parallel = plan.parallel
    group = parallel.data_parallel_size * parallel.context_parallel_size
    if group == 1:
        return
    now = parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0
    names = {1: "share the optimizer state", 2: "share gradients too", 3: "share parameters too"}
    prices = {
        1: "parameters are gathered once a step",
        2: "gradients are scattered every micro batch",
        3: "parameters are gathered in every forward and backward pass",
    }
    for level in range(now + 1, 4):
        yield names[level], prices[level], _sharing(plan, group, level)
    if 1 < parallel.optimizer_shard_size < group:
        yield f"share over all {group} devices", "the group leaves the node", _sharing(plan, group, max(1, now))


def _sharing(plan: Plan, group: int, level: int) -> Callable[[], Plan]:
    return lambda: _parallel(plan, optimizer_shard_size=group, optimizer_shard_level=level)


def _splits(plan: Plan) -> Iterator[_Change]:
    parallel, work = plan.parallel, plan.workload
    if parallel.tensor_parallel_size > 1 and not parallel.sequence_parallel and parallel.context_parallel_size == 1:
        yield "sequence parallel", "none (the same volume in other collectives)", lambda: _parallel(plan, sequence_parallel=True)
    if work.micro_batch_size > 1:
        half = work.micro_batch_size // 2
        yield (
            f"micro batch {half}",
            "smaller products, more micro batches",
            lambda: _with(plan, workload=replace(work, micro_batch_size=half)),
        )
    if parallel.data_parallel_size % 2 == 0:
        for name, size, price in (
            ("tensor", parallel.tensor_parallel_size, "collectives in every layer"),
            ("pipeline", parallel.pipeline_parallel_size, "a larger bubble"),
            ("context", parallel.context_parallel_size, "keys and values travel"),
        ):
            yield f"{name} parallel {2 * size}", f"{price}; half the replicas", _traded(plan, f"{name}_parallel_size", 2 * size)


def _traded(plan: Plan, name: str, size: int) -> Callable[[], Plan]:
    """`size` for a group, taken from the replicas."""
    parallel = plan.parallel
    group = parallel.data_parallel_size * parallel.context_parallel_size
    data = parallel.data_parallel_size // 2
    shards = parallel.optimizer_shard_size
    context = size if name == "context_parallel_size" else parallel.context_parallel_size
    changes: dict[str, Any] = {name: size, "data_parallel_size": data}
    changes["optimizer_shard_size"] = data * context if shards == group else max(1, min(shards, data * context))
    return lambda: relaid(plan, **changes)


def _numerics(plan: Plan) -> Iterator[_Change]:
    work, optimizer = plan.workload, plan.optimizer
    if work.attention_kernel == "unfused":
        yield "flash attention", "none", lambda: _with(plan, workload=replace(work, attention_kernel="flash"))
    if work.dropout:
        yield "no dropout", "another training recipe", lambda: _with(plan, workload=replace(work, dropout=False))
    if optimizer.gradient_dtype == "float32" and work.dtype != "float32":
        yield (
            "gradients in 16 bit",
            "sums of gradients lose digits",
            lambda: _with(plan, optimizer=replace(optimizer, gradient_dtype="bfloat16")),
        )


def _with(plan: Plan, **parts: Any) -> Plan:
    return replace(plan, **parts)


def _parallel(plan: Plan, **sizes: Any) -> Plan:
    return replace(plan, parallel=replace(plan.parallel, **sizes))
