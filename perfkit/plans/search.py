"""Strategy search: every way to divide a model over devices, estimated; the best, the front of time and memory, why others lost.

    result = search_plans("pretrain.yaml", devices=64, memory_limit_bytes=58 * GIB, hardware="Ascend-910B2")
    result.plans[0].plan.write("best.yaml")

Estimates are those of `perfkit.estimate`, computed in columns. Strategies that only fit with recomputation get it in a second pass:
the fewest layers of every stage that fit.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import MappingProxyType

import numpy as np

from perfkit.calc._memory_settings import MemorySettings, settings_for
from perfkit.calc._plan_rows import plan_columns
from perfkit.calc.memory import peak_memory
from perfkit.calibration import Calibration, calibration
from perfkit.estimate import Estimate, estimate
from perfkit.plans._search_columns import Evaluated, Progress, best_of_divisions, evaluate, ranked
from perfkit.plans._search_guide import guide_row
from perfkit.plans._search_refine import least_recompute
from perfkit.plans._search_sensitivity import win_shares
from perfkit.plans._search_space import Choices, base_plan, refuse_empty, space_of
from perfkit.plans._search_text import why
from perfkit.plans._strategy_plans import StrategyPlans
from perfkit.plans.pareto import pareto_front
from perfkit.plans.search_result import FrontPoint, Nearest, RankedPlan, SearchResult
from perfkit.plans.strategy_space import Columns, enumerate_strategies
from perfkit.spec.hardware import HardwareSpec
from perfkit.spec.plan import Plan

REFINED = 24
"""Strategies that get the second pass, the most promising first."""
NO_CHOICES: Choices = MappingProxyType({})


def search_plans(
    plan: Plan | str | Path,
    *,
    devices: int | None = None,
    memory_limit_bytes: float | None = None,
    top: int = 10,
    progress: Progress | None = None,
    choices: Choices = NO_CHOICES,
    hardware: HardwareSpec | str | None = None,
    calibration: str | Calibration | None = None,
) -> SearchResult:
    """Search the strategies for the model, batch and optimizer of `plan` (or of a configuration file).

    `devices` and `memory_limit_bytes` are those of the plan and its device unless given. `choices` replaces what may be chosen by
    dimension: tp, cp, pp, vpp, ep, mbs (micro batch), copies, zero (0 to 3), shard (devices that share; 0: all), sp (0, 1) and
    recompute ("none", "selective", "full"). `progress(what, done, total)` may return False to stop with what was found so far.
    Raises InputError with all contradictions, or with all reasons where no strategy keeps the rules. If none fits the memory,
    `plans` is empty and `nearest` says what is missing.
    """
    start = time.perf_counter()
    base, count, limit = base_plan(
        plan, devices=devices, memory_limit_bytes=memory_limit_bytes, top=top, hardware=hardware, choices=choices
    )
    known, settings = _known(calibration), settings_for(base)
    space = space_of(base, count, choices, settings)
    strategies = enumerate_strategies(space)
    refuse_empty(space, strategies)
    plans = StrategyPlans(base=base, space=space)
    found = evaluate(plans, strategies, known=known, settings=settings, limit_bytes=limit, progress=progress)
    refined = _refined(plans, found, settings, known, top)
    best = _best(plans, found, refined, known, top)
    listed = _ranked(plans, strategies.columns, best, known, limit)
    fits = int(found.fits.sum())
    shortest = min((item.estimate.step_time_s for item in listed), default=float("nan"))
    return SearchResult(
        devices=count,
        memory_limit_bytes=limit,
        space=space,
        searched=strategies.searched,
        evaluated=len(strategies),
        feasible=fits,
        refined=len(refined),
        complete=not found.stopped.any(),
        close=int((found.seconds[found.fits] <= shortest * known.interval[1]).sum()),
        plans=listed,
        pareto=_front(plans, found, refined),
        rejected=MappingProxyType(found.rejected()),
        suggestion=_suggestion(plans, found, known, listed),
        nearest=None if fits else _nearest(plans, found, known),
        seconds=time.perf_counter() - start,
        _found=found,
        _strategies=plans,
    )


Refined = tuple[int, Plan, Estimate]
"""A strategy's row, its plan with the least recomputation that fits, and the estimate of that."""


def _known(chosen: str | Calibration | None) -> Calibration:
    return chosen if isinstance(chosen, Calibration) else calibration(chosen or "default")


