"""Strategy search: every way to divide a model over devices, estimated; the best, the front of time and memory, why others lost.

    result = search_plans("pretrain.yaml", devices=64, memory_limit_bytes=58 * GIB, hardware="Ascend-910B2")
    result.plans[0].plan.write("best.yaml")

Estimates are those of `perfkit.estimate`, computed in columns. Strategies that only fit with recomputation get it in a second pass:
the fewest layers of every stage that fit.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import joined, say
from perfkit.predict.calibration import Calibration, calibration
from perfkit.predict.limits import limit_of
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.plans.search._search_columns import Evaluated, Progress, best_of_divisions, evaluate, ranked
from perfkit.predict.plans.search._search_guide import guide_row
from perfkit.predict.plans.search._search_space import Choices, base_plan, refuse_empty, space_of
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.pareto import pareto_front
from perfkit.predict.plans.search.search_result import FrontPoint, Nearest, RankedPlan, SearchResult
from perfkit.predict.plans.search.search_scores import Scored, Scores, Variant
from perfkit.predict.plans.search.search_text import why

REFINED = 24
"""Strategies that get the second pass, the most promising first."""
NO_CHOICES: Choices = MappingProxyType({})


def search_plans(
    plan: Plan | str | Path,
    *,
    devices: int | None = None,
    global_batch_size: int | None = None,
    largest_tensor: int | None = None,
    memory_limit_bytes: float | str | None = None,
    limit_source: str = "memory_limit_bytes",
    top: int = 10,
    progress: Progress | None = None,
    choices: Choices = NO_CHOICES,
    hardware: HardwareSpec | str | None = None,
    calibration: str | Calibration | None = None,
    scored: Scored | None = None,
) -> SearchResult:
    """Search the strategies for the model, batch and optimizer of `plan` (or of a configuration file).

    `devices`, the batch and the limit are those of the plan and its device unless given (`perfkit.predict.limits.with_limit`;
    `limit_source` says who asks for it); tensor parallel stays within a node unless `largest_tensor` says otherwise.
    `choices` replaces what may be chosen by dimension: tp, cp, pp, vpp, ep, mbs (micro batch), copies, zero
    (0 to 3), shard (devices that share; 0: all), sp (0, 1) and recompute ("none", "selective", "full"). `progress(what, done,
    total)` may return False to stop with what was found so far. `scored` keeps what was found for the next search, which is far
    faster if only the limit or the sizes of tp differ.
    Raises InputError with all contradictions, or with all reasons where no strategy keeps the rules. If none fits the memory,
    `plans` is empty and `nearest` says what is missing.
    """
    start = time.perf_counter()
    base, count = base_plan(
        plan,
        devices=devices,
        memory_limit=(memory_limit_bytes, limit_source),
        global_batch_size=global_batch_size,
        top=top,
        hardware=hardware,
        choices=choices,
    )
    usable = limit_of(base)
    limit = float(usable.limit_bytes or 0)
    known, settings = _known(calibration), settings_for(base)
    space = space_of(base, count, choices, settings, largest_tensor)
    plans = StrategyPlans(base=base, space=space)
    scores = (scored or Scored()).scores(plans, settings, known)
    strategies = scores.strategies
    refuse_empty(space, strategies)
    found = evaluate(scores, limit_bytes=limit, progress=progress)
    refined = _refined(scores, found, top)
    listed = _ranked(scores, _best(scores, found, refined, top), limit)
    fits = int(found.fits.sum())
    shortest = min((item.estimate.step_time_s for item in listed), default=float("nan"))
    return SearchResult(
        devices=count,
        memory_limit=usable,
        calibration=known,
        space=space,
        searched=strategies.searched,
        evaluated=len(strategies),
        feasible=fits,
        refined=len(refined),
        complete=not found.stopped.any(),
        close=int((found.seconds[found.fits] <= shortest * known.interval[1]).sum()),
        plans=listed,
        pareto=_front(scores, found, refined),
        rejected=MappingProxyType(found.rejected()),
        suggestion=_suggestion(scores, found, listed),
        nearest=None if fits else _nearest(scores, found),
        seconds=time.perf_counter() - start,
        _found=found,
        _strategies=plans,
    )


Refined = tuple[Variant, float, int]
"""A strategy with the least recomputation that fits, its seconds a step and its bytes at the peak."""


def _known(chosen: str | Calibration | None) -> Calibration:
    return chosen if isinstance(chosen, Calibration) else calibration(chosen or "default")


def _refined(scores: Scores, found: Evaluated, top: int) -> list[Refined]:
    """The second pass, for divisions that it may make faster than the best that is known of them."""
    columns, tight = found.strategies.columns, found.tight
    if not len(tight):
        return []
    lean, full = found.peak[tight], found.peak[tight + 1]
    share = np.clip((lean - found.limit_bytes) / np.maximum(lean - full, 1.0), 0.0, 1.0)
    expected = found.seconds.copy()
    expected[tight] += share * (found.seconds[tight + 1] - found.seconds[tight])
    rows = np.concatenate((np.flatnonzero(found.fits), tight))
    order = best_of_divisions(columns, ranked(columns, rows, expected, found.peak))
    chosen = [int(row) for row in order[: max(REFINED, 2 * top)] if not found.fits[row]][:REFINED]
    fitted = [done for row in chosen if (done := scores.refined(row, found.limit_bytes)) is not None]
    seconds = scores.step_seconds([variant for variant, _ in fitted])
    return [(variant, step_s, peak) for (variant, peak), step_s in zip(fitted, seconds, strict=True)]


def _best(scores: Scores, found: Evaluated, refined: list[Refined], top: int) -> list[Variant]:
    """The fastest plan of every division, at most `top`."""
    columns = found.strategies.columns
    fitting = best_of_divisions(columns, ranked(columns, np.flatnonzero(found.fits), found.seconds, found.peak))
    seconds = found.seconds.copy()
    for variant, step_s, _ in refined:
        seconds[variant.row] = step_s
    variants = {variant.row: variant for variant, _, _ in refined}
    rows = np.concatenate((fitting, np.array(list(variants), dtype=np.intp)))
    rows = best_of_divisions(columns, ranked(columns, rows, seconds, found.peak))[:top]
    return [variants.get(row) or scores.variant(row) for row in rows.tolist()]


def _ranked(scores: Scores, best: list[Variant], limit_bytes: float) -> tuple[RankedPlan, ...]:
    if not best:
        return ()
    estimates = scores.estimates(best)
    shortest, shares = estimates[0], cache(lambda: scores.win_shares(best))
    return tuple(
        RankedPlan(
            plan=variant.plan,
            estimate=predicted,
            why=why(predicted, shortest, rank, limit_bytes),
            within_interval=predicted.step_time_s <= shortest.interval_s[1],
            _shares=shares,
            _place=rank - 1,
        )
        for rank, (variant, predicted) in enumerate(zip(best, estimates, strict=True), 1)
    )


def _front(scores: Scores, found: Evaluated, refined: list[Refined]) -> tuple[FrontPoint, ...]:
    """The front over all strategies that fit and those of the second pass."""
    rows = np.flatnonzero(found.fits)
    times = np.concatenate((found.seconds[rows], [step_s for _, step_s, _ in refined]))
    sizes = np.concatenate((np.rint(found.peak[rows]), [peak for _, _, peak in refined]))
    points = []
    for index in pareto_front(times, sizes).tolist():
        plan = scores.plan(int(rows[index])) if index < len(rows) else refined[index - len(rows)][0].plan
        points.append(
            FrontPoint(
                plan=plan,
                step_time_s=float(times[index]),
                tokens_per_s_per_device=plan.tokens_per_step / plan.num_devices / float(times[index]),
                peak_memory_bytes=int(sizes[index]),
            )
        )
    return tuple(points)


def _suggestion(scores: Scores, found: Evaluated, listed: tuple[RankedPlan, ...]) -> tuple[str, RankedPlan] | None:
    """The guides' rule with its plan, beside the best one."""
    rule = guide_row(scores.plans.base.model, found.strategies, found.peak, found.limit_bytes)
    if rule is None:
        return None
    variant = scores.variant(rule[1])
    (predicted,) = scores.estimates([variant])
    best = listed[0].estimate if listed else predicted
    over = (predicted.peak_memory_bytes or 0) > found.limit_bytes
    suggested = RankedPlan(
        plan=variant.plan,
        estimate=predicted,
        why=joined([why(predicted, best, 2 if listed else 1, found.limit_bytes), say("It does not fit.") if over else ""]),
        within_interval=predicted.step_time_s <= best.interval_s[1],
    )
    return rule[0], suggested


def _nearest(scores: Scores, found: Evaluated) -> Nearest:
    variant = scores.variant(int(np.argmin(found.peak)))
    (predicted,) = scores.estimates([variant])
    parts = (predicted.memory or peak_memory(variant.plan).peak).collapse(2)
    return Nearest(plan=variant.plan, estimate=predicted, missing_bytes=round(parts.total - found.limit_bytes), parts=parts)
