"""Changes: a plan or a model with other sizes, a plan on another device, under another limit, with other recomputation.

A configuration says what a plan is; a page, a script or a search asks what it would be otherwise. Nothing changes that is not
named, so that `changed_plan(plan)` is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.questions import nearest
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.relaid import resized, respread
from perfkit.core.spec.workload import Workload
from perfkit.core.units import GIB
from perfkit.predict.limits import with_limit
from perfkit.predict.memory.switches import with_full_layers, with_silu_mul

AS_PLANNED = "as in the file"
RECOMPUTATIONS: Mapping[str, Callable[[Plan, int], RecomputePlan]] = MappingProxyType(
    {
        "none": lambda _plan, _layers: RecomputePlan(),
        "Silu and Mul": lambda plan, _layers: with_silu_mul(plan),
        "attention core": lambda _plan, _layers: RecomputePlan(attention_core=True),
        "some layers": with_full_layers,
        "all layers": lambda _plan, _layers: RecomputePlan(all_layers=True),
    }
)
"""Recomputation by its name, of a plan and a number of layers a chunk and stage."""
_LAYOUT, _WORK, _MODEL = (frozenset(one.name for one in fields(part)) for part in (ParallelPlan, Workload, ModelSpec))
_GIB_APART = 1e-6


def changed_plan(
    base: Plan,
    *,
    device: str = "",
    limit_gib: float | None = None,
    framework: str = "",
    recompute: str | RecomputePlan = AS_PLANNED,
    full_layers: int = 1,
    **sizes: Any,
) -> Plan:
    """The plan with other fields of its `ParallelPlan` and `Workload` (`sizes`), on `device`, under `limit_gib`, for `framework`.

    `recompute` is a `RecomputePlan` or a name of `RECOMPUTATIONS`, "some layers" being the first `full_layers` of every chunk and
    stage; what the plan itself recomputes follows its layers to other stages. With `optimizer_shard_level` 0 nothing is shared; a
    group that shares the optimizer's state stays as large as it is while the replicas do, else it is all of them.

    Raises InputError with every name that is no field, and with every contradiction of the new plan.
    """
    _refuse(sizes, recompute)
    layout = {name: value for name, value in sizes.items() if name in _LAYOUT}
    work = {name: value for name, value in sizes.items() if name in _WORK}
    own = base.recompute
    bare = replace(
        base,
        workload=replace(base.workload, **work),
        parallel=resized(base.parallel, **_shared(base.parallel, layout)),
        recompute=RecomputePlan(),
    )
    plan = on_device(bare, device) if device else bare
    if framework not in ("", plan.program):
        plan = replace(plan, software=replace(plan.software, framework=framework))
    if limit_gib is not None and abs(limit_gib_of(plan) - limit_gib) >= _GIB_APART:
        plan = with_limit(plan, limit_gib * GIB, f"limit_gib = {limit_gib:g}")
    if isinstance(recompute, RecomputePlan):
        return replace(plan, recompute=recompute)
    if recompute == AS_PLANNED:
        return replace(plan, recompute=respread(own, base.stage_layers, plan.stage_layers))
    return replace(plan, recompute=RECOMPUTATIONS[recompute](plan, full_layers))


def changed_model(base: ModelSpec, **sizes: int) -> ModelSpec:
    """The model with other sizes; the head size follows the hidden size and the number of heads where these change.

    Raises InputError with every name that is no field, and with every contradiction of the new model.
    """
    if problems := [nearest(name, sorted(_MODEL), "field of a model") for name in sizes if name not in _MODEL]:
        raise InputError("changed_model", problems)
    hidden, heads = (sizes.get(name, getattr(base, name)) for name in ("hidden_size", "num_attention_heads"))
    if (hidden, heads) != (base.hidden_size, base.num_attention_heads):
        sizes = {"head_size": max(1, hidden // heads), **sizes}
    return replace(base, **sizes)  # type: ignore[arg-type]


def on_device(plan: Plan, device: str) -> Plan:
    """The plan on another device of the catalogue; a limit of its own that this one cannot hold is left out."""
    hardware = catalog.hardware_named(device)
    limit = plan.memory_limit
    too_large = limit is not None and limit.problem(hardware.name, hardware.memory_bytes)
    return replace(plan, hardware=hardware, memory_limit=None if too_large else limit)


def limit_gib_of(plan: Plan) -> float:
    """The limit that counts for a plan, in GiB: its own, else all of its device; 0 if neither is stated."""
    usable = plan.usable_memory
    return 0.0 if usable is None else round((usable.limit_bytes or 0) / GIB, 6)


def shard_level_of(parallel: ParallelPlan) -> int:
    """What the replicas share: 0 nothing, 1 the optimizer's state, 2 gradients, 3 parameters too."""
    return parallel.optimizer_shard_level if parallel.optimizer_shard_size > 1 else 0


def _shared(before: ParallelPlan, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """`sizes`, with the group that shares the optimizer's state and the split of experts that follow from them."""
    found = dict(sizes)
    replicas = [
        [found.get(name, getattr(before, name)) for name in ("data_parallel_size", "context_parallel_size")],
        [before.data_parallel_size, before.context_parallel_size],
    ]
    level = found.pop("optimizer_shard_level", shard_level_of(before))
    kept = before.optimizer_shard_size if replicas[0] == replicas[1] and before.optimizer_shard_size > 1 else 0
    shards = (kept or replicas[0][0] * replicas[0][1]) if level else 1
    found = {"optimizer_shard_size": shards, "optimizer_shard_level": level or before.optimizer_shard_level, **found}
    if any(name.endswith("parallel_size") and getattr(before, name) != size for name, size in sizes.items()):
        found = {"expert_tensor_parallel_size": 0, **found}
    return found


def _refuse(sizes: Mapping[str, Any], recompute: str | RecomputePlan) -> None:
    known = sorted(_LAYOUT | _WORK)
    problems = [nearest(name, known, "field of a plan") for name in sizes if name not in known]
    if isinstance(recompute, str) and recompute not in (AS_PLANNED, *RECOMPUTATIONS):
        problems.append(f"recompute = {recompute!r} is not known; there are {', '.join((AS_PLANNED, *RECOMPUTATIONS))}")
    if problems:
        raise InputError("changed_plan", problems)
