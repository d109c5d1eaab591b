"""Longest: ends of all nodes, makespans of many layouts at once, and the path that decides one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.plans._dag import Dag

Number = TypeVar("Number", int, float)
Times = NDArray[np.int64]
BLOCK = 512
"""Layouts whose ends are kept at once: few enough for the processor's cache."""


def node_ends(dag: Dag, durations_ns: Sequence[Number]) -> list[Number]:
    """The end of every node in ns, for one duration table with one entry a row; exact for whole numbers."""
    hop_ns = durations_ns[dag.hop_row]
    ends: list[Number] = []
    zero = hop_ns - hop_ns
    for after, rows in dag.steps:
        start = zero
        for node, hop in after:
            arrival = ends[node] + hop_ns if hop else ends[node]
            if arrival > start:  # noqa: PLR1730  (max() doubles the time of this loop)
                start = arrival
        for row in rows:
            start += durations_ns[row]
        ends.append(start)
    return ends


def makespans(dag: Dag, durations_ns: Times) -> Times:
    """The makespan of every column of `durations_ns`, shape (rows, layouts); the result has shape (layouts,)."""
    parts = [_block(dag, durations_ns[:, start : start + BLOCK]) for start in range(0, durations_ns.shape[1], BLOCK)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _block(dag: Dag, durations_ns: Times) -> Times:
    table = np.ascontiguousarray(durations_ns)
    hop_ns = table[dag.hop_row]
    ends = np.zeros((len(dag.nodes), table.shape[1]), dtype=np.int64)
    arrival = np.empty_like(hop_ns)
    for end, (after, rows) in zip(ends, dag.steps, strict=True):
        for node, hop in after:
            if hop:
                np.add(ends[node], hop_ns, out=arrival)
                np.maximum(end, arrival, out=end)
            else:
                np.maximum(end, ends[node], out=end)
        for row in rows:
            np.add(end, table[row], out=end)
    result: Times = ends.max(axis=0)
    return result


def longest_path(dag: Dag, durations_ns: Sequence[Number], ends_ns: Sequence[Number], last: int) -> list[int]:
    """Nodes of the path that decides when node `last` ends, in order; of equal predecessors the lane's own is taken."""
    path = [last]
    while dag.nodes[path[-1]].after:
        node = dag.nodes[path[-1]]
        path.append(max(node.after, key=lambda edge: ends_ns[edge.node] + (durations_ns[dag.hop_row] if edge.hop else 0)).node)
    return path[::-1]
