"""Passes: when every operator of a program runs on every rank of a stage, counted from the start of the pass.

Shapes are (operators, micro batches, ranks of the stage), times int64 ns. Operators follow one another; a collective starts when a
rank reaches it and ends a common time after its last member did. All ranks are taken to start a pass together; where they do not,
`Pass.placed` moves what comes after the first collective of a pass to when the last of them got there. That holds where ranks meet
in groups of one kind; a pass with several is timed anew from the moments at which its ranks start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.program import Program

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Waits:
    """Pauses before every operator: for the host, and for the slowest of many nodes."""

    host: Ints
    nodes: Ints


@dataclass(frozen=True)
class Pass:
    """Starts and durations of a program's operators, waits within its collectives, and its end, counted from the pass's start.

    `head` is when a rank reaches the first collective, `first` the place of that (None: the ranks do not meet), `wide` the widest
    kind of group that they meet in, `late` when the last collective ends that computing does not wait for;
    `host` says which operators wait for the host, shape (operators, 1 or micro batches, 1 or ranks). `parts` are durations without
    waiting and pauses of a pass whose ranks meet in several kinds of groups, None for all others.
    """

    program: Program
    start: Ints
    duration: Ints
    wait: Ints
    end: Ints
    head: Ints | None
    first: int | None
    wide: str
    late: Ints
    host: npt.NDArray[np.bool_]
    parts: tuple[Ints, Waits] | None = None

    def placed(self, ready: Ints, layout: Layout) -> tuple[Ints, Ints]:
        """When the ranks have finished a pass that they start at `ready`, and how far what follows the first meeting is moved.

        The last axis is the ranks of the stage; `self` must have the micro batches of `ready` only.
        """
        if self.head is None:
            return ready + self.end, ready
        reached = layout.over_members(ready + self.head, self.wide) - layout.over_members(self.head, self.wide)
        return reached + self.end, reached

    def exactly(self, ready: Ints, layout: Layout, micro_batches: slice = slice(None)) -> Pass:
        """Some micro batches on the clock of ranks that start them at `ready`; for a pass that has `parts`."""
        assert self.parts is not None
        duration, waits = self.parts
        chosen = Waits(*(part[:, micro_batches] if part.shape[1] > 1 else part for part in (waits.host, waits.nodes)))
        return time_pass(self.program, duration[:, micro_batches], chosen, layout, ready)


HOST_WAIT_NS = 1_000
"""Shorter waits are those between two kernels that were launched in time."""


def time_pass(program: Program, duration: Ints, waits: Waits, layout: Layout, begin: Ints | None = None) -> Pass:
    """The pass of a program whose operators take `duration` (collectives: without waiting) after their `waits`.

    With `begin` (micro batches, ranks) all times are those of ranks that start then, and nothing is left to be moved.
    """
    gap = waits.host + waits.nodes
    start, wait = np.zeros_like(duration), np.zeros((len(program.collectives), *duration.shape[1:]), dtype=np.int64)
    asked, duration = duration, duration.copy()
    now = np.zeros(duration.shape[1:], dtype=np.int64) if begin is None else begin
    busy: dict[str, Ints] = {}
    head: Ints | None = None
    done = 0
    for number, place in enumerate([*program.collectives, len(program.ops)]):
        if place > done:
            ends = now + np.cumsum(gap[done:place] + duration[done:place], axis=0)
            start[done:place] = ends - duration[done:place]
            now = ends[-1]
        done = place + 1
        if place == len(program.ops):
            break
        op = program.ops[place]
        now = now + gap[place]
        arrival = np.maximum(now, busy[op.group]) if op.group in busy else now
        if head is None:
            head = arrival
        last = layout.over_members(arrival, op.group)
        end = last + duration[place]
        start[place], wait[number] = arrival, last - arrival
        held = (duration[place] * op.block).astype(np.int64)
        duration[place] = end - arrival
        # Work beside computing that is late makes itself later, not the computing.
        now = end if op.block >= 1 else layout.over_members(now, op.group) + held
        if op.block < 1:
            busy[op.group] = end
    late = now
    for ends in busy.values():
        late = np.maximum(late, ends)
    kinds = {program.ops[place].group for place in program.collectives if program.ops[place].block > 0}
    wide = next((kind for kind in ("world", "dp", "ep", "cp", "tp") if kind in kinds), "tp")
    moved = begin is None and bool(program.collectives)
    first = program.collectives[0] if moved else None
    parts = (asked, waits) if moved and len(kinds) > 1 else None
    return Pass(program, start, duration, wait, now, head if moved else None, first, wide, late, waits.host > HOST_WAIT_NS, parts)
