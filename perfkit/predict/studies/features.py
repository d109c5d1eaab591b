"""Features: what every parallel feature would do to one plan: step time, memory, bytes sent and bubble, computed and not quoted.

Each feature is one change of the plan: the size of a group doubled, or a switch turned. Devices are kept by taking them from data
parallelism, or added. A feature that cannot be used says why; an effect that is not modelled is empty, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.looks import brief
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.relaid import relaid
from perfkit.core.units import format_bytes, format_change
from perfkit.predict.calibration import Calibration
from perfkit.predict.cost.communication import bytes_sent
from perfkit.predict.cost.cost_columns import refuse_unpriced
from perfkit.predict.estimate import step_parts
from perfkit.predict.memory.memory import peak_memory

COLUMNS = (
    "feature",
    "change",
    "num_devices",
    "step_time_s",
    "tokens_per_s_per_device",
    "peak_memory_bytes",
    "static_bytes",
    "sent_bytes",
    "bubble_ratio",
    "splits",
    "limits",
    "why_not",
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A way to split the work: what it splits, its limits in words, and how a plan gets it.

    `change` gives the new plan and says what was changed; it raises InputError where the feature cannot be used.
    """

    name: str
    splits: str
    limits: str
    change: Callable[[Plan, bool], tuple[Plan, str]]


def parallel_features(plan: Plan, *, more_devices: bool = False, chosen: str | Calibration | None = None) -> pd.DataFrame:
    """One row a feature after the plan itself ("as planned"): seconds, bytes of a device, ratio of the bubble to the step.

    Groups that grow take their devices from data parallel, or with `more_devices` from outside. `sent_bytes` is what a device
    sends in a step, `static_bytes` parameters, gradients and optimizer state.
    """
    base: dict[str, Any] = {**_TEXTS, "feature": "as planned"}
    rows = [base]
    refuse_unpriced(PlanColumns.of([plan]))
    found = [(base, plan, _bytes(plan))]
    for feature in FEATURES:
        row: dict[str, Any] = {**_TEXTS, "feature": feature.name, "splits": feature.splits, "limits": feature.limits}
        rows.append(row)
        try:
            changed, what = feature.change(plan, more_devices)
            refuse_unpriced(PlanColumns.of([changed]))
            found.append((row, changed, _bytes(changed)))
            row["change"] = what
        except InputError as error:
            row["why_not"] = "; ".join(error.problems)
    parts = step_parts(PlanColumns.of([changed for _, changed, _ in found]), chosen)
    seconds = sum(parts.values(), start=np.zeros(len(found))).tolist()
    for (row, changed, amounts), step_s, bubble_s in zip(found, seconds, parts["bubble"].tolist(), strict=True):
        row |= {
            **amounts,
            "num_devices": changed.num_devices,
            "step_time_s": step_s,
            "tokens_per_s_per_device": changed.tokens_per_step / (step_s * changed.num_devices),
            "bubble_ratio": bubble_s / step_s,
        }
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    counts = ["num_devices", "peak_memory_bytes", "static_bytes", "sent_bytes"]
    frame[counts] = frame[counts].astype("Int64")
    return frame


def features_told(found: pd.DataFrame) -> tuple[str, ...]:
    """The features that make a device fastest and need least memory, in a sentence; then how to read them."""
    names, speeds, peaks = (found[name].tolist() for name in ("feature", "tokens_per_s_per_device", "peak_memory_bytes"))
    faster = [(speed, name) for name, speed in zip(names[1:], speeds[1:], strict=True) if speed > speeds[0] * 1.005]
    smaller = [(peak, name) for name, peak in zip(names[1:], peaks[1:], strict=True) if not pd.isna(peak)]
    parts = ["No single feature makes a device faster"]
    if faster:
        speed, name = max(faster)
        parts = [f"Fastest with {name} ({format_change(speed / speeds[0] - 1)} a device)"]
    if smaller:
        peak, name = min(smaller)
        parts.append(f"least memory with {name} ({format_bytes(peak)})")
    notes = ["One change at a time: effects of several together are not their sum."]
    if unusable := int((found["why_not"] != "").sum()):
        notes.append(f"{unusable} features cannot be used with this plan; the table says why.")
    return "; ".join(parts) + ".", *notes


def features_table(found: pd.DataFrame) -> pd.DataFrame:
    """The features as a page shows them: every figure, with speed and sizes against the plan as it is (`<name>_change_ratio`)."""
    columns: dict[str, Any] = {
        "feature": found["feature"],
        "change": found["change"].where(found["change"] != "", found["why_not"]),
        "num_devices": found["num_devices"],
    }
    for name in ("tokens_per_s_per_device", "peak_memory_bytes", "static_bytes", "sent_bytes"):
        columns[name], base = found[name], found[name].iloc[0]
        columns[f"{name}_change_ratio"] = [None if pd.isna(value) or not base else value / base - 1 for value in found[name]]
    shown = pd.DataFrame({**columns, **{name: found[name] for name in ("bubble_ratio", "splits", "limits")}})
    shown.attrs["labels"] = {"num_devices": "devices", **CHANGES}
    return brief(
        shown, "feature", "change", "tokens_per_s_per_device_change_ratio", "peak_memory_bytes", "peak_memory_bytes_change_ratio"
    )


