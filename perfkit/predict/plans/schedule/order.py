"""Order: which operation every pipeline stage runs after which, for each schedule.

An operation is F (forward), B (backward) or W (weight gradient) of one micro batch and chunk. A lane is the list of what one stage
runs; an item of it is one operation, or several that run as one. Micro batches, chunks and stages count from 0.

- `gpipe`: all forwards, then all backwards.
- `1f1b`: P - s - 1 forwards ahead (s the stage of P), then a forward and a backward in turn.
- `zbh1`: as 1f1b with the weight gradient split off and delayed by s micro batches (ZB-H1 of arXiv 2401.10241).
- `vpp`: interleaved 1F1B of arXiv 2104.04473 with groups of P micro batches, (V + 1) P - 2 s - 2 forwards ahead.
- `vpp_lm`: the same groups with only V P - s - 1 forwards ahead (less memory, MindSpore).
- `dualpipe`: micro batches enter from both ends; stage s also holds stage P - 1 - s, as chunk 1 (arXiv 2412.19437, figure 5).

With a remainder of m modulo P micro batches, vpp and vpp_lm let it join the first group and run V - 1 more forwards ahead for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.core.errors import InputError

Ints = NDArray[np.int64]
KINDS = "FBW"

SCHEDULES = ("gpipe", "1f1b", "zbh1", "vpp", "vpp_lm", "dualpipe")
INTERLEAVED = ("vpp", "vpp_lm")
MAX_OPS = 1_000_000
SPLIT = ("zbh1", "dualpipe")
"""Schedules that run the weight gradient apart from the rest of the backward pass."""


class Op(NamedTuple):
    """One operation: `kind` is "F", "B" or "W"."""

    kind: str
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}.{self.chunk}"


Item = tuple[Op, ...]
"""Operations that run as one: the overlapped forward and backward of dualpipe, or a single operation."""
Lane = tuple[Item, ...]
Route = tuple[tuple[int, int], ...]
"""The (chunk, stage) pairs that a forward pass visits in turn; the backward pass returns the same way."""


class LaneTable(NamedTuple):
    """The items of all lanes, one stage after the other: `stage` (items,), and the operations of each (items, most of an item).

    `kind` is an index into `KINDS`; kind, micro batch and chunk are -1 where an item has fewer operations than another one.
    """

    stage: Ints
    kind: Ints
    microbatch: Ints
    chunk: Ints

    def lane(self, stage: int) -> LaneTable:
        """The items of one stage."""
        start, stop = np.searchsorted(self.stage, (stage, stage + 1)).tolist()
        return LaneTable(*(column[start:stop] for column in self))

    def items(self) -> list[Item]:
        """The operations of every item as objects."""
        columns = (self.kind.tolist(), self.microbatch.tolist(), self.chunk.tolist())
        return [tuple(Op(KINDS[k], j, v) for k, j, v in zip(*ops, strict=True) if k >= 0) for ops in zip(*columns, strict=True)]


def shape_problems(schedule: str, num_stages: int, num_chunks: int, num_microbatches: int) -> list[str]:
    """Why there is no such schedule; empty if there is."""
    if schedule not in SCHEDULES:
        return [f"schedule = {schedule!r} must be one of {', '.join(SCHEDULES)}"]
    sizes = {"num_stages": num_stages, "num_chunks": num_chunks, "num_microbatches": num_microbatches}
    problems = [f"{name} = {size} must be positive" for name, size in sizes.items() if size < 1]
    if schedule not in INTERLEAVED and num_chunks != 1:
        problems.append(f"num_chunks = {num_chunks}: {schedule} has one chunk a stage; vpp and vpp_lm interleave several")
    if schedule in INTERLEAVED and num_microbatches < num_stages:
        problems.append(f"num_microbatches = {num_microbatches}: {schedule} needs at least num_stages = {num_stages}")
    if schedule == "dualpipe" and num_stages % 2:
        problems.append(f"num_stages = {num_stages}: dualpipe needs an even number of stages")
    if schedule == "dualpipe" and (num_microbatches % 2 or num_microbatches < 2 * num_stages):
        problems.append(f"num_microbatches = {num_microbatches}: dualpipe needs an even number of at least {2 * num_stages}")
    num_ops = 2 * num_stages * num_chunks * num_microbatches
    if not problems and num_ops > MAX_OPS:
        problems.append(
            f"{num_stages} stages x {num_chunks} chunks x {num_microbatches} micro batches: more than {MAX_OPS} operations"
        )
    return problems


@lru_cache(maxsize=64)
def lanes(schedule: str, num_stages: int, num_chunks: int, num_microbatches: int) -> tuple[Lane, ...]:
    """What every stage runs, in order; raises InputError with every reason why there is no such schedule."""
    table = lane_table(schedule, num_stages, num_chunks, num_microbatches)
    return tuple(tuple(table.lane(stage).items()) for stage in range(num_stages))


@lru_cache(maxsize=64)
def lane_table(schedule: str, num_stages: int, num_chunks: int, num_microbatches: int) -> LaneTable:
    """The same as arrays, which take a hundredth of the time where only times are asked for."""
    problems = shape_problems(schedule, num_stages, num_chunks, num_microbatches)
    if problems:
        raise InputError("schedule", problems)
    if schedule == "dualpipe":
        all_lanes = [_dualpipe(num_stages, stage, num_microbatches // 2) for stage in range(num_stages)]
        return table_of([item for lane in all_lanes for item in lane], np.repeat(np.arange(num_stages), list(map(len, all_lanes))))
    return _alternating(schedule, num_stages, num_chunks, num_microbatches)


def routes(schedule: str, num_stages: int, num_chunks: int) -> tuple[Route, ...]:
    """The ways of micro batches through chunks and stages: one, or two in opposite directions for dualpipe."""
    if schedule == "dualpipe":
        return tuple((0, stage) for stage in range(num_stages)), tuple((1, stage) for stage in reversed(range(num_stages)))
    return (tuple((chunk, stage) for chunk in range(num_chunks) for stage in range(num_stages)),)


def table_of(items: Sequence[Item], stage: Ints) -> LaneTable:
    """Items as arrays, with the stage of each."""
    table = np.full((3, len(items), max(1, *map(len, items))), -1, dtype=np.int64)
    for index, item in enumerate(items):
        for column, op in enumerate(item):
            table[:, index, column] = KINDS.index(op.kind), op.microbatch, op.chunk
    return LaneTable(stage, *table)


def _alternating(schedule: str, num_stages: int, num_chunks: int, m: int) -> LaneTable:
    """Some forwards ahead, then a backward and a forward in turn, then the backwards that are left; `at` are places in a lane."""
    stage, index, count = np.arange(num_stages)[:, None], np.arange(num_chunks * m), num_chunks * m
    ahead = _ahead(schedule, num_stages, num_chunks, m)
    at: dict[str, Any] = {"F": index + np.maximum(index - ahead, 0), "B": index + np.minimum(ahead + index + 1, count)}
    if schedule == "zbh1":  # W of micro batch j follows B of j + stage; those without one come last
        at["F"] = at["F"] + np.maximum(np.maximum(index - ahead, 0) - stage, 0)
        at["B"] = at["B"] + np.maximum(index - stage, 0)
        following = np.take_along_axis(at["B"], np.minimum(index + stage, m - 1), axis=1)
        at["W"] = np.where(index + stage < m, following + 1, 2 * m + index)
    forward = _forward_order(schedule, num_stages, num_chunks, m)
    backward = np.stack([forward[0], num_chunks - 1 - forward[1]])
    table = np.zeros((3, num_stages, count * len(at)), dtype=np.int64)
    for kind, places in at.items():
        table[0, stage, places] = KINDS.index(kind)
        table[1, stage, places], table[2, stage, places] = forward if kind == "F" else backward
    return LaneTable(np.repeat(stage[:, 0], table.shape[2]), *table.reshape(3, -1, 1))


def _ahead(schedule: str, num_stages: int, num_chunks: int, m: int) -> Ints:
    """How many forwards every stage runs before its first backward, shape (stages, 1)."""
    later = num_stages - 1 - np.arange(num_stages)[:, None]
    if schedule == "gpipe":
        return np.full_like(later, m)
    if schedule not in INTERLEAVED:
        return np.minimum(later, m)
    ahead = (num_chunks - 1) * num_stages + later + (0 if schedule == "vpp_lm" else later)
    return np.asarray(np.minimum(ahead + m % num_stages * (num_chunks - 1), num_chunks * m))


def _forward_order(schedule: str, num_stages: int, num_chunks: int, m: int) -> Ints:
    """Micro batch and chunk of every forward of a lane; the backwards have the same order with the chunks reversed."""
    if schedule not in INTERLEAVED:
        return np.stack([np.arange(m), np.zeros(m, dtype=np.int64)])
    first = num_stages + m % num_stages
    groups = [range(first), *(range(start, start + num_stages) for start in range(first, m, num_stages))]
    return np.array([(j, v) for group in groups for v in range(num_chunks) for j in group]).T


class _Emitter:
    """Numbers the operations of one dualpipe stage by direction as they are asked for; chunk = direction."""

    def __init__(self, near: int) -> None:
        self.items: list[Item] = []
        self._near = near
        self._next = {(kind, chunk): 0 for kind in "FB" for chunk in (0, 1)}
        self._open_weights: deque[Op] = deque()

    def forward(self, direction: int) -> None:
        self.items.append((self._take("F", direction),))

    def backward(self, direction: int, *, split: bool = False) -> None:
        op = self._take("B", direction)
        weight = Op("W", op.microbatch, op.chunk)
        if split:
            self._open_weights.append(weight)
        self.items.append((op,) if split else (op, weight))

    def both(self, forward: int, backward: int) -> None:
        op = self._take("B", backward)
        self.items.append((self._take("F", forward), op, Op("W", op.microbatch, op.chunk)))

    def weight(self) -> None:
        self.items.append((self._open_weights.popleft(),))

    def _take(self, kind: str, direction: int) -> Op:
        # Direction 0 of a stage in the second half is the one that enters at the last stage.
        chunk = direction ^ self._near
        number = self._next[kind, chunk]
        self._next[kind, chunk] = number + 1
        return Op(kind, number, chunk)


def _dualpipe(num_stages: int, stage: int, half_m: int) -> Lane:
    """Eight phases: forwards of the near end, of both ends, split backwards, overlapped pairs, and the same way out."""
    depth = min(stage, num_stages - 1 - stage)  # distance from the nearer end
    inner = num_stages // 2 - depth - 1  # distance from the middle
    out = _Emitter(int(stage >= num_stages // 2))
    for _ in range(2 * inner):
        out.forward(0)
    for _ in range(depth + 1):
        out.forward(0)
        out.forward(1)
    for _ in range(inner):
        out.backward(1, split=True)
        out.weight()
        out.forward(1)
    for turn in range(half_m - num_stages + depth + 1):
        if turn == 0 and inner == 0:
            out.forward(0)  # the middle stages would wait longer for the pair than the overlap gains
            out.backward(1)
        else:
            out.both(0, 1)
        out.both(1, 0)
    for _ in range(inner):
        out.backward(1)
        out.both(1, 0)
    for turn in range(depth + 1):
        middle = (depth + 1) // 2
        out.backward(1, split=turn > middle or (turn == middle and depth % 2 == 1))
        out.backward(0, split=turn >= middle)
    for _ in range(inner):
        out.weight()
        out.backward(0, split=True)
    for _ in range(depth + 1):
        out.weight()
    return tuple(out.items)
