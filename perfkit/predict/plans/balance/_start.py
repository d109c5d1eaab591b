"""Start: what a solve begins with: even layouts, a bound without a solver, and the step in which makespans can differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.predict.plans.balance._evaluator import Evaluator, Ints
from perfkit.predict.plans.balance._options import StageOptions
from perfkit.predict.plans.balance.problem import KINDS, Layout, layout_problems


def choice_of(options: Sequence[StageOptions], layout: Layout | None) -> list[int] | None:
    """The options that make up a layout; None if one of them is not listed."""
    if layout is None:
        return None
    chosen = []
    for stage, part in enumerate(options):
        same = np.flatnonzero((part.counts == layout[:, :, stage]).all(axis=(1, 2)))
        if not len(same):
            return None
        chosen.append(int(same[0]))
    return chosen


def even_layouts(evaluator: Evaluator) -> list[Layout]:
    """Even splits with each kind of recomputation everywhere, as far as they keep the order and the smallest chunk."""
    problem = evaluator.problem
    positions = problem.num_stages * problem.num_chunks
    borders = np.linspace(0, problem.num_layers, positions + 1).round().astype(np.int64)
    type_of_layer = np.repeat(np.arange(len(problem.body)), [part.count for part in problem.body])
    layouts = []
    for kind in KINDS:
        layout = np.zeros((len(problem.varieties), positions), dtype=np.int64)
        for row, variety in enumerate(problem.varieties):
            allowed = problem.body[variety.type].kinds
            if variety.kind == (kind if kind in allowed else next(iter(allowed))):
                own = np.concatenate([[0], np.cumsum(type_of_layer == variety.type)])
                layout[row] = np.diff(own[borders])
        shaped = layout.reshape(len(layout), problem.num_chunks, problem.num_stages)
        if not layout_problems(problem, shaped):
            layouts.append(shaped)
    return layouts


def time_grain_ns(evaluator: Evaluator) -> int:
    """The greatest common divisor of all times."""
    problem = evaluator.problem
    arrays: list[Ints] = [evaluator.fwd_ns, evaluator.bwd_ns, evaluator.wgrad_ns]
    arrays += [evaluator.fixed[name].reshape(-1) for name in ("fwd_ns", "bwd_ns", "wgrad_ns")]
    hop_ns = 0 if problem.p2p_mode == "none" else problem.p2p_ns
    return int(np.gcd.reduce(np.concatenate([*arrays, np.array([hop_ns], dtype=np.int64)])))


def work_bound_ns(evaluator: Evaluator) -> float:
    """All work without recomputation, shared evenly by the stages."""
    problem = evaluator.problem
    least = sum(part.count * part.least_work_ns(first=True) for part in problem.body)
    fixed = sum(int(evaluator.fixed[name].sum()) for name in ("fwd_ns", "bwd_ns", "wgrad_ns"))
    return problem.num_microbatches * (least + fixed) / problem.num_stages
