"""Graph: the nodes of a schedule as arrays in topological order, for passes that must not take a microsecond a node and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.core.errors import PerfkitError
from perfkit.predict.plans.schedule.order import Ints, Item, LaneTable, table_of

WIDTH = 3
"""Predecessors of a node at most: the lane's own, and the inputs of a forward and a backward that overlap."""


class ScheduleError(PerfkitError):
    """A schedule in which every stage waits for another one."""


class Edge(NamedTuple):
    """A predecessor, and whether a transfer time lies between its end and the start."""

    node: int
    hop: bool


@dataclass(frozen=True, slots=True)
class Node:
    """What runs (`item`; empty for a transfer), on which stages, for how long (rows), after what (the lane's predecessor first)."""

    item: Item
    stages: tuple[int, ...]
    rows: tuple[int, ...]
    after: tuple[Edge, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """A row a node; -1 fills up where a node has fewer entries than another one, so that it picks an added last entry.

    `ops` are the operations and the stage that runs them, `receiver` the other stage of a transfer, `before` the predecessors,
    `hop` whether a transfer time lies between, `rows` those of the duration table. `levels` are borders: the nodes between two of
    them need nodes of earlier levels only.
    """

    ops: LaneTable
    receiver: Ints
    before: Ints
    hop: NDArray[np.bool_]
    rows: Ints
    levels: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before)

    @property
    def computes(self) -> NDArray[np.bool_]:
        """Which nodes are no transfers."""
        return np.asarray(self.ops.kind[:, 0] >= 0)

    @cached_property
    def edges(self) -> tuple[tuple[list[int], list[bool]], ...]:
        """Predecessors and hops of all nodes as lists, by column: loops over lists are the fastest."""
        return tuple(zip(self.before.T.tolist(), self.hop.T.tolist(), strict=True))

    def nodes(self) -> tuple[Node, ...]:
        """Every node as an object."""
        stages = np.stack([self.ops.stage, self.receiver], axis=1).tolist()
        columns = (self.ops.items(), stages, self.rows.tolist(), self.before.tolist(), self.hop.tolist())
        return tuple(
            Node(
                item,
                tuple(stage for stage in where if stage >= 0),
                tuple(row for row in rows if row >= 0),
                tuple(Edge(node, hop) for node, hop in zip(before, hops, strict=True) if node >= 0),
            )
            for item, where, rows, before, hops in zip(*columns, strict=True)
        )


def graph_of(nodes: Sequence[Node]) -> Graph:
    """Nodes as arrays, in their order."""
    stages = _filled([node.stages for node in nodes], 2)
    edges = np.stack([_filled([[edge[part] for edge in node.after] for node in nodes], WIDTH) for part in (0, 1)])
    return Graph(
        ops=table_of([node.item for node in nodes], stages[:, 0]),
        receiver=stages[:, 1],
        before=edges[0],
        hop=edges[1] > 0,
        rows=_filled([node.rows for node in nodes], max(len(node.rows) for node in nodes)),
    )


def sort_graph(graph: Graph) -> Graph:
    """The graph by levels, each node after its predecessors; raises ScheduleError with what waits if there is a cycle."""
    found, levels = _by_level(graph)
    if len(found) < len(graph):
        raise _deadlock(graph, found)
    order = np.array(found)
    new = np.full(len(graph) + 1, -1)
    new[order] = np.arange(len(graph))
    ops = LaneTable(*(column[order] for column in graph.ops))
    return Graph(ops, graph.receiver[order], new[graph.before[order]], graph.hop[order], graph.rows[order], levels)


def _by_level(graph: Graph) -> tuple[list[int], tuple[int, ...]]:
    """Nodes whose predecessors are all there, level by level, and the borders of the levels."""
    after, columns = np.nonzero(graph.before >= 0)
    before = graph.before[after, columns]
    starts = np.searchsorted(np.sort(before), np.arange(len(graph) + 1)).tolist()
    followers = after[np.argsort(before, kind="stable")].tolist()
    waits = np.bincount(after, minlength=len(graph)).tolist()
    level = [node for node, count in enumerate(waits) if not count]
    order: list[int] = []
    borders = [0]
    while level:
        order += level
        borders.append(len(order))
        ready = []
        for node in level:
            for follower in followers[starts[node] : starts[node + 1]]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        level = ready
    return order, tuple(borders)


def _deadlock(graph: Graph, done: Sequence[int]) -> ScheduleError:
    nodes, waiting = graph.nodes(), dict[int, str]()
    for index in sorted(set(range(len(nodes))) - set(done)):
        for stage in nodes[index].stages:
            waiting.setdefault(stage, "+".join(map(str, nodes[index].item)) or "a transfer")
    text = ", ".join(f"stage {stage} for {what}" for stage, what in sorted(waiting.items()))
    return ScheduleError(f"deadlock: every stage waits for another one ({text})")


def _filled(rows: Sequence[Sequence[int]], width: int) -> Ints:
    return np.array([(*row, *(-1,) * (width - len(row))) for row in rows], dtype=np.int64).reshape(len(rows), width)
