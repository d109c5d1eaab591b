"""Plans laid out anew: other parallel sizes, with what layers recompute where it was."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan


def relaid(plan: Plan, **sizes: Any) -> Plan:
    """The plan with other fields of its `ParallelPlan` (`resized`), its counts of layers as `respread` has them.

    Raises InputError with what the new plan contradicts.
    """
    after = replace(plan, parallel=resized(plan.parallel, **sizes), recompute=RecomputePlan())
    return replace(after, recompute=respread(plan.recompute, plan.stage_layers, after.stage_layers))


def resized(parallel: ParallelPlan, **sizes: Any) -> ParallelPlan:
    """Other sizes of groups: a layout by hand stays as long as its stages and chunks do, else layers are split evenly."""
    shape = ("pipeline_parallel_size", "virtual_pipeline_parallel_size")
    if any(sizes.get(name, getattr(parallel, name)) != getattr(parallel, name) for name in shape):
        sizes = {"layers_per_stage": None, **sizes}
    return replace(parallel, **sizes)


def respread(recompute: RecomputePlan, before: Counts, after: Counts) -> RecomputePlan:
    """What layers recompute or swap, in a layout of as many layers by chunk and stage.

    Every layer takes along the share of its old stage: of 20 layers of which 5 are recomputed, 10 have 2.5, which is 3.
    """
    if before == after:
        return recompute

    def spread(counts: Counts) -> Counts:
        return _spread(counts, before, after) if counts else ()

    full, swapped = spread(recompute.full_layers), spread(recompute.swapped_layers)
    if full and swapped:
        # Both are rounded up at one half, and a layer is not both.
        swapped = tuple(
            tuple(min(count, layers - taken) for count, layers, taken in zip(*rows, strict=True))
            for rows in zip(swapped, after, full, strict=True)
        )
    return replace(
        recompute,
        full_layers=full,
        operators={pattern: spread(counts) for pattern, counts in recompute.operators.items()},
        communication=spread(recompute.communication),
        swapped_layers=swapped,
    )


def _spread(counts: Counts, before: Counts, after: Counts) -> Counts:
    shares = [
        Fraction(count, layers)
        for row, held in zip(counts, before, strict=True)
        for count, layers in zip(row, held, strict=True)
        for _ in range(layers)
    ]
    places = iter(shares)
    return tuple(tuple(floor(sum(next(places) for _ in range(layers)) + Fraction(1, 2)) for layers in row) for row in after)
