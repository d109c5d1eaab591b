"""Refining: the fewest fully recomputed layers of every stage with which a plan fits."""

from __future__ import annotations

from dataclasses import replace

from perfkit.calc._memory_layout import stage_layers
from perfkit.calc._memory_settings import MemorySettings
from perfkit.calc.memory import peak_memory
from perfkit.spec.plan import Plan
from perfkit.spec.recompute import Counts


def least_recompute(plan: Plan, limit_bytes: float, settings: MemorySettings) -> Plan | None:
    """`plan` with the fewest layers recomputed in full on every stage that fit the limit; None if not even all do.

    Layers are taken from the first chunk on, whose activations wait longest. Stages do not depend on one another, so that one
    bisection serves all of them. Megatron has one number for the chunks of all stages: the least that fits.
    """
    layers = stage_layers(plan)
    if settings.framework == "megatron":
        return _least_alike(plan, max(max(row) for row in layers), limit_bytes, settings)
    totals = [sum(row[stage] for row in layers) for stage in range(plan.parallel.pipeline_parallel_size)]
    low = [0 if fits else 1 for fits in _fits(plan, [0] * len(totals), limit_bytes, settings)]
    high = [total if first else 0 for first, total in zip(low, totals, strict=True)]
    if not all(_fits(plan, high, limit_bytes, settings)):
        return None
    while any(least < most for least, most in zip(low, high, strict=True)):
        middle = [(least + most) // 2 for least, most in zip(low, high, strict=True)]
        for stage, fits in enumerate(_fits(plan, middle, limit_bytes, settings)):
            if low[stage] < high[stage]:
                low[stage], high[stage] = (low[stage], middle[stage]) if fits else (middle[stage] + 1, high[stage])
    return _with_full(plan, high)


def _least_alike(plan: Plan, most: int, limit_bytes: float, settings: MemorySettings) -> Plan | None:
    """The same number of layers of every chunk and stage."""
    low, high = 0, most
    if not peak_memory(_alike(plan, most), settings=settings).fits(limit_bytes):
        return None
    while low < high:
        middle = (low + high) // 2
        fits = peak_memory(_alike(plan, middle), settings=settings).fits(limit_bytes)
        low, high = (low, middle) if fits else (middle + 1, high)
    return _alike(plan, high)


def _alike(plan: Plan, full: int) -> Plan:
    counts: Counts = tuple(tuple(min(full, count) for count in row) for row in stage_layers(plan)) if full else ()
    return replace(plan, recompute=replace(plan.recompute, full_layers=counts))


def _fits(plan: Plan, full: list[int], limit_bytes: float, settings: MemorySettings) -> list[bool]:
    stages = peak_memory(_with_full(plan, full), settings=settings).stages
    return [stage.total <= limit_bytes for stage in stages]


def _with_full(plan: Plan, full: list[int]) -> Plan:
    """`full[stage]` layers of every stage recomputed, from the first chunk on."""
    left, rows = list(full), []
    for row in stage_layers(plan):
        taken = tuple(min(count, rest) for count, rest in zip(row, left, strict=True))
        left = [rest - count for rest, count in zip(left, taken, strict=True)]
        rows.append(taken)
    counts: Counts = tuple(rows) if any(map(any, rows)) else ()
    return replace(plan, recompute=replace(plan.recompute, full_layers=counts))
