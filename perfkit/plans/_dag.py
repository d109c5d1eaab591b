"""Dag: a schedule compiled once into nodes in topological order, so that times of any layout are one pass over them.

A node is an item of a lane or, with blocking transfers, one transfer between two lanes. It starts when its predecessors have ended,
some of them one transfer time h later:

    end(node) = max over predecessors (end(predecessor) + h * hop) + sum of its rows of the duration table

The duration table has a row for F, B and W of every chunk and stage, one for every stage's overlapped pair, one for h. Every
directed path is a lower bound of the makespan for every layout, and the longest one is the makespan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from perfkit.errors import PerfkitError
from perfkit.plans._order import Item, Lane, Route

KINDS = "FBW"

Producer = tuple[str, int, int]
"""Kind, chunk and stage of an operation, whatever its micro batch."""


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
class Dag:
    """The nodes of a schedule in topological order, and the numbering of its duration table.

    `num_chunks` counts what a stage holds: chunks, or the two directions of dualpipe.
    """

    schedule: str
    num_stages: int
    num_chunks: int
    num_microbatches: int
    mode: str
    lanes: tuple[Lane, ...]
    nodes: tuple[Node, ...] = ()

    @property
    def pair_row(self) -> int:
        """Row of stage 0's overlapped forward and backward; those of the other stages follow."""
        return len(KINDS) * self.num_chunks * self.num_stages

    @property
    def hop_row(self) -> int:
        """Row of the transfer time, the last one."""
        return self.pair_row + self.num_stages

    @property
    def num_rows(self) -> int:
        """Rows of the duration table."""
        return self.hop_row + 1

    @cached_property
    def steps(self) -> tuple[tuple[tuple[Edge, ...], tuple[int, ...]], ...]:
        """Predecessors and rows of every node, for the loops that run over all of them."""
        return tuple((node.after, node.rows) for node in self.nodes)

    def row_of(self, kind: str, chunk: int, stage: int) -> int:
        """The row of an operation's duration."""
        return (KINDS.index(kind) * self.num_chunks + chunk) * self.num_stages + stage


def producers(all_routes: Sequence[Route]) -> dict[Producer, Producer]:
    """Where the input of a forward or backward comes from; the first forward of a route has none."""
    source: dict[Producer, Producer] = {}
    for route in all_routes:
        for before, after in pairwise(route):
            source["F", *after] = ("F", *before)
            source["B", *before] = ("B", *after)
        source["B", *route[-1]] = ("F", *route[-1])
    return source


def item_rows(dag: Dag, item: Item, stage: int, paired: bool = False) -> tuple[int, ...]:
    """Rows of the duration table that an item adds up; `paired` gives an overlapped pair its own."""
    if paired and is_pair(item):
        return (dag.pair_row + stage,)
    return tuple(dag.row_of(op.kind, op.chunk, stage) for op in item)


def is_pair(item: Item) -> bool:
    """Whether the item is a forward and a backward that overlap."""
    return item[0].kind == "F" and len(item) > 1


def sort_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes so that each follows its predecessors; raises ScheduleError with what waits if there is a cycle."""
    waits = [len({edge.node for edge in node.after}) for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for before in {edge.node for edge in node.after}:
            followers[before].append(index)
    ready = deque(index for index, count in enumerate(waits) if count == 0)
    order: list[int] = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for follower in followers[index]:
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    if len(order) < len(nodes):
        raise _deadlock(nodes, set(order))
    new = {old: index for index, old in enumerate(order)}
    return tuple(replace(nodes[old], after=tuple(Edge(new[edge.node], edge.hop) for edge in nodes[old].after)) for old in order)


def _deadlock(nodes: Sequence[Node], done: set[int]) -> ScheduleError:
    waiting: dict[int, str] = {}
    for index, node in enumerate(nodes):
        if index not in done:
            for stage in node.stages:
                waiting.setdefault(stage, "+".join(map(str, node.item)) or "a transfer")
    text = ", ".join(f"stage {stage} for {what}" for stage, what in sorted(waiting.items()))
    return ScheduleError(f"deadlock: every stage waits for another one ({text})")
