"""Truth: what was injected into a simulated run, and what each fault costs, for what checks a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_MS
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.simulate.faults import ALL, Fault
from perfkit.predict.simulate.run import Prepared, prepare


def truth(prepared: Prepared, *, price: bool = True) -> dict[str, Any]:
    """The faults of a simulation as a JSON document.

    With `price` each fault has `cost_ns_per_step` (what the step would be shorter without it) and `alone_cost_ns_per_step` (what it
    would be longer with nothing else), found by simulating again.
    """
    layout, faults = prepared.layout, prepared.faults
    document: dict[str, Any] = {
        "format": "perfkit.faults/1",
        "seed": prepared.disturbances.seed,
        "steps": prepared.steps,
        "world_size": layout.world,
        "layout": {"dp": layout.data, "tp": layout.tensor, "pp": layout.pipeline, "cp": layout.context, "ep": layout.expert},
        **_limit(prepared.plan),
        "healthy": not any(fault.costs_time for fault in faults),
        "faults": [_label(fault, prepared) for fault in faults],
    }
    if price:
        whole, healthy = _step_ns(prepared, faults), _step_ns(prepared, ())
        document |= {"step_ns": whole, "healthy_step_ns": healthy}
        for fault, label in zip(faults, document["faults"], strict=True):
            others = [other for other in faults if other is not fault]
            label["cost_ns_per_step"] = whole - _step_ns(prepared, others)
            label["alone_cost_ns_per_step"] = _step_ns(prepared, [fault]) - healthy
            label["cost_share"] = round(max(label["cost_ns_per_step"], label["alone_cost_ns_per_step"]) / whole, 5)
    return document


def _limit(plan: Plan) -> dict[str, Any]:
    """The limit that counts for the plan, who states it, and whether the job that is simulated would stay within it."""
    limit, peak = plan.usable_memory, peak_memory(plan).peak.total
    return {
        "memory_limit_bytes": None if limit is None else limit.limit_bytes,
        "memory_limit_source": None if limit is None else limit.source,
        "peak_memory_bytes": round(peak),
        "fits": None if limit is None else limit.holds(peak),
    }


def _label(fault: Fault, prepared: Prepared) -> dict[str, Any]:
    layout = prepared.layout
    ranks = [] if fault.rank in (None, ALL) else [fault.rank]
    if fault.kind == "imbalanced_pp_stage" and fault.stage is not None:
        ranks = [int(rank) for rank in layout.ranks(fault.stage)]
    last = prepared.steps - 1 if fault.last_step is None else min(fault.last_step, prepared.steps - 1)
    return {
        "kind": fault.kind,
        "spec": fault.text,
        "ranks": ranks,
        "stages": [] if fault.stage is None else [fault.stage],
        "links": [list(fault.link)] if fault.link else [],
        "op_type": fault.operator,
        "place": fault.place,
        "factor": fault.factor,
        "ms": fault.duration_ns / NS_PER_MS or None,
        "every": fault.every,
        "count": fault.count or None,
        "steps": [fault.first_step, last],
        "performance_fault": fault.costs_time,
    }


def _step_ns(prepared: Prepared, faults: Sequence[Fault]) -> int:
    """The mean step of the same plan and seed under other faults."""
    if list(faults) == list(prepared.faults):
        return round(fmean(prepared.durations_ns()))
    again = prepare(
        prepared.plan, faults, seed=prepared.disturbances.seed, steps=prepared.steps, ranks=prepared.ranks,
        calibration=prepared.calibration,
    )  # fmt: skip
    return round(fmean(again.durations_ns()))
