"""Schedule model: the relaxation with every operation of the schedule in it, so that its optimum knows all paths at once.

To the columns of `_milp.py` come the ends of all operations; each is at least the end of every predecessor, plus a transfer, plus
its own time, and T is at least every end. One such linear program replaces rounds of adding paths; a node of a tree of relaxations
solves it again from its parent's basis, which takes a few hundred steps of the dual simplex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import highspy
import numpy as np

from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._milp import Masks, Relaxed, StageModel, StoppedError
from perfkit.predict.plans.balance._options import StageOptions


class ScheduleModel(StageModel):
    """The relaxation of one problem; `relaxed` restricts the options and solves it."""

    def __init__(self, evaluator: Evaluator, options: Sequence[StageOptions], unit_ns: float) -> None:
        super().__init__(evaluator.problem, options, unit_ns)
        self._evaluator = evaluator
        self._operations()

    def relaxed(self, allowed: Masks, basis: Any, best_ns: float, go_on: Callable[[], bool]) -> Relaxed | None:
        """The optimum with these options, starting from the basis of another one; None if nothing below `best_ns` is left.

        Raises StoppedError once `go_on` returns False.
        """
        self.allow(allowed)
        self.highs.setOptionValue("objective_bound", best_ns / self.unit_ns)
        if basis is not None:
            self.highs.setBasis(basis)

        def tick(event: Any) -> None:
            event.interrupt(not go_on())  # the flag outlives a run: without a False the next one would stop at once

        self.highs.cbSimplexInterrupt.subscribe(tick)
        try:
            self.highs.run()
        finally:
            self.highs.clearCallbacks()  # type: ignore[no-untyped-call]
        status = self.highs.getModelStatus()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kObjectiveBound):
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise StoppedError
        value_ns = float(self.highs.getInfo().objective_function_value) * self.unit_ns
        if value_ns >= best_ns:
            return None
        return Relaxed(value_ns, self.option_weights(), self.reduced_costs(), self.highs.getBasis())

    def _operations(self) -> None:
        """Ends of operations as columns; rows: end >= predecessor's end + transfer + own time, T >= end."""
        dag, first = self._evaluator.dag, self.highs.getNumCol()
        count = len(dag.graph)
        nothing = np.zeros(0, dtype=np.int32)
        self.highs.addCols(
            count, np.zeros(count), np.zeros(count), np.full(count, highspy.kHighsInf), 0, nothing, nothing, np.zeros(0)
        )
        hop = self.problem.p2p_ns / self.unit_ns
        followed = {edge.node for node in dag.nodes for edge in node.after}
        for index, node in enumerate(dag.nodes):
            rows = [row for row in node.rows if row < dag.pair_row]  # what is left is the transfer time, a constant
            own = hop * (len(node.rows) - len(rows))
            times = [1 + row for row in rows]
            starts = [([first + edge.node], hop * edge.hop) for edge in node.after] or [([], 0.0)]
            for before, wait in starts:
                values = np.array([1.0] + [-1.0] * (len(before) + len(times)))
                self._row(np.array([first + index, *before, *times]), values, own + wait, math.inf)
            if index not in followed:
                self._row(np.array([0, first + index]), np.array([1.0, -1.0]), 0.0, math.inf)
