"""Planned: what the plan of a run says that its steps cost, so that a rule does not call a fault what was asked for.

A run that is known to be of a plan is judged by what is beyond the plan's prediction. Whether another plan were better is the
matter of the pages that compare plans.
"""

from __future__ import annotations

from perfkit.core.units import NS_PER_S
from perfkit.explain.diagnose.case import Case
from perfkit.predict.cost.again import layers_again
from perfkit.predict.estimate import estimate

AS_PLANNED = 1.1
"""Up to this many times the predicted amount is what was planned."""


def predicted_ns(case: Case, *paths: str) -> float | None:
    """What the prediction of the run's plan has at some paths of its breakdown, in ns; None without a plan or its device."""
    plan = case.run.plan
    if plan is None or plan.hardware is None:
        return None
    parts = estimate(plan).breakdown
    return NS_PER_S * sum(float(parts.amount(path)) for path in paths)


def recomputed_ratio(case: Case) -> float:
    """The share of layers on the recorded stages whose attention the run's plan computes again; 0 without a plan."""
    plan, placed = case.run.plan, case.run.placement
    if plan is None:
        return 0.0
    recorded = {placed[rank].pipeline for rank in case.run.ranks if rank in placed}
    stages = [runs for row in layers_again(plan) for stage, runs in enumerate(row) if not recorded or stage in recorded]
    layers = [(count, max(again.full, again.core)) for runs in stages for count, again in runs]
    return sum(count * share for count, share in layers) / max(1, sum(count for count, _ in layers))


def layers_over_mean(case: Case) -> float | None:
    """How many times the mean the fullest stage of the run's plan has in layers; None without a plan."""
    plan = case.run.plan
    if plan is None:
        return None
    layers = [sum(chunks) for chunks in zip(*plan.stage_layers, strict=True)]
    return float(max(layers) * len(layers) / sum(layers))


def replicas(case: Case) -> int | None:
    """The data parallel size that the plan or the run states."""
    if case.run.plan is not None:
        return case.run.plan.parallel.data_parallel_size
    fact = case.run.facts.get("data_parallel_size")
    return int(fact.value) if fact is not None and isinstance(fact.value, int) else None
