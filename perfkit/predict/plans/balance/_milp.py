"""Milp: one option for every stage so that the longest of the known paths is shortest, solved by HiGHS.

Columns: T, the chunk times x[kind, chunk, stage], one binary for each option of each stage and, with several layer types, one for
each type and position. Rows: one option a stage; all layers of every type placed; x as the sum over the chosen options; the order
of types; and for every known path ("cut") T >= transfer time + sum of its operations. Fewer paths only make T smaller, so the
solver's bound is a bound of the true optimum. Inside the solver times are in a unit that makes T about 100 000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from perfkit.predict.plans.balance._evaluator import Ints
from perfkit.predict.plans.balance._options import StageOptions
from perfkit.predict.plans.balance.problem import PipelineProblem

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Masks = Sequence[Mask]
"""For every stage, which options are allowed."""
_NO_DUAL = 1e-9


class Cut(NamedTuple):
    """T >= comm_ns + sum of counts * chunk times; counts has shape (3, chunks, stages)."""

    counts: Ints
    comm_ns: int


@dataclass(frozen=True, eq=False)
class Answer:
    """A solver's end: chosen option of every stage (None without a solution), and a proven lower bound of the objective in ns."""

    chosen: list[int] | None
    bound_ns: float
    infeasible: bool = False
    interrupted: bool = False


