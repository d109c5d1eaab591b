"""Longest: ends of all nodes, makespans of many layouts at once, and the path that decides one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeVar

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
    count = durations_ns.shape[1]
    table = np.zeros((dag.num_rows + 1, count), dtype=np.int64)  # its last row pads nodes with fewer operations than others
    table[:-1] = durations_ns
    hop_ns = table[dag.hop_row]
    ends = np.zeros((len(dag.nodes) + 1, count), dtype=np.int64)  # its last row stands for a missing predecessor
    first = 0
    for level in _levels(dag):
        start = ends[level.after[0]]
        if level.hops[0] is not None:
            start += level.hops[0] * hop_ns
        for nodes, hops in zip(level.after[1:], level.hops[1:], strict=True):
            np.maximum(start, ends[nodes] if hops is None else ends[nodes] + hops * hop_ns, out=start)
        for rows in level.rows:
            start += table[rows]
        ends[first : first + len(start)] = start
        first += len(start)
    result: Times = ends.max(axis=0)
    return result


class _Level(NamedTuple):
    """Nodes that need earlier levels only: predecessors (numbered by level), 1 where a transfer lies between, rows."""

    after: tuple[Times, ...]
    hops: tuple[Times | None, ...]
    rows: tuple[Times, ...]


@lru_cache(maxsize=64)
def _levels(dag: Dag) -> tuple[_Level, ...]:
    """The nodes of a graph by level, so that a batch takes a few operations a level instead of a node."""
    depth: list[int] = []
    for node in dag.nodes:
        depth.append(1 + max((depth[edge.node] for edge in node.after), default=-1))
    order = sorted(range(len(depth)), key=depth.__getitem__)
    number = {node: index for index, node in enumerate(order)}
    levels = []
    for _, members in groupby(order, key=depth.__getitem__):
        nodes = [dag.nodes[member] for member in members]
        width, height = max(1, *(len(node.after) for node in nodes)), max(len(node.rows) for node in nodes)
        after = np.full((width, len(nodes)), len(dag.nodes), dtype=np.int64)
        hops = np.zeros((width, len(nodes), 1), dtype=np.int64)
        rows = np.full((height, len(nodes)), dag.num_rows, dtype=np.int64)
        for column, node in enumerate(nodes):
            after[: len(node.after), column] = [number[edge.node] for edge in node.after]
            hops[: len(node.after), column, 0] = [edge.hop for edge in node.after]
            rows[: len(node.rows), column] = node.rows
        levels.append(_Level(tuple(after), tuple(hop if hop.any() else None for hop in hops), tuple(rows)))
    return tuple(levels)


def longest_path(dag: Dag, durations_ns: Sequence[Number], ends_ns: Sequence[Number], last: int) -> list[int]:
    """Nodes of the path that decides when node `last` ends, in order; of equal predecessors the lane's own is taken."""
    hop_ns, steps = durations_ns[dag.hop_row], dag.steps
    path, node = [last], last
    while after := steps[node][0]:
        longest_ns = None
        for edge in after:
            arrival_ns = ends_ns[edge.node] + hop_ns if edge.hop else ends_ns[edge.node]
            if longest_ns is None or arrival_ns > longest_ns:
                longest_ns, node = arrival_ns, edge.node
        path.append(node)
    return path[::-1]
