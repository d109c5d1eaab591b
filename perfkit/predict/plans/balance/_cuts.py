"""Cuts: the paths of a schedule that decide its makespan for given chunk times, as lower bounds that hold for every layout."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._milp import Cut, Floats
from perfkit.predict.plans.schedule.dag import Dag
from perfkit.predict.plans.schedule.longest import longest_path, node_ends


def deciding_cuts(evaluator: Evaluator, times_ns: Floats, *, above_ns: float = 0.0) -> list[tuple[float, Cut]]:
    """The longest path to the last operation of every stage with its length in ns, longest first.

    `times_ns` are chunk times (3, chunks, stages), also fractional ones of a relaxation. Paths shorter than `above_ns` are left
    out.
    """
    dag = evaluator.dag
    values: list[float] = times_ns.reshape(-1).tolist()
    table = [*values, *([0.0] * dag.num_stages), float(evaluator.problem.p2p_ns)]
    ends = node_ends(dag, table)
    last = {node.stages[0]: index for index, node in enumerate(dag.nodes) if node.item}
    found: dict[tuple[int, ...], float] = {}
    for index in sorted((index for index in last.values() if ends[index] >= above_ns), key=lambda index: -ends[index]):
        path = tuple(longest_path(dag, table, ends, index))
        found.setdefault(path, ends[index])
    return [(length, cut_of_path(dag, path, evaluator.problem.p2p_ns)) for path, length in found.items()]


def cut_of_path(dag: Dag, path: tuple[int, ...], p2p_ns: int) -> Cut:
    """How often each chunk time lies on a path, and the transfer time on it."""
    rows = np.bincount([row for node in path for row in dag.nodes[node].rows], minlength=dag.num_rows)
    counts = rows[: dag.pair_row].reshape(3, dag.num_chunks, dag.num_stages).astype(np.int64)
    if not p2p_ns:
        return Cut(counts, 0)
    hops = sum(max(edge.hop for edge in dag.nodes[after].after if edge.node == before) for before, after in pairwise(path))
    return Cut(counts, int(hops + rows[dag.hop_row]) * p2p_ns)
