"""Stages: the programs of every pipeline stage: forward and backward of each chunk, and what ends a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.core.units import NS_PER_S
from perfkit.predict.cost.again import SKIPPED, Again
from perfkit.predict.plans.schedule.order import Lane, lanes
from perfkit.predict.simulate.costs import Costs, Gradients, stage_layers
from perfkit.predict.simulate.faults import Fault
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.operators import CODE
from perfkit.predict.simulate.program import LayerPrograms, Op, Program, collective, gradient_messages

FORWARD, BACKWARD, LAST_BACKWARD = "F", "B", "Z"
Layers = Sequence[Sequence[Sequence[Again]]]
"""By chunk and stage what every layer computes again."""
WORLD_S = 3e-5
"""Time of the all-reduce of the gradients' norm over all ranks: its bytes are nothing, its latency is."""
SYNC_S = 4e-5
"""What a synchronisation of host and device costs: to notice the end, and to launch again."""


@dataclass(frozen=True)
class Stage:
    """The programs of a stage by (chunk, kind), its end of a step, and whether a pass waits for and sends to another stage."""

    number: int
    programs: Mapping[tuple[int, str], Program]
    reduce: Program
    norm: Program
    update: Program
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """Everything that a step of a plan does, without noise and faults of single ranks."""

    layout: Layout
    costs: Costs
    stages: tuple[Stage, ...]
    schedule: str
    lanes: tuple[Lane, ...]
    num_chunks: int
    send_ns: float
    boundary_bytes: int

    @property
    def micro_batches(self) -> int:
        """Micro batches of a step."""
        return self.costs.passes


def job_of(costs: Costs, layout: Layout, faults: Sequence[Fault] = ()) -> Job:
    """The job of a plan. Raises InputError if there is no schedule for its stages, chunks and micro batches."""
    chunks = costs.plan.parallel.virtual_pipeline_parallel_size
    schedule = "vpp" if chunks > 1 else "1f1b"
    order = lanes(schedule, layout.pipeline, chunks, costs.passes)
    rows = stage_layers(costs.plan, faults)
    build = _Builder(costs, layout, faults)
    return Job(
        layout=layout,
        costs=costs,
        stages=tuple(build.stage(stage, rows) for stage in range(layout.pipeline)),
        schedule=schedule,
        lanes=order,
        num_chunks=chunks,
        send_ns=costs.send_s() * NS_PER_S if layout.pipeline > 1 else 0.0,
        boundary_bytes=round(costs.boundary_bytes()),
    )