class StoppedError(Exception):
    """A relaxation was not finished: it was interrupted, or the solver could not."""


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A relaxation's optimum in ns; for every stage the share of its options and what choosing one adds at least, in ns.

    `basis` lets another relaxation start from this one; None where that is no gain.
    """

    value_ns: float
    weights: list[Floats]
    costs_ns: list[Floats]
    basis: Any


class StageModel:
    """The model of one problem and its stages' options; cuts are added as they become known."""

    def __init__(self, problem: PipelineProblem, options: Sequence[StageOptions], unit_ns: float) -> None:
        self.problem, self.options, self.unit_ns = problem, list(options), unit_ns
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self.highs.silent()
        self.highs.setOptionValue("threads", 1)
        self.num_times = 3 * problem.num_chunks * problem.num_stages
        self.starts = np.cumsum([1 + self.num_times, *map(len, options)])
        self.num_options = sum(map(len, options))
        self._columns()
        self._rows()
        self.cuts: list[Cut] = []
        self._is_integral = False
        self._first_cut_row = self.highs.getNumRow()

    def add_cut(self, cut: Cut) -> None:
        """Add a path to the model."""
        counts = cut.counts.reshape(-1)
        used = np.flatnonzero(counts)
        index = np.concatenate([[0], 1 + used]).astype(np.int32)
        value = np.concatenate([[1.0], -counts[used].astype(np.float64)])
        self.highs.addRow(cut.comm_ns / self.unit_ns, highspy.kHighsInf, len(index), index, value)
        self.cuts.append(cut)

    def relaxation(self) -> tuple[float, Floats] | None:
        """The optimum without whole numbers, and the chunk times (3, chunks, stages) there, both in ns; None if there is none."""
        self._integral(on=False)
        self.highs.run()
        if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.array(self.highs.getSolution().col_value)
        shape = (3, self.problem.num_chunks, self.problem.num_stages)
        value_ns = float(self.highs.getInfo().objective_function_value) * self.unit_ns
        return value_ns, values[1 : 1 + self.num_times].reshape(shape) * self.unit_ns

    def tight_cuts(self) -> list[Cut]:
        """After `relaxation`: the cuts that hold its optimum up."""
        duals = np.abs(np.array(self.highs.getSolution().row_dual)[self._first_cut_row :])
        return [cut for cut, dual in zip(self.cuts, duals, strict=True) if dual > _NO_DUAL]

    def option_weights(self) -> list[Floats]:
        """After `relaxation`: the share of every option of every stage in its optimum."""
        values = np.array(self.highs.getSolution().col_value)
        return [values[start : start + len(options)] for start, options in zip(self.starts, self.options, strict=False)]

    def allow(self, masks: Masks) -> None:
        """Let only these options of every stage be chosen."""
        upper = np.concatenate(masks).astype(np.float64)
        columns = np.arange(self.starts[0], self.starts[-1], dtype=np.int32)
        self.highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)

    def drop_slack_cuts(self) -> list[Cut]:
        """After `relaxation`: remove the cuts that do not hold its optimum up, and give them back."""
        duals = np.abs(np.array(self.highs.getSolution().row_dual)[self._first_cut_row :])
        slack = np.flatnonzero(duals <= _NO_DUAL)
        self.highs.deleteRows(len(slack), (slack + self._first_cut_row).astype(np.int32))
        dropped = [self.cuts[index] for index in slack.tolist()]
        kept = np.flatnonzero(duals > _NO_DUAL).tolist()
        self.cuts = [self.cuts[index] for index in kept]
        return dropped

    def nearest(self, *, time_limit_s: float) -> list[int] | None:
        """After `relaxation`: whole options that keep as much of its weights as they can; no path counts here."""
        weights = np.concatenate(self.option_weights())
        model = StageModel(self.problem, self.options, self.unit_ns)
        columns = np.arange(self.starts[0], self.starts[-1], dtype=np.int32)
        model.highs.changeColsCost(len(columns), columns, -weights)
        quiet = model.solve(
            time_limit_s=time_limit_s, abs_gap_ns=0.0, start=None, on_tick=lambda _: True, on_solution=lambda _: None
        )
        return quiet.chosen

    def reduced_costs(self) -> list[Floats]:
        """After `relaxation`: what choosing an option adds to the optimum at least, in ns, for the options of every stage."""
        duals = np.array(self.highs.getSolution().col_dual)
        return [
            duals[start : start + len(options)] * self.unit_ns for start, options in zip(self.starts, self.options, strict=False)
        ]

    def solve(
        self,
        *,
        time_limit_s: float,
        abs_gap_ns: float,
        start: Sequence[int] | None,
        on_tick: Callable[[float], bool],
        on_solution: Callable[[list[int]], None],
    ) -> Answer:
        """Solve for whole options. `on_tick(bound_ns)` is called now and then; it stops the solver by returning False."""
        self._integral(on=True)
        highs, stopped = self.highs, False
        highs.setOptionValue("time_limit", max(0.01, time_limit_s))
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", abs_gap_ns / self.unit_ns)
        if start is not None:
            self._warm_start(start)

        def tick(event: Any) -> None:
            nonlocal stopped
            if not on_tick(float(event.data_out.mip_dual_bound) * self.unit_ns):
                stopped = True
                event.interrupt()

        def improved(event: Any) -> None:
            on_solution(self._chosen(np.array(event.data_out.mip_solution)))

        highs.cbMipInterrupt.subscribe(tick)
        highs.cbMipImprovingSolution.subscribe(improved)
        try:
            highs.run()
        finally:
            highs.clearCallbacks()  # type: ignore[no-untyped-call]
        return self._answer(stopped)

    def _answer(self, stopped: bool) -> Answer:
        status, info = self.highs.getModelStatus(), self.highs.getInfo()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return Answer(None, math.inf, infeasible=True)
        values = np.array(self.highs.getSolution().col_value)
        solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        late = stopped or status in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt)
        return Answer(self._chosen(values) if solved else None, float(info.mip_dual_bound) * self.unit_ns, interrupted=late)

    def _chosen(self, values: Floats) -> list[int]:
        return [
            int(values[start : start + len(options)].argmax()) for start, options in zip(self.starts, self.options, strict=False)
        ]

    def _warm_start(self, chosen: Sequence[int]) -> None:
        index = np.array([start + option for start, option in zip(self.starts, chosen, strict=False)], dtype=np.int32)
        zeros = np.setdiff1d(np.arange(self.starts[0], self.starts[-1]), index)
        self.highs.setSolution(
            len(index) + len(zeros),
            np.concatenate([index, zeros]).astype(np.int32),
            np.concatenate([np.ones(len(index)), np.zeros(len(zeros))]),
        )

    def _integral(self, *, on: bool) -> None:
        if on == self._is_integral:
            return
        self._is_integral = on
        kind = highspy.HighsVarType.kInteger if on else highspy.HighsVarType.kContinuous
        first, last = int(self.starts[0]), self.highs.getNumCol()
        columns = np.arange(first, last, dtype=np.int32)
        self.highs.changeColsIntegrality(len(columns), columns, np.full(len(columns), kind))

    def _columns(self) -> None:
        infinity = highspy.kHighsInf
        self.num_orders = len(self.problem.body) * self.problem.num_chunks * self.problem.num_stages
        free, binary = 1 + self.num_times, self.num_options + (self.num_orders if len(self.problem.body) > 1 else 0)
        cost = np.zeros(free + binary)
        cost[0] = 1.0
        upper = np.concatenate([np.full(free, infinity), np.ones(binary)])
        nothing = np.zeros(0, dtype=np.int32)
        self.highs.addCols(len(cost), cost, np.zeros(len(cost)), upper, 0, nothing, nothing, np.zeros(0))

    def _rows(self) -> None:
        problem = self.problem
        types = np.array([variety.type for variety in problem.varieties])
        per_type = [  # layers of every type in every chunk: (options, types, chunks)
            np.stack([options.counts[:, types == index].sum(axis=1) for index in range(len(problem.body))], axis=1)
            for options in self.options
        ]
        for stage, options in enumerate(self.options):
            columns = self.starts[stage] + np.arange(len(options))
            self._row(columns, np.ones(len(options)), 1.0, 1.0)
            for time, chunk in np.ndindex(3, problem.num_chunks):
                column = 1 + (time * problem.num_chunks + chunk) * problem.num_stages + stage
                values = options.times_ns[:, time, chunk] / self.unit_ns
                if not values.any():  # no weight gradient, mostly: nothing to link, and a smaller basis
                    self.highs.changeColBounds(column, 0.0, 0.0)
                    continue
                self._row(np.append(columns, column), np.append(-values, 1.0), 0.0, 0.0)
        for index, part in enumerate(problem.body):
            columns = self.starts[0] + np.arange(self.num_options)
            values = np.concatenate([counts[:, index].sum(axis=1) for counts in per_type]).astype(np.float64)
            self._row(columns, values, part.count, part.count)
        if len(problem.body) > 1:
            self._order_rows(per_type)

    def _order_rows(self, per_type: Sequence[Ints]) -> None:
        """Binaries say that a type has begun by a position: before that it has no layer, after it the previous type has none."""
        problem = self.problem
        positions = problem.num_chunks * problem.num_stages
        first = int(self.starts[-1])
        for index in range(1, len(problem.body)):
            for position in range(positions):
                chunk, stage = divmod(position, problem.num_stages)
                begun = first + index * positions + position
                own = np.flatnonzero(per_type[stage][:, index, chunk]) + self.starts[stage]
                self._row(np.append(own, begun), np.append(np.ones(len(own)), -1.0), -math.inf, 0.0)
                if position:
                    self._row(np.array([begun - 1, begun]), np.array([1.0, -1.0]), -math.inf, 0.0)
                    before = np.flatnonzero(per_type[stage][:, index - 1, chunk]) + self.starts[stage]
                    self._row(np.append(before, begun - 1), np.ones(len(before) + 1), -math.inf, 1.0)

    def _row(self, columns: NDArray[Any], values: Floats, low: float, high: float) -> None:
        used = values != 0
        self.highs.addRow(low, high, int(used.sum()), columns[used].astype(np.int32), values[used])