CHANGES = {
    "change": "how",
    "tokens_per_s_per_device_change_ratio": "faster",
    "peak_memory_bytes_change_ratio": "more memory",
    "static_bytes_change_ratio": "more static",
    "sent_bytes_change_ratio": "more sent",
}


_TEXTS = dict.fromkeys(("change", "splits", "limits", "why_not"), "")


def _bytes(plan: Plan) -> dict[str, int]:
    """What a device holds at its peak and from step to step, and what it sends in a step."""
    peak = peak_memory(plan).peak
    return {
        "peak_memory_bytes": round(peak.total),
        "static_bytes": round(peak.amount("static")),
        "sent_bytes": int(bytes_sent(plan.model, plan.workload, plan.parallel, plan.recompute).total),
    }


def _doubled(field: str) -> Callable[[Plan, bool], tuple[Plan, str]]:
    def change(plan: Plan, more_devices: bool) -> tuple[Plan, str]:
        parallel = plan.parallel
        size = getattr(parallel, field)
        sizes = {field: 2 * size}
        if not more_devices and field != "data_parallel_size":
            sizes["data_parallel_size"] = _halved(parallel)
        return _with(plan, **sizes), f"{field} {size} -> {2 * size}"

    return change


def _halved(parallel: ParallelPlan) -> int:
    if parallel.data_parallel_size % 2:
        raise InputError("feature", [f"data_parallel_size = {parallel.data_parallel_size} cannot give half of its devices away"])
    return parallel.data_parallel_size // 2


def _with(plan: Plan, **fields: Any) -> Plan:
    """The plan with other parallel sizes; its optimizer shards and layers follow."""
    before = plan.parallel
    sizes = {name: fields.get(name, getattr(before, name)) for name in ("data_parallel_size", "context_parallel_size")}
    group = math.prod(sizes.values())
    if "optimizer_shard_size" not in fields and before.optimizer_shard_size > 1:
        whole = before.optimizer_shard_size >= before.data_parallel_size
        fields["optimizer_shard_size"] = group if whole else math.gcd(before.optimizer_shard_size, group)
    after = relaid(plan, **fields)
    _check_sequence(plan, after.parallel)
    return after


def _check_sequence(plan: Plan, parallel: ParallelPlan) -> None:
    pieces = parallel.context_parallel_size * (parallel.tensor_parallel_size if parallel.sequence_parallel else 1)
    problems = []
    if plan.workload.seq_length % pieces:
        problems.append(f"seq_length = {plan.workload.seq_length} is not divisible by {pieces} devices that share a sequence")
    heads = parallel.tensor_parallel_size
    if parallel.context_parallel_size > 1 and parallel.context_parallel_algorithm != "ring":
        heads *= parallel.ulysses_size or parallel.context_parallel_size
        if plan.model.num_key_value_heads % heads:
            problems.append(f"num_key_value_heads = {plan.model.num_key_value_heads} is not divisible by {heads}")
    if problems:
        raise InputError("feature", problems)


def _virtual(plan: Plan, more_devices: bool) -> tuple[Plan, str]:
    if plan.parallel.pipeline_parallel_size == 1:
        raise InputError("feature", ["pipeline_parallel_size = 1 has no stages to cut into chunks"])
    return _doubled("virtual_pipeline_parallel_size")(plan, True)


def _sharded(plan: Plan, _more: bool) -> tuple[Plan, str]:
    group = plan.parallel.data_parallel_size * plan.parallel.context_parallel_size
    if group == 1:
        raise InputError("feature", ["data_parallel_size = 1 has no devices that could share the state"])
    if plan.parallel.optimizer_shard_size == group:
        return _with(plan, optimizer_shard_size=1, optimizer_shard_level=1), f"switched off (now over {group} devices)"
    return _with(plan, optimizer_shard_size=group), f"optimizer_shard_size {plan.parallel.optimizer_shard_size} -> {group}"


def _partly_sharded(plan: Plan, _more: bool) -> tuple[Plan, str]:
    parallel = plan.parallel
    in_node = plan.hardware.devices_per_node // parallel.tensor_parallel_size if plan.hardware else 8
    size = max(
        (size for size in range(2, parallel.data_parallel_size) if parallel.data_parallel_size % size == 0 and size <= in_node),
        default=0,
    )
    if not size:
        raise InputError(
            "feature", [f"data_parallel_size = {parallel.data_parallel_size} has no part of 2 or more replicas inside a node"]
        )
    return _with(plan, optimizer_shard_size=size), f"optimizer_shard_size {parallel.optimizer_shard_size} -> {size}"