class _Builder:
    def __init__(self, costs: Costs, layout: Layout, faults: Sequence[Fault]) -> None:
        self._costs, self._layout = costs, layout
        self._layer = LayerPrograms(costs, faults)
        self._kinds = [LayerPrograms(replace(costs, kind=kind), faults) for kind in range(len(costs.work.layers))]
        self._split = max([1, *(fault.count for fault in faults if fault.kind == "small_messages")])
        self._syncs = sum(fault.count for fault in faults if fault.kind == "frequent_sync")

    def stage(self, number: int, rows: Layers) -> Stage:
        layers = [len(row[number]) for row in rows]
        every = [again for row in rows for again in row[number]]
        gradients = self._costs.gradients([row[number] for row in rows], number)
        programs = {
            (chunk, kind): self._pass(number, chunk, kind, rows, gradients)
            for chunk in range(len(layers))
            for kind in (FORWARD, BACKWARD, LAST_BACKWARD)
        }
        total = gradients.reduced + gradients.gathered
        hidden = 0.0 if gradients.always else min(total, gradients.hidden)
        reduced, gathered = max(gradients.reduced - hidden, 0.0), gradients.gathered - max(hidden - gradients.reduced, 0.0)
        if gradients.always or self._layout.size("dp") == 1:
            reduced = gathered = 0.0
        return Stage(
            number=number,
            programs=programs,
            reduce=self._program(self._messages(gradients, reduced, sum(layers), "reduce")),
            norm=self._program([collective("gradients.norm", "all_reduce", "world", WORLD_S, 4)] if self._layout.world > 1 else []),
            update=self._program(
                [*self._layer.optimizer(every, number), *self._messages(gradients, gathered, sum(layers), "gather")]
            ),
            layers=tuple(layers),
        )

    def _messages(self, gradients: Gradients, seconds: float, layers: int, moment: str) -> list[Op]:
        if not seconds:
            return []
        whole, num_bytes = (
            (gradients.reduced, gradients.reduced_bytes) if moment == "reduce" else (gradients.gathered, gradients.gathered_bytes)
        )
        count, each, size = gradient_messages(gradients, seconds, num_bytes * seconds / whole, layers + 1, self._split)
        operation = "all_gather" if moment == "gather" else "reduce_scatter" if gradients.sharded else "all_reduce"
        name = "parameters" if moment == "gather" else "gradients"
        return [collective(f"{name}.{moment}.{place}", operation, "dp", each, size) for place in range(count)]

    def _pass(self, stage: int, chunk: int, kind: str, rows: Layers, gradients: Gradients) -> Program:
        before = [layers for row in rows[:chunk] for layers in row] + [*rows[chunk][:stage]]
        numbered = list(enumerate(rows[chunk][stage], start=sum(map(len, before))))
        total = sum(len(row[stage]) for row in rows)
        behind = sum(again.way != SKIPPED for row in rows for again in row[stage])
        skipped = sum(again.way == SKIPPED for _, again in numbered)
        begins, ends = stage == 0 and chunk == 0, stage == self._layout.pipeline - 1 and chunk == len(rows) - 1
        ops: list[Op] = []
        out, back = (self._swap(seconds) for seconds in self._costs.swaps_s(rows[chunk][stage]))
        if kind == FORWARD:
            ops += self._layer.first(back=False) if begins else []
            for number, again in numbered:
                program = self._kinds[again.kind]
                ops += _in_layer(program.forward(self._gathered(gradients, total, back=False)), "forward", number)
            ops += out + (self._layer.last(back=False) if ends else [])
        else:
            ops += (self._layer.last(back=True) if ends else []) + back
            for place, (number, again) in reversed(list(enumerate(numbered))):
                # Nothing runs beside the gradients of the stage's first layer or chunk: they are what is reduced after the pass.
                sent = kind == LAST_BACKWARD and ((place > skipped and len(rows) == 1) or chunk > 0 or behind == 1)
                alone = len(rows[0][stage]) - (total - behind) if len(rows) > 1 else 1
                reduced = self._beside(gradients, max(behind - alone, 1)) if sent else []
                reduced += self._scattered(gradients, behind)
                program, gathered = self._kinds[again.kind], self._gathered(gradients, behind, back=True)
                ops += _in_layer(program.backward(again, gathered, reduced), "backward", number)
            ops += self._layer.first(back=True) if begins else []
        return self._program(ops, self._syncs, self._costs.straggler())

    @staticmethod
    def _swap(seconds: float) -> list[Op]:
        """What computing waits for copies of activations."""
        return [Op("activations.swap", CODE["Copy"], seconds * NS_PER_S)] if seconds else []

    def _beside(self, gradients: Gradients, layers: int) -> list[Op]:
        """What of the gradients of one of so many layers can be sent beside the last backward pass of the next one."""
        if gradients.always or self._layout.size("dp") == 1:
            return []
        seconds = min(gradients.reduced + gradients.gathered, gradients.hidden) / layers
        if not seconds:
            return []
        size = gradients.reduced_bytes / layers
        count, each, size_each = gradient_messages(gradients, seconds, size, 1, self._split)
        operation = "reduce_scatter" if gradients.sharded else "all_reduce"
        return [
            collective(f"gradients.reduce.{place}", operation, "dp", each, size_each, block=gradients.contention)
            for place in range(count)
        ]

    def _exposed(self, gradients: Gradients, *, back: bool) -> float:
        """Share of a pass's gathers and scatters (sharded parameters) that computing does not hide."""
        total = gradients.gathered_behind + gradients.reduced if back else gradients.gathered
        beside = min(total, gradients.hidden if back else gradients.hidden_ahead)
        return (total - beside + gradients.contention * beside) / total if total else 0.0

    def _gathered(self, gradients: Gradients, layers: int, *, back: bool) -> Op | None:
        if not gradients.always or self._layout.size("dp") == 1:
            return None
        seconds = gradients.gathered_behind if back else gradients.gathered
        size = gradients.gathered_bytes * seconds / gradients.gathered / max(layers, 1)
        return collective(
            "parameters.gather",
            "all_gather",
            "dp",
            seconds / max(layers, 1),
            size,
            block=self._exposed(gradients, back=back),
        )

    def _scattered(self, gradients: Gradients, layers: int) -> list[Op]:
        if not gradients.always or self._layout.size("dp") == 1:
            return []
        seconds, size = gradients.reduced / max(layers, 1), gradients.reduced_bytes / max(layers, 1)
        count, each, size_each = gradient_messages(gradients, seconds, size, 1, self._split)
        return [
            collective(
                f"gradients.reduce.{place}", "reduce_scatter", "dp", each, size_each, block=self._exposed(gradients, back=True)
            )
            for place in range(count)
        ]

    def _program(self, ops: list[Op], syncs: int = 0, straggler: float = 0.0) -> Program:
        """The operators, with the synchronisations of host and device spread over them."""
        for turn in range(min(syncs, len(ops))):
            op = ops[len(ops) * turn // syncs]
            op.gap_ns += SYNC_S * NS_PER_S
            op.sync = True
        return Program.of(ops, straggler)


def _in_layer(ops: list[Op], way: str, number: int) -> list[Op]:
    return [
        replace(
            op,
            name=f"recompute/layers.{number}/{op.name[10:]}"
            if op.name.startswith("recompute/")
            else f"{way}/layers.{number}/{op.name}",
        )
        for op in ops
    ]
