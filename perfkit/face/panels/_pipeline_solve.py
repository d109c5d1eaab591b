"""Pipeline solve: the solver behind page 06, with its progress, a cancel that keeps the best layout, and answers remembered."""

from __future__ import annotations

from collections import OrderedDict

from perfkit.core.units import format_ns, format_ratio
from perfkit.face.widgets.worker import Cancelled, Progress
from perfkit.predict.plans.balance.balance import BalanceProgress, PlanResult, balance
from perfkit.predict.plans.balance.problem import PipelineProblem

_ENDS = ("optimal", "infeasible")
"""Answers that more time would not change."""
_KEPT = 16
_solved: OrderedDict[str, PlanResult] = OrderedDict()


def solve(problem: PipelineProblem, time_limit_s: int, progress: Progress | None) -> PlanResult:
    """The best layout, from memory if this problem was solved before, for as long or to the end; a cancelled solve is not kept."""
    key = str(problem)
    if key in _solved and (_solved[key].status in _ENDS or _solved[key].seconds >= time_limit_s):
        return _solved[key]
    superseded = False

    def tick(now: BalanceProgress) -> bool:
        nonlocal superseded
        if progress is None:
            return True
        try:
            progress(_progress_text(now), min(int(now.seconds), time_limit_s), time_limit_s, unit="s")
        except Cancelled:
            superseded = not progress.heed()
            return False
        return True

    result = balance(problem, time_limit_s=time_limit_s, progress=tick)
    if superseded:
        raise Cancelled
    if result.status in _ENDS or result.seconds >= time_limit_s:
        _solved[key] = result
        while len(_solved) > _KEPT:
            _solved.popitem(last=False)
    return result


def _progress_text(now: BalanceProgress) -> str:
    if now.best_ns is None:
        return f"{now.what}, no layout yet"
    gap = (now.best_ns - now.bound_ns) / now.best_ns if now.best_ns else 0.0
    return f"{now.what}: best {format_ns(now.best_ns, 5)}, bound {format_ns(now.bound_ns, 5)}, gap {format_ratio(gap, 2)}"
