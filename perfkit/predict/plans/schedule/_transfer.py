"""Transfer: blocking point to point, where a transfer starts once both stages have reached it and holds both until it ends.

Every lane becomes receive, compute, send. A send directly followed by a receive from the same neighbour is one exchange when the
neighbour's lane has the same pair (the combined send and receive of Megatron-LM's pipeline schedules); otherwise they stay two
transfers in the order of the lane.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from perfkit.predict.plans.schedule._graph import Edge, Node
from perfkit.predict.plans.schedule.dag import Shape, producers
from perfkit.predict.plans.schedule.order import Item, Op, routes


class _Move(NamedTuple):
    """What one transfer carries: the output of `op`, from `sender` to `receiver`."""

    op: Op
    sender: int
    receiver: int


_Entry = Item | _Move


def blocking_nodes(shape: Shape) -> list[Node]:
    """Compute and transfer nodes of a schedule with one chunk a stage."""
    lanes = _lanes_with_moves(shape)
    partner = _exchanges(lanes)
    key_of = {move: min(move, partner.get(move, move)) for lane in lanes for move in lane if isinstance(move, _Move)}
    number: dict[tuple[int, Item] | _Move, int] = {}
    after: list[list[Edge]] = []
    owner: list[tuple[_Entry, int]] = []
    for stage, lane in enumerate(lanes):
        previous = None
        for entry in lane:
            key = key_of[entry] if isinstance(entry, _Move) else (stage, entry)
            if key not in number:
                number[key] = len(after)
                after.append([])
                owner.append((key if isinstance(key, _Move) else entry, stage))
            node = number[key]
            if previous is not None and previous != node:
                after[node].append(Edge(previous, False))
            previous = node
    return [
        Node((), (entry.sender, entry.receiver), (shape.hop_row,), tuple(edges))
        if isinstance(entry, _Move)
        else Node(entry, (stage,), shape.rows_of(entry, stage), tuple(edges))
        for (entry, stage), edges in zip(owner, after, strict=True)
    ]


def _lanes_with_moves(shape: Shape) -> list[list[_Entry]]:
    source = producers(routes(shape.schedule, shape.num_stages, shape.num_chunks))
    target = {origin: consumer for consumer, origin in source.items()}
    lanes: list[list[_Entry]] = []
    for stage, lane in enumerate(shape.lanes):
        entries: list[_Entry] = []
        for item in lane:
            op = item[0]
            origin, consumer = source.get((op.kind, op.chunk, stage)), target.get((op.kind, op.chunk, stage))
            if origin is not None and origin[2] != stage:
                entries.append(_Move(Op(origin[0], op.microbatch, origin[1]), origin[2], stage))
            entries.append(item)
            if consumer is not None and consumer[2] != stage:
                entries.append(_Move(op, stage, consumer[2]))
        lanes.append(entries)
    return lanes


def _exchanges(lanes: list[list[_Entry]]) -> dict[_Move, _Move]:
    """The two transfers of every exchange, each as the other's partner."""
    followed = [
        {(sent, received) for sent, received in pairwise(lane) if _is_pair(sent, received, stage)}
        for stage, lane in enumerate(lanes)
    ]
    partner: dict[_Move, _Move] = {}
    for pairs in followed:
        for sent, received in pairs:
            assert isinstance(sent, _Move)
            assert isinstance(received, _Move)
            if (received, sent) in followed[sent.receiver]:
                partner[sent] = received
    return partner


def _is_pair(sent: _Entry, received: _Entry, stage: int) -> bool:
    return (
        isinstance(sent, _Move)
        and isinstance(received, _Move)
        and sent.sender == stage
        and received.receiver == stage
        and sent.receiver == received.sender
    )
