"""Changes of the plan: what a measured step becomes when its parts change as the estimates of the two plans do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan, even_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.relaid import resized, respread
from perfkit.core.units import NS_PER_S
from perfkit.explain.what_if._changes import Change
from perfkit.predict.calibration import Calibration
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.step_time import breakdown
from perfkit.predict.estimate import efficiency_of, estimate

GRADIENTS = "communication/exposed/dp"


def changed_plan(plan: Plan, changes: Sequence[Change]) -> tuple[Plan, tuple[str, ...]]:
    """The plan after the changes, on the same devices where data parallelism can make up for it, and what was changed.

    Raises InputError with everything that the new plan contradicts.
    """
    said: list[str] = []
    sizes: dict[str, Any] = {}
    batch = plan.workload.global_batch_size
    recompute = layers = ""
    extra = 0
    for change in changes:
        if change.kind == "size":
            said.append(f"{change.name} {getattr(plan.parallel, change.name)} -> {change.amount}")
            sizes[change.name] = change.amount
        elif change.kind == "recompute":
            recompute = change.name
            said.append(f"recompute {change.name}")
        elif change.kind == "layers":
            layers = change.name
            said.append(f"layers {change.name}")
        else:
            extra += change.amount
    devices = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
    if "data_parallel_size" not in sizes and any(name in sizes for name in devices):
        used = 1
        for name in devices:
            used *= sizes.get(name, getattr(plan.parallel, name))
        if plan.num_devices % used:
            raise InputError("changes", [f"{plan.num_devices} devices are not divisible by groups of {used}"])
        sizes["data_parallel_size"] = plan.num_devices // used
        said.append(f"data_parallel_size {plan.parallel.data_parallel_size} -> {sizes['data_parallel_size']}")
    shard = plan.parallel.optimizer_shard_size
    if shard > 1 and shard == plan.parallel.data_parallel_size and "optimizer_shard_size" not in sizes:
        sizes["optimizer_shard_size"] = sizes.get("data_parallel_size", shard)
    parallel = resized(plan.parallel, **sizes)
    if layers:
        parallel = replace(parallel, layers_per_stage=_placed(layers, plan, parallel))
    if extra:
        each = plan.workload.micro_batch_size * parallel.data_parallel_size * parallel.micro_batch_interleave_size
        now = batch // each
        if now + extra < 1:
            raise InputError("changes", [f"micro-batches = {now} {extra:+d} leaves none"])
        batch = (now + extra) * each
        said.append(f"micro batches {now} -> {now + extra} (global batch {batch})")
    workload = replace(plan.workload, global_batch_size=batch)
    after = replace(plan, parallel=parallel, workload=workload, recompute=RecomputePlan(), document=None)
    kept = respread(plan.recompute, plan.stage_layers, after.stage_layers)
    after = replace(after, recompute=_recomputed(recompute, after) if recompute else kept)
    if after == replace(plan, document=None):
        raise InputError("changes", [f"{', '.join(change.text for change in changes)}: the plan of the run is like that already"])
    return after, tuple(said)


def _placed(asked: str, plan: Plan, parallel: ParallelPlan) -> Counts:
    """So many layers on every stage, of every chunk where they are told apart by ";", else evenly over the stage's chunks."""
    rows = [[int(count) for count in row.split(",")] for row in asked.split(";")]
    stages, chunks, layers = parallel.pipeline_parallel_size, parallel.virtual_pipeline_parallel_size, plan.model.num_layers
    problems = []
    if len(rows) not in (1, chunks) or any(len(row) != stages for row in rows):
        shape = f"{stages} numbers, one a stage" + (f"; or {chunks} such rows, one a chunk" if chunks > 1 else "")
        problems.append(f"layers:{asked}: the plan needs {shape}")
    if (placed := sum(map(sum, rows))) != layers:
        problems.append(f"layers:{asked} places {placed} layers, the model has {layers}")
    if problems:
        raise InputError("changes", problems)
    if len(rows) == chunks:
        return tuple(map(tuple, rows))
    columns = [[count for row in even_layers(own, 1, chunks) for count in row] for own in rows[0]]
    return tuple(zip(*columns, strict=True))


def _recomputed(asked: str, plan: Plan) -> RecomputePlan:
    """Nothing, all layers, or so many of every stage, from the first chunk of the stage on."""
    if asked in ("off", "all"):
        return RecomputePlan(all_layers=asked == "all")
    left, held = [int(count) for count in asked.split(",")], [sum(stage) for stage in zip(*plan.stage_layers, strict=True)]
    if len(left) != len(held) or any(count > layers for count, layers in zip(left, held, strict=True)):
        raise InputError("changes", [f"recompute:{asked}: the stages have {', '.join(map(str, held))} layers"])
    counts = []
    for row in plan.stage_layers:
        counts.append(tuple(min(pair) for pair in zip(left, row, strict=True)))
        left = [count - taken for count, taken in zip(left, counts[-1], strict=True)]
    return RecomputePlan(full_layers=tuple(counts))


def scaled(
    measured: Breakdown, before: Plan, after: Plan, calibration: str | Calibration | None, stage: int | None = None
) -> tuple[Breakdown, tuple[float, float]]:
    """The measured parts in ns times what the estimate's parts change by, and the interval as ratios to the new step.

    The parts are those of a rank on `stage` (None: of the one that works longest). A part that the first estimate lacks is added at
    the scale of the whole: measured over estimated step.
    """
    new = estimate(after, calibration=calibration)
    low, high = (bound / new.step_time_s for bound in new.interval_s)
    parts = (breakdown(costs_of([plan]), efficiency_of(plan, calibration), _stage_in(plan, stage)) for plan in (before, after))
    return _scaled(measured, *parts), (low, high)


def _stage_in(plan: Plan, stage: int | None) -> int | None:
    return None if stage is None else min(stage, plan.parallel.pipeline_parallel_size - 1)


def overlapped(measured: Breakdown, plan: Plan, calibration: str | Calibration | None) -> Breakdown:
    """The measured parts in ns with gradients reduced beside the backward pass, not after it, as the prediction has both."""
    known = efficiency_of(plan, calibration)
    old, new = (breakdown(costs_of([plan]), replace(known, gradients_hidden=share)) for share in (0.0, 1.0))
    whole, cost = float(old.amount(GRADIENTS)), float(np.max(known.contention))
    # The message of the layer that ends the backward pass has nothing left to hide behind.
    last = 1 / (plan.model.num_layers // plan.parallel.pipeline_parallel_size + 1)
    least = whole * (last + cost * (1 - last))
    once = whole > 0 and plan.parallel.optimizer_shard_level < 3
    parts = {**new.parts, GRADIENTS: max(float(new.amount(GRADIENTS)), least)} if once else new.parts
    return _scaled(measured, old, replace(new, parts=parts))


def _scaled(measured: Breakdown, old: Breakdown, new: Breakdown) -> Breakdown:
    """The measured parts in ns times what predicted parts in seconds change by."""
    scale = float(measured.total) / (float(old.total) * NS_PER_S)
    parts: dict[str, int] = {}
    for path in dict.fromkeys([*measured.collapse(1).parts, *new.collapse(1).parts]):
        was, becomes, now = old.amount(path), new.amount(path), measured.amount(path)
        amount = now * becomes / was if was else now + becomes * scale * NS_PER_S
        parts[path] = round(amount)
    return Breakdown("ns", parts, measured.source)
