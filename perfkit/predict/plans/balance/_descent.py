"""Descent: a good layout within seconds, by moving one layer at a time from an even split.

Of all single moves the one that leaves the least memory over the limit is made, and of those the one with the shortest step, until
none is better. Recomputation follows the layers, as in `moves.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perfkit.predict.plans.balance.moves import LayerPlanner, Layers
from perfkit.predict.plans.balance.problem import Layout


def descend(planner: LayerPlanner, layers: Layers, go_on: Callable[[], bool]) -> Layout:
    """The layout at the end of the descent from `layers`; it may still not fit. `go_on` returning False ends it early."""
    layout = planner.layout(layers)
    best = _rank(planner, layout[None])[0]
    while go_on():
        _, _, moved = planner.single_moves(layers)
        if not len(moved):
            break
        layouts = planner.layouts(moved)
        ranks = _rank(planner, layouts)
        leader = min(range(len(ranks)), key=ranks.__getitem__)
        if ranks[leader] >= best:
            break
        best, layers, layout = ranks[leader], moved[leader].tolist(), layouts[leader]
    return layout


def _rank(planner: LayerPlanner, layouts: Layout) -> list[tuple[int, int]]:
    """(bytes over the limit, makespan) of every layout."""
    limit = planner.problem.memory_limit_bytes
    makespans_ns = planner.evaluator.makespans_ns(layouts)
    if limit is None:
        over = np.zeros(len(layouts), dtype=np.int64)
    else:
        over = np.clip(planner.evaluator.peaks_bytes(layouts) - limit, 0, None).sum(axis=1)
    return list(zip(over.tolist(), makespans_ns.tolist(), strict=True))
