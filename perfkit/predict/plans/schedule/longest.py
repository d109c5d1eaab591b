"""Longest: ends of all nodes, makespans of many layouts at once, and the path that decides one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.predict.plans.schedule.dag import Dag

Number = TypeVar("Number", int, float)
Times = NDArray[np.int64]
Scalar = TypeVar("Scalar", np.int64, np.float64)
BLOCK = 512
"""Layouts whose ends are kept at once: few enough for the processor's cache."""
NARROW = 20
"""Ends of so many nodes, one by one, take as long as those of a level of nodes in a batch, which has to be cut into levels, too."""


def node_ends(dag: Dag, durations_ns: Sequence[Number]) -> list[Number]:
    """The end of every node in ns, for one duration table with one entry a row; exact for whole numbers."""
    graph, hop_ns = dag.graph, durations_ns[dag.hop_row]
    nothing = hop_ns - hop_ns
    lengths = np.array([*durations_ns, nothing])[graph.rows].sum(axis=1).tolist()
    (first, _), (second, _), (third, _) = graph.edges
    waits = (graph.hop * hop_ns).T.tolist()
    ends = [nothing] * (len(graph) + 1)  # the last one stands for a missing predecessor
    for node, (a, b, c, wait_a, wait_b, wait_c, length) in enumerate(zip(first, second, third, *waits, lengths, strict=True)):
        start, other, another = ends[a] + wait_a, ends[b] + wait_b, ends[c] + wait_c
        if other > start:  # noqa: PLR1730  (max() doubles the time of this loop)
            start = other
        if another > start:  # noqa: PLR1730
            start = another
        ends[node] = start + length
    return ends[:-1]


def makespans(dag: Dag, durations_ns: NDArray[Scalar]) -> NDArray[Scalar]:
    """The makespan of every column of `durations_ns`, shape (rows, layouts); the result has shape (layouts,) and its type."""
    if durations_ns.shape[1] * len(dag.graph) <= NARROW * len(dag.graph.levels):
        ends = [max(node_ends(dag, column), default=0) for column in durations_ns.T.tolist()]
        return np.array(ends, dtype=durations_ns.dtype)
    parts = [_block(dag, durations_ns[:, start : start + BLOCK]) for start in range(0, durations_ns.shape[1], BLOCK)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=durations_ns.dtype)


def _block(dag: Dag, durations_ns: NDArray[Scalar]) -> NDArray[Scalar]:
    count = durations_ns.shape[1]
    nothing = np.zeros((1, count), dtype=durations_ns.dtype)  # pads nodes with fewer operations than others
    table = np.concatenate([durations_ns, nothing])
    hop_ns = table[dag.hop_row]
    ends = np.zeros((len(dag.graph) + 1, count), dtype=durations_ns.dtype)  # its last row stands for a missing predecessor
    for level in _levels(dag):
        start = ends[level.after[0]]
        if level.hops[0] is not None:
            start += level.hops[0] * hop_ns
        for nodes, hops in zip(level.after[1:], level.hops[1:], strict=True):
            np.maximum(start, ends[nodes] if hops is None else ends[nodes] + hops * hop_ns, out=start)
        for rows in level.rows:
            start += table[rows]
        ends[level.nodes] = start
    result: NDArray[Scalar] = ends.max(axis=0)
    return result


class _Level(NamedTuple):
    """Nodes that need earlier levels only: where they are, their predecessors, 1 where a transfer lies between, their rows."""

    nodes: slice
    after: tuple[Times, ...]
    hops: tuple[Times | None, ...]
    rows: tuple[Times, ...]


@lru_cache(maxsize=64)
def _levels(dag: Dag) -> tuple[_Level, ...]:
    """The nodes of a graph by level, so that a batch takes a few operations a level instead of a node."""
    graph, levels, all_hops = dag.graph, [], dag.graph.hop.astype(np.int64)
    bounds = list(pairwise(graph.levels))
    # Which columns of a level hold anything: of all levels in one pass each, for one by one that takes most of the time.
    begins = [start for start, _ in bounds]
    known = (graph.before >= 0, graph.hop != 0, graph.rows >= 0)
    used, hopped, filled = (np.logical_or.reduceat(flags, begins, axis=0).tolist() if begins else [] for flags in known)
    for (start, stop), has, hops, rows in zip(bounds, used, hopped, filled, strict=True):
        nodes = slice(start, stop)
        before, hop, row = graph.before[nodes].T, all_hops[nodes].T, graph.rows[nodes].T
        columns = [column for column, any_before in enumerate(has) if any_before] or [0]
        levels.append(
            _Level(
                nodes,
                tuple(before[column] for column in columns),
                tuple(hop[column][:, None] if hops[column] else None for column in columns),
                tuple(column for column, any_row in zip(row, rows, strict=True) if any_row),
            )
        )
    return tuple(levels)


def longest_path(dag: Dag, durations_ns: Sequence[Number], ends_ns: Sequence[Number], last: int) -> list[int]:
    """Nodes of the path that decides when node `last` ends, in order; of equal predecessors the lane's own is taken."""
    hop_ns, edges = durations_ns[dag.hop_row], dag.graph.edges
    path, node = [], last
    while node >= 0:
        path.append(node)
        at, node, longest_ns = node, -1, None
        for before, hop in edges:
            if (other := before[at]) >= 0:
                arrival_ns = ends_ns[other] + hop_ns if hop[at] else ends_ns[other]
                if longest_ns is None or arrival_ns > longest_ns:
                    longest_ns, node = arrival_ns, other
    return path[::-1]
