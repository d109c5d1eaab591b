"""Lanes: a step laid out in time on every simulated rank, in the order of the pipeline schedule.

Each stage runs its passes in the order of `perfkit.predict.plans.schedule.schedule`. A receive waits for its sender and then takes
the time of the transfer; sends run beside computing, but at the two ends of the pipeline, where nothing is received, the stage
waits for them, so that every stage pays one transfer a pass as the prediction has it. After the last pass the gradients are
reduced, all ranks meet for the norm of the gradients, the optimizer runs and sharded parameters are gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from perfkit.predict.plans.schedule.compile import compile_schedule
from perfkit.predict.plans.schedule.dag import producers
from perfkit.predict.plans.schedule.order import routes
from perfkit.predict.simulate.disturbances import SEND_NOISE, Disturbances
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.passes import Pass, Waits, time_pass
from perfkit.predict.simulate.program import Program
from perfkit.predict.simulate.stages import LAST_BACKWARD, Job

Ints = npt.NDArray[np.int64]

Key = tuple[int, str]
"""A chunk and a kind of pass."""


@dataclass(frozen=True)
class Transfer:
    """One send or receive of a stage: start, duration and wait for the other side by rank, and the stage on the other side."""

    name: str
    operation: str
    peer: int
    start: Ints
    duration: Ints
    wait: Ints


@dataclass
class StageStep:
    """What one stage does in one step.

    `ready` and `moved` have, by kind of pass, shape (micro batches, ranks): when its ranks start each pass, and where what follows
    the first meeting of the pass is counted from. `exact` are passes whose times are those of the clock already.
    """

    begin: Ints
    first: Ints
    passes: dict[Key, Pass]
    ready: dict[Key, Ints]
    moved: dict[Key, Ints]
    exact: list[Pass] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    end: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ends: dict[tuple[int, str, int], Ints] = field(default_factory=dict)


@dataclass(frozen=True)
class _Order:
    """Passes of a step in an order in which every input comes before its use, and where inputs come from and outputs go."""

    items: tuple[tuple[int, str, int, int], ...]
    source: dict[tuple[str, int, int], tuple[str, int, int]]
    target: dict[tuple[str, int, int], tuple[str, int, int]]


class Simulation:
    """A job under its disturbances, step by step; nothing of a step is kept but the clock."""

    def __init__(self, disturbances: Disturbances, start_ns: int = 0) -> None:
        self.disturbances = disturbances
        self.job: Job = disturbances.job
        self.layout: Layout = disturbances.layout
        # A step is one of many: each stage begins when it has updated after the one before.
        updates = [int(np.rint((stage.update.base_ns + stage.update.gap_ns).sum())) for stage in self.job.stages]
        self._clock = [np.full(self.layout.width, start_ns + own - min(updates), dtype=np.int64) for own in updates]

    @cached_property
    def _order(self) -> _Order:
        job = self.job
        dag = compile_schedule(job.schedule, self.layout.pipeline, job.num_chunks, job.micro_batches)
        source = producers(routes(job.schedule, self.layout.pipeline, job.num_chunks))
        items = tuple((node.stages[0], op.kind, op.chunk, op.microbatch) for node in dag.nodes for op in node.item)
        return _Order(items, source, {origin: consumer for consumer, origin in source.items()})

    def step(self, number: int) -> list[StageStep]:
        """Lay out the next step; steps count from 0 and must be asked for in order."""
        stages = [self._open(number, stage) for stage in range(self.layout.pipeline)]
        self._run_passes(number, stages)
        self._finish(number, stages)
        self._clock = [stage.end for stage in stages]
        return stages

    def _open(self, number: int, stage: int) -> StageStep:
        shape = (self.job.micro_batches, self.layout.width)
        passes = self.passes_of(number, stage)
        begin = self._clock[stage]
        first = begin + self.disturbances.input_ns(number, stage)
        empty = {key: np.zeros(shape, dtype=np.int64) for key in passes}
        return StageStep(begin, first, passes, empty, {key: value.copy() for key, value in empty.items()})

    def passes_of(self, number: int, stage: int) -> dict[Key, Pass]:
        """The passes of a stage in a step by chunk and kind, without when they start; equal whenever they are asked for."""
        job, source = self.job, self.disturbances
        shape = (job.micro_batches, self.layout.width)
        pauses = source.pauses(number, stage)
        passes = {}
        for turn, (key, program) in enumerate(job.stages[stage].programs.items()):
            if key[1] != LAST_BACKWARD:
                mine = [pause for pause in pauses if (pause.chunk, pause.kind) == key]
                rng = np.random.default_rng([source.seed, 2, number, stage, turn])
                durations = source.durations(program, shape, number, stage, rng)
                waits = Waits(source.host_waits(program, shape, stage, mine), source.straggles(program))
                passes[key] = time_pass(program, durations, waits, self.layout)
        return passes

    def _run_passes(self, number: int, stages: list[StageStep]) -> None:
        free = [stage.first for stage in stages]
        late = [stage.first for stage in stages]
        sent: dict[tuple[str, int, int, int], Ints] = {}
        rng = np.random.default_rng([self.disturbances.seed, 5, number])
        last = self.job.micro_batches - 1
        for stage, kind, chunk, micro_batch in self._order.items:
            here, now = stages[stage], free[stage]
            origin = self._order.source.get((kind, chunk, stage))
            if origin is not None and origin[2] != stage:
                there = sent.pop((*origin, micro_batch))
                noise = np.exp(SEND_NOISE * rng.standard_normal()) if self.disturbances.noise else 1.0
                moving = np.rint(self.job.send_ns * noise * self.disturbances.hop(origin[2], stage)).astype(np.int64)
                name = _transfer_name(origin[0], origin[1], micro_batch)
                now = self._receive(here, name, now, there, moving=moving, sender=origin[2])
            if kind == "B" and micro_batch == last:
                now, behind = self._last_backward(number, here, stage, chunk, now)
                late[stage] = np.maximum(late[stage], behind)
            else:
                key = (chunk, kind)
                timed = here.passes[key]
                here.ready[key][micro_batch] = now
                if timed.parts is None:
                    now, here.moved[key][micro_batch] = _one(timed, micro_batch).placed(now, self.layout)
                else:
                    now = timed.exactly(now[None], self.layout, slice(micro_batch, micro_batch + 1)).end[0]
            here.ends[chunk, kind, micro_batch] = now
            consumer = self._order.target.get((kind, chunk, stage))
            if consumer is not None and consumer[2] != stage:
                sent[kind, chunk, stage, micro_batch] = now
                now = self._send(
                    here, stage, (kind, chunk, micro_batch), consumer[2], now, alone=origin is None or origin[0] != kind
                )
            free[stage] = now
        for stage, here in enumerate(stages):
            here.end = np.maximum(free[stage], late[stage])

    def _receive(self, here: StageStep, name: str, now: Ints, there: Ints, *, moving: Ints, sender: int) -> Ints:
        """Wait until the sender is `there`, then take what it sends."""
        wait = np.maximum(there - now, 0)
        here.transfers.append(Transfer(name, "receive", sender, now, wait + moving, wait))
        done: Ints = now + wait + moving
        return done

    def _send(self, here: StageStep, stage: int, what: tuple[str, int, int], peer: int, now: Ints, *, alone: bool) -> Ints:
        """Send the output of a pass; a pass that received nothing of its kind waits for it."""
        moving = np.rint(self.job.send_ns * self.disturbances.hop(stage, peer)).astype(np.int64)
        here.transfers.append(Transfer(_transfer_name(*what), "send", peer, now, moving, np.zeros_like(now)))
        return now + moving if alone else now

    def _last_backward(self, number: int, here: StageStep, stage: int, chunk: int, now: Ints) -> tuple[Ints, Ints]:
        """The backward pass that reduces gradients on its way: timed by the clock, since ranks meet in several groups."""
        program = self.job.stages[stage].programs[chunk, LAST_BACKWARD]
        timed = self._exactly(number, stage, program, now, 100 + chunk)
        here.exact.append(timed)
        return timed.end[0], timed.late[0]

    def _exactly(self, number: int, stage: int, program: Program, now: Ints, turn: int) -> Pass:
        source = self.disturbances
        rng = np.random.default_rng([source.seed, 2, number, stage, turn])
        shape = (1, self.layout.width)
        waits = Waits(source.host_waits(program, shape, stage), source.straggles(program))
        return time_pass(program, source.durations(program, shape, number, stage, rng), waits, self.layout, now[None])

    def _finish(self, number: int, stages: list[StageStep]) -> None:
        for stage, here in enumerate(stages):
            timed = self._exactly(number, stage, self.job.stages[stage].reduce, here.end, 200)
            here.exact.append(timed)
            here.end = timed.late[0]
        self._meet(number, stages)
        for stage, here in enumerate(stages):
            timed = self._exactly(number, stage, self.job.stages[stage].update, here.end, 201)
            here.exact.append(timed)
            here.end = timed.late[0]

    def _meet(self, number: int, stages: list[StageStep]) -> None:
        """The norm of the gradients: one all-reduce over all ranks, which ends when the last stage has got there."""
        if self.layout.world == 1:
            return
        last = max(int(here.end.max()) for here in stages)
        for stage, here in enumerate(stages):
            timed = self._exactly(number, stage, self.job.stages[stage].norm, here.end, 202)
            end = last + int(self.job.stages[stage].norm.base_ns[0])
            duration, wait = (end - here.end)[None, None], (last - here.end)[None, None]
            here.exact.append(replace(timed, start=here.end[None, None], duration=duration, wait=wait))
            here.end = np.full_like(here.end, end)


def _one(timed: Pass, micro_batch: int) -> Pass:
    """One micro batch of a pass, as far as `placed` needs it."""
    return replace(timed, end=timed.end[micro_batch], head=None if timed.head is None else timed.head[micro_batch])


def _transfer_name(kind: str, chunk: int, micro_batch: int) -> str:
    way = "forward" if kind == "F" else "backward"
    return f"{way}/chunk.{chunk}/{micro_batch}"
