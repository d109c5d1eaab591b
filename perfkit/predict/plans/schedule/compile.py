"""Compile: from the order of a schedule and the way of its transfers to a Dag.

p2p modes: `none` h = 0; `overlap` the input arrives h after its producer ended; `sender` also keeps the sender's lane busy for h;
`rendezvous` a transfer holds both lanes for h (gpipe and 1f1b only, see `_transfer.py`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perfkit.core.errors import InputError
from perfkit.predict.plans.schedule._graph import WIDTH, Graph, graph_of, sort_graph
from perfkit.predict.plans.schedule._transfer import blocking_nodes
from perfkit.predict.plans.schedule.dag import Dag, Shape, producers
from perfkit.predict.plans.schedule.order import KINDS, LaneTable, lane_table, routes

MODES = ("none", "overlap", "sender", "rendezvous")
BLOCKING = ("gpipe", "1f1b")
"""Schedules that can run with blocking transfers."""


def compile_schedule(
    schedule: str, num_stages: int, num_chunks: int, num_microbatches: int, mode: str = "none", *, paired: bool = False
) -> Dag:
    """The schedule as a Dag; `paired` gives the overlapped pairs of dualpipe a duration of their own.

    Raises InputError for a schedule or mode that does not exist, ScheduleError for a deadlock.
    """
    return _compiled((schedule, num_stages, num_chunks, num_microbatches), mode, paired)


@lru_cache(maxsize=64)
def _compiled(sizes: tuple[str, int, int, int], mode: str, paired: bool) -> Dag:
    schedule, num_stages, num_chunks, num_microbatches = sizes
    problems = mode_problems(schedule, mode)
    if problems:
        raise InputError("schedule", problems)
    table = lane_table(schedule, num_stages, num_chunks, num_microbatches)
    held = 2 if schedule == "dualpipe" else num_chunks
    shape = Shape(schedule, num_stages, held, num_microbatches, mode)
    graph = graph_of(blocking_nodes(shape)) if mode == "rendezvous" else _asynchronous(shape, table, paired)
    return Dag(schedule, num_stages, held, num_microbatches, mode, sort_graph(graph))


def mode_problems(schedule: str, mode: str) -> list[str]:
    """Why transfers cannot run this way; empty if they can."""
    if mode not in MODES:
        return [f"p2p_mode = {mode!r} must be one of {', '.join(MODES)}"]
    if mode == "rendezvous" and schedule not in BLOCKING:
        return [f"p2p_mode = 'rendezvous' is defined for {' and '.join(BLOCKING)}, not for {schedule}; use 'sender'"]
    return []


def _asynchronous(shape: Shape, ops: LaneTable, paired: bool) -> Graph:
    """One node an item; a transfer delays the edge to its receiver and, with `sender`, the sender's next item."""
    sizes = (len(KINDS), shape.num_chunks, shape.num_stages)
    origin, leaving = np.full((3, *sizes), -1), np.zeros(sizes, dtype=np.bool_)
    for consumer, (kind, chunk, stage) in producers(routes(shape.schedule, shape.num_stages, shape.num_chunks)).items():
        origin[:, KINDS.index(consumer[0]), consumer[1], consumer[2]] = KINDS.index(kind), chunk, stage
        leaving[KINDS.index(kind), chunk, stage] |= stage != consumer[2]

    present, stages = ops.kind >= 0, np.broadcast_to(ops.stage[:, None], ops.kind.shape)
    node = np.broadcast_to(np.arange(len(stages))[:, None], stages.shape)
    place = np.full((*sizes, shape.num_microbatches), -1)
    place[ops.kind[present], ops.chunk[present], stages[present], ops.microbatch[present]] = node[present]

    kind, chunk, sender = np.where(present, origin[:, ops.kind, ops.chunk, stages], -1)
    inputs = np.where(kind >= 0, place[kind, chunk, sender, ops.microbatch], -1)
    before, hop = np.full((len(stages), WIDTH), -1), np.zeros((len(stages), WIDTH), dtype=np.bool_)
    width = min(WIDTH - 1, inputs.shape[1])  # a third operation is a weight gradient, which has no input from elsewhere
    before[:, 1 : 1 + width] = inputs[:, :width]
    hop[:, 1 : 1 + width] = ((kind >= 0) & (sender != stages) & (shape.mode != "none"))[:, :width]
    follows = ops.stage[1:] == ops.stage[:-1]
    before[1:, 0] = np.where(follows, node[:-1, 0], -1)
    if shape.mode == "sender":
        sends = np.asarray(present & leaving[ops.kind, ops.chunk, stages]).any(axis=1)
        hop[1:, 0] = follows & np.asarray(sends)[:-1]

    rows = np.where(present, (ops.kind * shape.num_chunks + ops.chunk) * shape.num_stages + stages, -1)
    if paired:
        pairs = (ops.kind[:, 0] == 0) & (ops.kind[:, -1] >= 0)
        rows[pairs] = -1
        rows[pairs, 0] = shape.pair_row + ops.stage[pairs]
    return Graph(ops, np.full(len(stages), -1), before, hop, rows)
