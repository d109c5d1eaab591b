"""Balance: layers and recomputation for every stage of a pipeline so that the step is shortest and every stage fits, with a proof.

Every directed path of a schedule is a lower bound of its makespan that is linear in the chunk times, and the makespan is the
longest of them. So a model over the options of the stages with some of the paths gives a bound that holds for every layout;
simulating its answer gives a makespan that is reached. Where they differ, the path that decided the simulation joins the model and
it is solved again. What counts is simulated in whole nanoseconds; the solver contributes choices and the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.core.errors import InputError
from perfkit.core.units import format_bytes, format_ns, format_ratio
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._feasible import least_peak_layout, whole_mib
from perfkit.predict.plans.balance._solve import Ended, Solver
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.problem import Layout, PipelineProblem, kind_counts, layers_of, layout_problems
from perfkit.predict.plans.schedule.schedule import ScheduleCase, ScheduleResult, simulate_schedule

MAX_TIME_S = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceProgress:
    """Where a solve stands; `best_ns` None until a layout that fits is known."""

    what: str
    rounds: int
    bound_ns: int
    best_ns: int | None
    seconds: float

    def told(self) -> str:
        """What is done, the best layout and the bound, in words."""
        if self.best_ns is None:
            return f"{self.what}, no layout yet"
        gap = (self.best_ns - self.bound_ns) / self.best_ns if self.best_ns else 0.0
        best, bound = format_ns(self.best_ns, 4), format_ns(self.bound_ns, 4)
        return f"{self.what}: best {best}, bound {bound}, gap {format_ratio(gap)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanResult:
    """The best layout found, how long its step takes, and a makespan that no layout can beat.

    `status`: "optimal"; "time_limit" (also after a cancel), "stalled" and "heuristic" leave a gap; "infeasible" has no layout but
    the smallest whole-MiB limit that works and the stage that binds there.
    """

    problem: PipelineProblem
    status: str
    layout: Layout | None
    makespan_ns: int | None
    bound_ns: int | None
    peak_bytes: tuple[int, ...] = ()
    num_cuts: int = 0
    rounds: int = 0
    seconds: float = 0.0
    smallest_feasible_limit_mib: int | None = None
    binding_stage: int | None = None

    @property
    def gap(self) -> float | None:
        """(makespan - bound) / makespan; 0 when the layout is proven optimal."""
        if self.makespan_ns is None or self.bound_ns is None:
            return None
        return (self.makespan_ns - self.bound_ns) / self.makespan_ns if self.makespan_ns else 0.0

    def simulate(self) -> ScheduleResult:
        """The schedule of the layout."""
        return simulate_schedule(schedule_case(self.problem, self._layout()))

    def why(self) -> str:
        """What decides the makespan and how good it is, in sentences."""
        return explain(self)

    def told(self) -> tuple[str, ...]:
        """`why`, and what an early end leaves open."""
        early = ("The search ended early; allow more time to close the gap. The bound holds either way.",)
        return self.why(), *(early if self.status == "time_limit" and self.layout is not None else ())

    def to_dict(self) -> dict[str, Any]:
        """The result as `perfkit balance --json` prints it."""
        answer: dict[str, Any] = {
            "status": self.status,
            "makespan_ns": self.makespan_ns,
            "bound_ns": self.bound_ns,
            "gap": self.gap,
            "memory_limit_bytes": self.problem.memory_limit_bytes,
            "memory_limit_source": self.problem.memory_limit_source or None,
            "why": self.why(),
        }
        if self.layout is None:
            return {
                **answer,
                "smallest_feasible_limit_mib": self.smallest_feasible_limit_mib,
                "binding_stage": self.binding_stage,
            }
        return {
            **answer,
            "layers": layers_of(self.layout),
            "kind_counts": kind_counts(self.problem, self.layout),
            "peak_bytes": list(self.peak_bytes),
            "schedule": {"name": self.problem.schedule, "bubble_over_work": self.simulate().bubble_over_work},
            "cuts": self.num_cuts,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
            "assumptions": list(self.problem.assumptions),
        }

    def _layout(self) -> Layout:
        if self.layout is None:
            raise ValueError("an infeasible problem has no layout")
        return self.layout


def time_problems(time_limit_s: float) -> list[str]:
    """What is wrong with a limit of time."""
    return [] if 0 <= time_limit_s <= MAX_TIME_S else [f"time_limit_s = {time_limit_s} must be 0 to {MAX_TIME_S} seconds"]


def balance(
    case: PipelineProblem | str | Path,
    *,
    time_limit_s: float = 60.0,
    progress: Callable[[BalanceProgress], bool | None] | None = None,
    start: Layout | None = None,
) -> PlanResult:
    """The best layout of a problem, or of a `perfkit.plans.plan/1` file, that `time_limit_s` allows to find and prove.

    `start` is a layout to improve on. `progress` is called now and then; when it returns False, the best layout so far comes back.
    """
    if problems := time_problems(time_limit_s):
        raise InputError("balance", problems)
    problem = case if isinstance(case, PipelineProblem) else read_problem(case)
    evaluator = Evaluator(problem)

    def report(ended: Ended) -> bool:
        if progress is None:
            return True
        shown = BalanceProgress(
            what=ended.what, rounds=ended.rounds, bound_ns=ended.bound_ns, best_ns=ended.best_ns, seconds=ended.seconds
        )
        return progress(shown) is not False

    solver = Solver(evaluator, time_limit_s, report)
    if start is not None and not layout_problems(problem, start):
        solver.consider(start)
    lean, proven = least_peak_layout(evaluator, time_limit_s)
    if lean is not None:
        solver.consider(lean)
        limit, least = problem.memory_limit_bytes, evaluator.least_peaks_bytes(lean)
        if solver.best is None and limit is not None and least.max() > limit:
            return _infeasible(evaluator, lean, "infeasible" if proven else "time_limit")
    ended = solver.solve()
    layout = solver.best
    if layout is None and lean is not None:
        return _infeasible(evaluator, lean, ended.status)
    return PlanResult(
        problem=problem,
        status=ended.status,
        layout=layout,
        makespan_ns=None if ended.best_ns is None else ended.best_ns + problem.closing_ns,
        bound_ns=ended.bound_ns + problem.closing_ns,
        peak_bytes=() if layout is None else tuple(evaluator.peaks_bytes(layout[None])[0].tolist()),
        num_cuts=ended.num_cuts,
        rounds=ended.rounds,
        seconds=ended.seconds,
    )


def _infeasible(evaluator: Evaluator, lean: Layout, status: str) -> PlanResult:
    """No layout fits, or none was found that does."""
    peaks = evaluator.peaks_bytes(lean[None])[0]
    return PlanResult(
        problem=evaluator.problem,
        status=status,
        layout=None,
        makespan_ns=None,
        bound_ns=None,
        smallest_feasible_limit_mib=whole_mib(int(peaks.max())),
        binding_stage=int(peaks.argmax()),
    )


def schedule_case(problem: PipelineProblem, layout: Layout) -> ScheduleCase:
    """The stage times of a layout, to simulate or draw."""
    times = Evaluator(problem).chunk_times_ns(layout[None])[0]
    forward, backward, weight = (tuple(tuple(row) for row in rows) for rows in times.tolist())
    return ScheduleCase(
        schedule=problem.schedule,
        num_stages=problem.num_stages,
        num_chunks=problem.num_chunks,
        num_microbatches=problem.num_microbatches,
        fwd_ns=forward,
        bwd_ns=backward,
        wgrad_ns=weight if problem.schedule == "zbh1" else None,
        p2p_ns=problem.p2p_ns,
        p2p_mode=problem.p2p_mode,
    )


def layout_peaks_bytes(problem: PipelineProblem, layout: Layout) -> tuple[int, ...]:
    """The memory peak of every stage of a layout."""
    return tuple(Evaluator(problem).peaks_bytes(layout[None])[0].tolist())


def explain(result: PlanResult) -> str:
    """The result in sentences: makespan and proof, the stage that decides it, memory, recomputation."""
    problem, limit = result.problem, result.problem.memory_limit_bytes
    if result.layout is None or result.makespan_ns is None:
        return (
            f"No layout fits into {format_bytes(limit)}: the smallest limit that works is {result.smallest_feasible_limit_mib} "
            f"MiB; there stage {result.binding_stage} is full. Kinds of recomputation that are not allowed yet, more stages, "
            f"sharding the optimizer or a smaller micro batch lower it."
        )
    simulated = result.simulate()
    text = f"The step takes {format_ns(result.makespan_ns, 4)}; "
    if result.status == "optimal":
        text += "no layout is faster. "
    else:
        text += f"no layout can be faster than {format_ns(result.bound_ns, 4)}, which leaves a gap of {format_ratio(result.gap)}. "
    busiest = int(np.argmax(simulated.stage_busy_ns))
    text += (
        f"Stage {busiest} works longest, {format_ratio(simulated.stage_busy_ns[busiest] / result.makespan_ns)} of the step; "
        f"the bubble is {format_ratio(simulated.bubble_over_work)} of the work. "
    )
    again = sum(int(rows.sum()) for variety, rows in zip(problem.varieties, result.layout, strict=True) if variety.kind != "none")
    text += f"{again} of {problem.num_layers} layers are recomputed in some way. "
    fullest = int(np.argmax(result.peak_bytes))
    text += f"Stage {fullest} needs most memory, {format_bytes(result.peak_bytes[fullest])}"
    return text + (f" of {format_bytes(limit)}." if limit is not None else ".")
