"""Dag: a schedule compiled once into nodes in topological order, so that times of any layout are one pass over them.

A node is an item of a lane or, with blocking transfers, one transfer between two lanes. It starts when its predecessors have ended,
some of them one transfer time h later:

    end(node) = max over predecessors (end(predecessor) + h * hop) + sum of its rows of the duration table

The duration table has a row for F, B and W of every chunk and stage, one for every stage's overlapped pair, one for h. Every
directed path is a lower bound of the makespan for every layout, and the longest one is the makespan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from perfkit.predict.plans.schedule._graph import Graph, Node
from perfkit.predict.plans.schedule.order import KINDS, Item, Lane, Route, lanes

Producer = tuple[str, int, int]
"""Kind, chunk and stage of an operation, whatever its micro batch."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The sizes of a schedule, and the numbering of its duration table.

    `num_chunks` counts what a stage holds: chunks, or the two directions of dualpipe.
    """

    schedule: str
    num_stages: int
    num_chunks: int
    num_microbatches: int
    mode: str

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What every stage runs, in order."""
        chunks = 1 if self.schedule == "dualpipe" else self.num_chunks
        return lanes(self.schedule, self.num_stages, chunks, self.num_microbatches)

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

    def rows_of(self, item: Item, stage: int) -> tuple[int, ...]:
        """Rows of the duration table that an item adds up."""
        return tuple((KINDS.index(op.kind) * self.num_chunks + op.chunk) * self.num_stages + stage for op in item)


@dataclass(frozen=True, eq=False)
class Dag(Shape):
    """A schedule with its nodes in topological order: as arrays, and as objects for what looks at single ones."""

    graph: Graph

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes as objects."""
        return self.graph.nodes()


def producers(all_routes: Sequence[Route]) -> dict[Producer, Producer]:
    """Where the input of a forward or backward comes from; the first forward of a route has none."""
    source: dict[Producer, Producer] = {}
    for route in all_routes:
        for before, after in pairwise(route):
            source["F", *after] = ("F", *before)
            source["B", *before] = ("B", *after)
        source["B", *route[-1]] = ("F", *route[-1])
    return source