def _sequence(plan: Plan, _more: bool) -> tuple[Plan, str]:
    if plan.parallel.tensor_parallel_size == 1:
        raise InputError("feature", ["needs tensor_parallel_size above 1"])
    on = plan.parallel.sequence_parallel
    return _with(plan, sequence_parallel=not on), "switched off" if on else "switched on"


def _accumulation(plan: Plan, _more: bool) -> tuple[Plan, str]:
    batch = plan.workload.global_batch_size
    return replace(plan, workload=replace(plan.workload, global_batch_size=2 * batch)), f"global_batch_size {batch} -> {2 * batch}"


def _multi_copy(plan: Plan, _more: bool) -> tuple[Plan, str]:
    parallel, work = plan.parallel, plan.workload
    if parallel.tensor_parallel_size == 1:
        raise InputError("feature", ["needs tensor_parallel_size above 1: there is no communication to hide"])
    if work.micro_batch_size % 2 == 0:
        plan = replace(plan, workload=replace(work, micro_batch_size=work.micro_batch_size // 2))
    size = parallel.micro_batch_interleave_size
    changed = _with(plan, micro_batch_interleave_size=2 * size)
    return changed, f"micro_batch_interleave_size {size} -> {2 * size}"


def _context(algorithm: str) -> Callable[[Plan, bool], tuple[Plan, str]]:
    def change(plan: Plan, more_devices: bool) -> tuple[Plan, str]:
        parallel = plan.parallel
        factor = 4 if algorithm == "hybrid" and parallel.context_parallel_size == 1 else 2
        size = parallel.context_parallel_size * factor
        data = parallel.data_parallel_size
        if not more_devices and data % factor:
            raise InputError("feature", [f"data_parallel_size = {data} cannot give a {factor}th of its devices away"])
        changed = _with(
            plan,
            context_parallel_size=size,
            data_parallel_size=data if more_devices else data // factor,
            context_parallel_algorithm=algorithm,
            ulysses_size=2 if algorithm == "hybrid" else 0,
        )
        return changed, f"context_parallel_size {parallel.context_parallel_size} -> {size}, {algorithm}"

    return change


def _chunks(plan: Plan, _more: bool) -> tuple[Plan, str]:
    if plan.parallel.pipeline_parallel_size == 1:
        raise InputError("feature", ["pipeline_parallel_size = 1 has no pipeline for pieces of a sequence"])
    size = plan.parallel.sequence_chunks
    return _with(plan, sequence_chunks=2 * size), f"sequence_chunks {size} -> {2 * size}"


def _experts(plan: Plan, _more: bool) -> tuple[Plan, str]:
    if not plan.model.num_experts:
        raise InputError("feature", ["the model has no experts"])
    size = plan.parallel.expert_parallel_size
    return _with(plan, expert_parallel_size=2 * size), f"expert_parallel_size {size} -> {2 * size}"


def _swap(plan: Plan, _more: bool) -> tuple[Plan, str]:
    if plan.recompute.all_layers:
        raise InputError("feature", ["every layer is recomputed already; a layer is swapped or recomputed, not both"])
    counts = tuple(tuple(min(1, count) for count in row) for row in plan.stage_layers)
    return replace(plan, recompute=replace(plan.recompute, swapped_layers=counts)), "one layer a stage waits on the host"


FEATURES: tuple[Feature, ...] = (
    Feature(
        "data parallel", "batch", "saves no memory; the global batch needs one sequence a replica", _doubled("data_parallel_size")
    ),
    Feature("tensor parallel", "weight matrices", "must divide the heads; keep it inside a node", _doubled("tensor_parallel_size")),
    Feature("pipeline parallel", "layers", "as many micro batches as stages, at least", _doubled("pipeline_parallel_size")),
    Feature("virtual pipeline", "every stage into chunks", "layers for every chunk", _virtual),
    Feature("optimizer parallel", "optimizer state over the replicas", "rows of a weight must divide", _sharded),
    Feature("partly sharded optimizer", "optimizer state inside a node", "1 < size < data parallel, dividing it", _partly_sharded),
    Feature("sequence parallel", "the sequence at norms, over tensor parallel", "tensor parallel divides the sequence", _sequence),
    Feature("multi-copy", "a micro batch into copies that overlap", "tensor parallel above 1", _multi_copy),
    Feature("gradient accumulation", "the batch in time", "twice the tokens a step", _accumulation),
    Feature("ring attention", "the sequence everywhere", "small blocks use the device badly", _context("ring")),
    Feature("Ulysses", "the sequence outside, heads inside attention", "key-value heads divide", _context("ulysses")),
    Feature("hybrid context parallel", "both", "group of heads divides context parallel", _context("hybrid")),
    Feature("sequence pipeline", "pieces of the sequence as units of the pipeline", "Llama and DeepSeek only", _chunks),
    Feature("expert parallel", "experts", "divides experts and data x context parallel", _experts),
    Feature("activation swap", "activations to the host", "not together with recomputation of the same layer", _swap),
)
"""All features in the order of the guides."""
