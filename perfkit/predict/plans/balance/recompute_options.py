"""What recomputing each operator of a layer frees and costs: the trade that selective recomputation is about.

Bytes are those of the memory model: a tensor goes when the operator that makes it is repeated. Seconds are those of the step model:
its layer with the repeated operators, less its layer without. A product repeats its forward pass, attention its kernel, and
everything else reads its inputs and writes its output once more (`perfkit.predict.cost.again`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.stage_layers import stage_layers
from perfkit.predict.cost.work_columns import micro_batch_work
from perfkit.predict.memory import activations
from perfkit.predict.memory.settings import MemorySettings, settings_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One operator by its path: bytes a layer keeps less of one micro batch when it is repeated, and the seconds that takes."""

    path: str
    saved_bytes: float
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """Bytes freed for every second; infinite where the repeat is only a view."""
        return self.saved_bytes / self.seconds if self.seconds else float("inf")


def operator_options(
    plan: Plan, paths: Sequence[str], efficiency: Efficiency, settings: MemorySettings | None = None
) -> list[Option]:
    """Every path that frees memory when it alone is repeated, most bytes a second first. The plan must name a device."""
    settings = settings or settings_for(plan)
    experts = plan.model.num_experts > 0
    tensors = activations.layer_tensors(plan, settings, experts=experts)
    whole = sum(activations.kept_bytes(tensors).values())
    freeing = []
    for path in paths:
        saved = whole - sum(activations.kept_bytes(tensors, [path.replace(".", r"\.")]).values())
        if saved > 0:
            freeing.append((path, saved))
    times = again_s(plan, efficiency, [[path.replace(".", r"\.")] for path, _ in freeing])
    found = [Option(path=path, saved_bytes=saved, seconds=own) for (path, saved), own in zip(freeing, times, strict=True)]
    # A cell and the only operator in it are one choice: the path that comes first stays.
    alike = [option for option in found if not any(option.path.startswith(f"{other.path}.") for other in found)]
    return sorted(alike, key=lambda option: (-option.bytes_per_s, -option.saved_bytes, option.path))


def independent(plan: Plan, options: Sequence[Option], settings: MemorySettings | None = None) -> list[Option]:
    """The options that free tensors of their own, each with what it frees beyond those before it."""
    found: list[Option] = []
    patterns: list[str] = []
    before = 0.0
    for option in options:
        together = saved_bytes(plan, [*patterns, option.path.replace(".", r"\.")], settings)
        if together > before:
            found.append(replace(option, saved_bytes=together - before))
            patterns.append(option.path.replace(".", r"\."))
            before = together
    return found


def saved_bytes(
    plan: Plan, patterns: Sequence[str], settings: MemorySettings | None = None, *, communication: bool = False
) -> float:
    """Bytes that a layer keeps less of one micro batch with these patterns together."""
    tensors = activations.layer_tensors(plan, settings or settings_for(plan), experts=plan.model.num_experts > 0)
    kept = activations.kept_bytes(tensors, patterns, gather_again=communication)
    return sum(activations.kept_bytes(tensors).values()) - sum(kept.values())


def full_option(plan: Plan, efficiency: Efficiency, settings: MemorySettings | None = None) -> Option:
    """Repeating the whole layer: all but its input is freed, for one more forward pass."""
    tensors = activations.layer_tensors(plan, settings or settings_for(plan), experts=plan.model.num_experts > 0)
    return Option(
        path="full layer",
        saved_bytes=sum(activations.kept_bytes(tensors).values()) - activations.layer_input(plan),
        seconds=_seconds(plan, efficiency, [RecomputePlan(all_layers=True)])[0],
    )


def again_s(plan: Plan, efficiency: Efficiency, choices: Sequence[Sequence[str]], *, communication: bool = False) -> list[float]:
    """Seconds that a layer takes longer in the backward pass of one micro batch when it repeats what each choice of patterns names.

    With `communication` also the two all-gathers of sequence parallelism. The plan must name a device.
    """
    every = plan.stage_layers
    gathers = every if communication else ()
    plans = [RecomputePlan(operators=dict.fromkeys(patterns, every), communication=gathers) for patterns in choices]
    return _seconds(plan, efficiency, plans)


def _seconds(plan: Plan, efficiency: Efficiency, choices: Sequence[RecomputePlan]) -> list[float]:
    """What the mean layer computes again under each choice, which holds for all layers."""
    layers = micro_batch_work(costs_of([plan]), efficiency).layers
    each = np.concatenate([[0.0, *layer.again_s[:, 0]] for layer in layers])
    repeated = [stage_layers(PlanColumns.of([replace(plan, recompute=one)])).values[0].amounts.sum(axis=(1, 2)) for one in choices]
    return [float(amounts @ each) / plan.model.num_layers for amounts in repeated]
