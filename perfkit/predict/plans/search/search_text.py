"""Plans in words and as JSON: the sizes of a plan, and what its step is spent on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.core.spec.plan import Plan
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import NS_PER_S, format_bytes
from perfkit.predict.estimate import Estimate

NAMES = (
    ("tp", "tensor_parallel_size"),
    ("pp", "pipeline_parallel_size"),
    ("vpp", "virtual_pipeline_parallel_size"),
    ("cp", "context_parallel_size"),
    ("ep", "expert_parallel_size"),
)
WORDS = {"tp": "tensor {size}", "pp": "pipeline {size}", "vpp": "chunks {size}", "cp": "context {size}", "ep": "experts {size}"}
PARTS = {
    "communication/exposed/tp": "waiting for tensor parallel",
    "communication/exposed/dp": "waiting for data parallel",
    "communication/exposed/pp": "waiting for sends between stages",
    "communication/exposed/cp": "waiting for context parallel",
    "communication/exposed/ep": "waiting for experts",
    "bubble": "pipeline bubble",
    "computing/recompute": "recomputation",
    "free": "host",
}
SHOWN = 0.01


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The sizes of a plan by field name; recomputed layers as counts by chunk and stage."""
    parallel, recompute = plan.parallel, plan.recompute
    names = ("data_parallel_size", *(field for _, field in NAMES), "sequence_parallel")
    names += ("optimizer_shard_size", "optimizer_shard_level", "micro_batch_interleave_size")
    return {
        **{name: getattr(parallel, name) for name in names},
        "micro_batch_size": plan.workload.micro_batch_size,
        "num_micro_batches": plan.num_micro_batches,
        "global_batch_size": plan.workload.global_batch_size,
        "recompute": {
            "all_layers": recompute.all_layers,
            "full_layers": [list(row) for row in recompute.full_layers],
            "operators": {pattern: [list(row) for row in counts] for pattern, counts in recompute.operators.items()},
            "attention_core": recompute.attention_core,
        },
    }


def plan_text(plan: Plan) -> Said:
    """A plan in one line, such as "data 8 × tensor 4 × pipeline 2, micro batch 1 × 32, ZeRO-1, 12 of 40 layers recomputed"."""
    parallel = plan.parallel
    parts: list[str] = [division_text(plan), _micro_batches(plan.workload.micro_batch_size, plan.num_micro_batches)]
    if parallel.optimizer_shard_size > 1:
        parts.append(f"ZeRO-{parallel.optimizer_shard_level}")
    if parallel.sequence_parallel:
        parts.append(say("sequence parallel"))
    if parallel.micro_batch_interleave_size > 1:
        parts.append(_copies(parallel.micro_batch_interleave_size))
    return joined([*parts, recompute_text(plan)], ", ")


def strategy_text(sizes: Mapping[str, Any], recompute: str) -> Said:
    """`plan_text` of a strategy from its `sizes` by dimension, without its plan, and what it recomputes in words."""
    parts: list[str] = [_division(sizes["dp"], sizes), _micro_batches(sizes["mbs"], sizes["m"])]
    parts += [f"ZeRO-{sizes['zero']}"] if sizes["zero"] else []
    parts += [say("sequence parallel")] if sizes["sp"] else []
    parts += [_copies(sizes["copies"])] if sizes["copies"] > 1 else []
    return joined([*parts, recompute], ", ")


def _micro_batches(size: int, num: int) -> Said:
    return say("micro batch {size} × {num}", size=str(size), num=str(num))


def _copies(num: int) -> Said:
    return say("{num} copies", num=str(num))


def recompute_text(plan: Plan) -> Said:
    """What is recomputed, in words."""
    recompute, layers = plan.recompute, plan.recompute.num_full_layers(plan.model.num_layers)
    rest = "Silu and Mul" if recompute.operators else "attention core" if recompute.attention_core else ""
    if recompute.all_layers or layers == plan.model.num_layers:
        return say("all layers recomputed")
    if layers:
        some = say("{layers} of {num_layers} layers recomputed", layers=str(layers), num_layers=str(plan.model.num_layers))
        return say("{some}, {rest} in the others", some=some, rest=rest) if rest else some
    return say("{rest} recomputed", rest=rest) if rest else say("no recomputation")


def costs_text(predicted: Estimate) -> Said:
    """What a step is spent on beside the computing of the model, largest first."""
    total, parts = predicted.step_time_s, predicted.breakdown.parts
    costs = sorted(((parts.get(path, 0.0), name) for path, name in PARTS.items()), reverse=True)
    named = [say("{what} {share}", what=name, share=amount / total) for amount, name in costs if amount / total >= SHOWN]
    return joined(named, "; ") if named else say("nearly all of it computing")


def why(predicted: Estimate, best: Estimate, rank: int, limit_bytes: float) -> Said:
    """What the plan's place comes from: its time against the best, what the step waits for, and the memory that is left."""
    lead = say("{step_ns} a step", step_ns=predicted.step_time_s * NS_PER_S)
    if rank > 1:
        change = predicted.step_time_s / best.step_time_s - 1
        form = "{lead}, {change_ratio} longer than the best" if change >= 0 else "{lead}, {change_ratio} shorter than the best"
        lead = say(form, lead=lead, change_ratio=abs(change))
    return say(
        "{lead}: {costs}. Peak {peak_bytes} of {limit_bytes}.",
        lead=lead,
        costs=costs_text(predicted),
        peak_bytes=format_bytes(predicted.peak_memory_bytes),
        limit_bytes=limit_bytes,
    )


def division_text(plan: Plan) -> Said:
    """The division of a plan, such as "data 8 × tensor 4 × pipeline 2"."""
    parallel = plan.parallel
    return _division(parallel.data_parallel_size, {name: getattr(parallel, field) for name, field in NAMES})


def _division(data: int, sizes: Mapping[str, int]) -> Said:
    others = (say(form, size=str(sizes[name])) for name, form in WORDS.items() if sizes[name] > 1)
    return joined([say("data {size}", size=str(data)), *others], " × ")