def _refined(plans: StrategyPlans, found: Evaluated, settings: MemorySettings, known: Calibration, top: int) -> list[Refined]:
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
    done = []
    for row in chosen:
        plan = least_recompute(plans.plan(plans.row(columns, row)), found.limit_bytes, settings)
        if plan is not None:
            done.append((row, plan, estimate(plan, calibration=known)))
    return done


def _best(plans: StrategyPlans, found: Evaluated, refined: list[Refined], known: Calibration, top: int) -> list[Refined]:
    """The fastest plan of every division, at most `top`."""
    columns = found.strategies.columns
    fitting = best_of_divisions(columns, ranked(columns, np.flatnonzero(found.fits), found.seconds, found.peak))
    seconds = found.seconds.copy()
    for row, _, predicted in refined:
        seconds[row] = predicted.step_time_s
    rows = np.concatenate((fitting, np.array([row for row, _, _ in refined], dtype=np.intp)))
    rows = best_of_divisions(columns, ranked(columns, rows, seconds, found.peak))[:top]
    known_plans = {row: (plan, predicted) for row, plan, predicted in refined}
    best = []
    for row in rows.tolist():
        if row in known_plans:
            best.append((row, *known_plans[row]))
        else:
            plan = plans.plan(plans.row(columns, row))
            best.append((row, plan, estimate(plan, calibration=known)))
    return best


def _ranked(
    plans: StrategyPlans, columns: Columns, best: list[Refined], known: Calibration, limit_bytes: float
) -> tuple[RankedPlan, ...]:
    if not best:
        return ()
    shortest = best[0][2]
    rows = np.array([row for row, _, _ in best])
    labels = plans.labels({name: values[rows] for name, values in columns.items()})
    shares = win_shares(plan_columns([plan for _, plan, _ in best]), known.efficiency(labels), known.interval)
    return tuple(
        RankedPlan(
            plan=plan,
            estimate=predicted,
            why=why(predicted, shortest, rank, limit_bytes),
            within_interval=predicted.step_time_s <= shortest.interval_s[1],
            win_share=float(share),
        )
        for rank, ((_, plan, predicted), share) in enumerate(zip(best, shares, strict=True), 1)
    )


def _front(plans: StrategyPlans, found: Evaluated, refined: list[Refined]) -> tuple[FrontPoint, ...]:
    """The front over all strategies that fit and those of the second pass."""
    columns, rows = found.strategies.columns, np.flatnonzero(found.fits)
    times = np.concatenate((found.seconds[rows], [predicted.step_time_s for _, _, predicted in refined]))
    sizes = np.concatenate((np.rint(found.peak[rows]), [predicted.peak_memory_bytes or 0 for _, _, predicted in refined]))
    points = []
    for index in pareto_front(times, sizes).tolist():
        plan = plans.plan(plans.row(columns, int(rows[index]))) if index < len(rows) else refined[index - len(rows)][1]
        points.append(
            FrontPoint(
                plan=plan,
                step_time_s=float(times[index]),
                tokens_per_s_per_device=plan.tokens_per_step / plan.num_devices / float(times[index]),
                peak_memory_bytes=int(sizes[index]),
            )
        )
    return tuple(points)


def _suggestion(
    plans: StrategyPlans, found: Evaluated, known: Calibration, listed: tuple[RankedPlan, ...]
) -> tuple[str, RankedPlan] | None:
    """The guides' rule with its plan, beside the best one."""
    rule = guide_row(plans.base.model, found.strategies, found.peak, found.limit_bytes)
    if rule is None:
        return None
    plan = plans.plan(plans.row(found.strategies.columns, rule[1]))
    predicted = estimate(plan, calibration=known)
    best = listed[0].estimate if listed else predicted
    over = (predicted.peak_memory_bytes or 0) > found.limit_bytes
    suggested = RankedPlan(
        plan=plan,
        estimate=predicted,
        why=why(predicted, best, 2 if listed else 1, found.limit_bytes) + (" It does not fit." if over else ""),
        within_interval=predicted.step_time_s <= best.interval_s[1],
        win_share=0.0,
    )
    return rule[0], suggested


def _nearest(plans: StrategyPlans, found: Evaluated, known: Calibration) -> Nearest:
    columns = found.strategies.columns
    plan = plans.plan(plans.row(columns, int(np.argmin(found.peak))))
    predicted = estimate(plan, calibration=known)
    parts = (predicted.memory or peak_memory(plan).peak).collapse(2)
    return Nearest(plan=plan, estimate=predicted, missing_bytes=round(parts.total - found.limit_bytes), parts=parts)
