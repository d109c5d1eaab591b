"""Feasible: the layout whose largest memory peak is smallest, so the smallest limit that any layout meets.

Every layer takes its kind with the fewest activations, as more only adds to the peak; what a backward pass has besides counts as
the least of any recomputation. What is left is a small integer program over the layers of each type in each chunk.
"""

from __future__ import annotations

import math

import highspy
import numpy as np

from perfkit.core.units import MIB
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.problem import Layout


def least_peak_layout(evaluator: Evaluator, time_limit_s: float) -> tuple[Layout | None, bool]:
    """The layout with the smallest largest peak, and whether that is proven; None if the time did not suffice to find any."""
    problem = evaluator.problem
    types, positions = len(problem.body), problem.num_chunks * problem.num_stages
    lean = [
        min(np.flatnonzero(evaluator.type == index).tolist(), key=lambda row: int(evaluator.act_bytes[row]))
        for index in range(types)
    ]
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    highs.setOptionValue("time_limit", max(0.05, time_limit_s))
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("threads", 1)
    peak = highs.addVariable(lb=-highspy.kHighsInf, obj=1.0)
    counts = [
        [highs.addIntegral(lb=0, ub=part.count) for _ in range(positions)] for part in problem.body
    ]  # by type and position = chunk * stages + stage
    for index, part in enumerate(problem.body):
        highs.addConstr(highs.qsum(counts[index]) == part.count)
    for position in range(positions):
        highs.addConstr(highs.qsum([row[position] for row in counts]) >= problem.min_layers_per_chunk)
    for index in range(1, types):
        begun = [highs.addBinary() for _ in range(positions)]
        for position in range(positions):
            highs.addConstr(counts[index][position] <= problem.body[index].count * begun[position])
            if position:
                highs.addConstr(begun[position - 1] <= begun[position])
                before = problem.body[index - 1].count
                highs.addConstr(counts[index - 1][position] <= before * (1 - begun[position - 1]))
    acts = [evaluator.priced("act_bytes", first=first) for first in (False, True)]
    for stage, vectors in enumerate(evaluator.vectors):
        for vector in vectors:
            fixed = problem.const_bytes + int(evaluator.fixed["param_bytes"][:, stage].sum())
            fixed += int(evaluator.stage_bytes[:, stage].min())
            fixed += int(vector @ evaluator.fixed["act_bytes"][:, stage])
            terms = [
                counts[index][chunk * problem.num_stages + stage]
                * (int(evaluator.param_bytes[lean[index]] + held * acts[stage == chunk == 0][lean[index]]) / MIB)
                for index in range(types)
                for chunk, held in enumerate(vector.tolist())
            ]
            highs.addConstr(highs.qsum(terms) + fixed / MIB <= peak)
    highs.run()
    values = highs.getSolution().col_value
    if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None, False
    layout = np.zeros((len(evaluator.type), problem.num_chunks, problem.num_stages), dtype=np.int64)
    for index, row in enumerate(counts):
        layout[lean[index]] = np.array([round(values[column.index]) for column in row]).reshape(layout.shape[1:])
    return layout, highs.getModelStatus() == highspy.HighsModelStatus.kOptimal


def whole_mib(size_bytes: int) -> int:
    """The size in MiB, rounded up."""
    return math.ceil(size_bytes / MIB)
