"""Refining: the fewest fully recomputed layers of every stage with which a plan fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import MemorySettings

GUESSES = 3
"""Guesses by how bytes fall with the layers, before what is left is halved."""
StageTotals = dict[tuple[int, int], int]
"""Bytes of a stage at its peak with some layers recomputed, as far as they were asked for: by (stage, layers)."""


def least_full(plan: Plan, limit_bytes: float, settings: MemorySettings, known: StageTotals) -> tuple[int, ...] | None:
    """The fewest layers of every stage to recompute in full; for Megatron of every chunk of all stages, the same number.

    Layers are taken from the first chunk on, whose activations wait longest. Stages do not depend on one another, so that one
    search serves all of them. Megatron has one number for the chunks of all stages: the least that fits. `known` is filled.
    """
    layers, alike = plan.stage_layers, settings.framework == "megatron"
    stages = plan.parallel.pipeline_parallel_size
    most = [max(map(max, layers))] * stages if alike else [sum(row[stage] for row in layers) for stage in range(stages)]

    def fits(full: list[int]) -> list[bool]:
        if any(place not in known for place in enumerate(full)):
            found = peak_memory(with_full(plan, full, settings), settings=settings).stages
            known.update(zip(enumerate(full), (int(stage.total) for stage in found), strict=True))
        each = [known[place] <= limit_bytes for place in enumerate(full)]
        return [all(each)] * stages if alike else each

    low = [0 if fit else 1 for fit in fits([0] * stages)]
    high = [total if first else 0 for first, total in zip(low, most, strict=True)]
    if not all(fits(high)):
        return None
    tries = 0
    while any(least < most for least, most in zip(low, high, strict=True)):
        middle = [(least + most) // 2 for least, most in zip(low, high, strict=True)]
        if (tries := tries + 1) <= GUESSES:
            guesses = [_guess(known, *place, limit_bytes) for place in zip(range(stages), low, high, strict=True)]
            middle = [max(guesses)] * stages if alike else guesses
        for stage, fit in enumerate(fits(middle)):
            if low[stage] < high[stage]:
                low[stage], high[stage] = (low[stage], middle[stage]) if fit else (middle[stage] + 1, high[stage])
    return tuple(high)


def _guess(known: StageTotals, stage: int, low: int, high: int, limit_bytes: float) -> int:
    """Where the line through the bytes at both ends meets the limit: the fewest layers that fit, as bytes fall nearly evenly."""
    if low >= high:
        return high
    over, under = known[stage, low - 1], known[stage, high]
    share = (over - limit_bytes) / (over - under) if over > under else 0.5
    return min(max(low - 1 + math.ceil(share * (high - low + 1)), low), high - 1)


def with_full(plan: Plan, full: Sequence[int], settings: MemorySettings) -> Plan:
    """`full[stage]` layers of every stage recomputed, from the first chunk on; for Megatron of every chunk."""
    left, rows = list(full), []
    for row in plan.stage_layers:
        taken = tuple(min(count, rest) for count, rest in zip(row, left, strict=True))
        if settings.framework != "megatron":
            left = [rest - count for rest, count in zip(left, taken, strict=True)]
        rows.append(taken)
    counts: Counts = tuple(rows) if any(map(any, rows)) else ()
    return replace(plan, recompute=replace(plan.recompute, full_layers=counts))
