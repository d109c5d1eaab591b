"""Compile: from the order of a schedule and the way of its transfers to a Dag.

p2p modes: `none` h = 0; `overlap` the input arrives h after its producer ended; `sender` also keeps the sender's lane busy for h;
`rendezvous` a transfer holds both lanes for h (gpipe and 1f1b only, see `_transfer.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from perfkit.errors import InputError
from perfkit.plans._dag import Dag, Edge, Node, item_rows, producers, sort_nodes
from perfkit.plans._order import Item, Route, lanes, routes
from perfkit.plans._transfer import blocking_nodes

MODES = ("none", "overlap", "sender", "rendezvous")
BLOCKING = ("gpipe", "1f1b")
"""Schedules that can run with blocking transfers."""


@lru_cache(maxsize=64)
def compile_schedule(
    schedule: str, num_stages: int, num_chunks: int, num_microbatches: int, mode: str = "none", *, paired: bool = False
) -> Dag:
    """The schedule as a Dag; `paired` gives the overlapped pairs of dualpipe a duration of their own.

    Raises InputError for a schedule or mode that does not exist, ScheduleError for a deadlock.
    """
    problems = mode_problems(schedule, mode)
    if problems:
        raise InputError("schedule", problems)
    all_lanes = lanes(schedule, num_stages, num_chunks, num_microbatches)
    all_routes = routes(schedule, num_stages, num_chunks)
    chunks = len(all_routes) if schedule == "dualpipe" else num_chunks
    dag = Dag(schedule, num_stages, chunks, num_microbatches, mode, all_lanes)
    nodes = blocking_nodes(dag) if mode == "rendezvous" else _asynchronous_nodes(dag, all_routes, paired)
    return replace(dag, nodes=sort_nodes(nodes))


def mode_problems(schedule: str, mode: str) -> list[str]:
    """Why transfers cannot run this way; empty if they can."""
    if mode not in MODES:
        return [f"p2p_mode = {mode!r} must be one of {', '.join(MODES)}"]
    if mode == "rendezvous" and schedule not in BLOCKING:
        return [f"p2p_mode = 'rendezvous' is defined for {' and '.join(BLOCKING)}, not for {schedule}; use 'sender'"]
    return []


def _asynchronous_nodes(dag: Dag, all_routes: Sequence[Route], paired: bool) -> list[Node]:
    """One node an item; a transfer delays the edge to its receiver and, with `sender`, the sender's next item."""
    source = producers(all_routes)
    leaving = {origin for (_, _, stage), origin in source.items() if origin[2] != stage}
    place = {(op.kind, op.microbatch, op.chunk, stage): index for index, stage, item in _items(dag) for op in item}
    nodes: list[Node] = []
    for index, stage, item in _items(dag):
        after: list[Edge] = []
        if nodes and nodes[-1].stages == (stage,):
            sends = any((op.kind, op.chunk, stage) in leaving for op in nodes[-1].item)
            after.append(Edge(index - 1, dag.mode == "sender" and sends))
        for op in item:
            origin = source.get((op.kind, op.chunk, stage))
            if origin is not None:
                kind, chunk, sender = origin
                after.append(Edge(place[kind, op.microbatch, chunk, sender], dag.mode != "none" and sender != stage))
        nodes.append(Node(item, (stage,), item_rows(dag, item, stage, paired), tuple(after)))
    return nodes


def _items(dag: Dag) -> Iterator[tuple[int, int, Item]]:
    pairs = ((stage, item) for stage, lane in enumerate(dag.lanes) for item in lane)
    return ((index, stage, item) for index, (stage, item) in enumerate(pairs))
