"""Disturbances: how long operators really take on every rank and step: noise by seed, and the faults of single ranks and links.

Every number of a rank and step depends on the seed, the step and the stage only, so that any part can be drawn again alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from perfkit.core.units import NS_PER_S
from perfkit.predict.simulate.faults import ALL, Fault, linked_groups
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.operators import CODE
from perfkit.predict.simulate.program import Program
from perfkit.predict.simulate.stages import Job

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KERNEL_NOISE = 0.003
"""Spread of the time of one kernel on a healthy device with locked clocks."""
RANK_NOISE = 0.0005
COLLECTIVE_NOISE = 0.004
SEND_NOISE = 0.01
RETRY_NS = 900_000
"""What a retry of the allocator costs: free the cache, ask the driver again."""


@dataclass(frozen=True)
class Pause:
    """A stop of the host (`what`: gc or retry) before one operator of a pass, by rank of the stage."""

    what: str
    chunk: int
    kind: str
    micro_batch: int
    place: int
    pause_ns: Ints


@dataclass
class Disturbances:
    """The noise and the faults of a job; `noise` False draws none, for ranks that stand for many."""

    job: Job
    faults: Sequence[Fault]
    seed: int
    noise: bool = True
    _speeds: dict[int, Floats] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        """The layout of the job."""
        return self.job.layout

    def durations(self, program: Program, shape: tuple[int, int], step: int, stage: int, rng: np.random.Generator) -> Ints:
        """Time of every operator without waiting; `shape` is micro batches and ranks."""
        base = program.base_ns
        sigma = self._sigma()
        drawn = np.empty((len(program.ops), *shape), dtype=np.float64)
        if sigma:
            rng.standard_normal(out=drawn)
            drawn *= sigma
            np.exp(drawn, out=drawn)
            drawn *= base[:, None, None]
        else:
            drawn[:] = base[:, None, None]
        computing = np.array([op.code >= 0 for op in program.ops])
        drawn *= np.where(computing[:, None], self.speed(step, stage), 1.0)[:, None, :]
        for place in program.collectives:
            noise = np.exp(COLLECTIVE_NOISE * rng.standard_normal((shape[0], 1))) if self.noise else 1.0
            drawn[place] = base[place] * noise * self.link(program.ops[place].group, stage)
        for fault in self.faults:
            if fault.kind == "moe_imbalance":
                grouped = np.array([op.code == CODE["GroupedMatMul"] for op in program.ops])
                drawn[grouped] *= np.where(self._expert_place() == (fault.place or 0), fault.factor, 1.0)
        return np.rint(drawn).astype(np.int64)

    def host_waits(self, program: Program, shape: tuple[int, int], stage: int, pauses: Sequence[Pause] = ()) -> Ints:
        """The wait for the host before every operator, shape (operators, 1 or micro batches, 1 or ranks)."""
        wait = np.rint(program.gap_ns).astype(np.int64)[:, None, None]
        slow = [fault for fault in self.faults if fault.kind == "host_bound"]
        if not slow and not pauses:
            return wait
        full = np.array(np.broadcast_to(wait, (len(program.ops), *shape)))
        for fault in slow:
            full += self._host_waits(program, fault)[:, None, None] * self.struck(fault, stage)
        for pause in pauses:
            full[pause.place, pause.micro_batch] += pause.pause_ns
        return full

    def straggles(self, program: Program) -> Ints:
        """The wait for the slowest of many nodes before every operator, shape (operators, 1, 1)."""
        waits: Ints = np.rint(program.straggle_ns).astype(np.int64)[:, None, None]
        return waits

    def speed(self, step: int, stage: int) -> Floats:
        """Factor on the time of kernels by rank of a stage."""
        if stage not in self._speeds:
            drawn = np.random.default_rng([self.seed, 1, stage]).standard_normal(self.layout.stage_size)
            self._speeds[stage] = np.exp(RANK_NOISE * drawn)[self.layout.inner] if self.noise else np.ones(self.layout.width)
        speed = self._speeds[stage]
        for fault in self.faults:
            if fault.kind == "slow_rank" and fault.in_step(step):
                speed = np.where(self.struck(fault, stage), speed * fault.factor, speed)
        return speed

    def link(self, kind: str, stage: int) -> Floats:
        """Factor on the time of the collectives of a kind by rank of a stage; a slow link slows its whole group."""
        factor = np.ones(self.layout.width)
        for fault in self.faults:
            if fault.link is not None:
                for slow_kind, group in linked_groups(self.layout, fault.link):
                    if slow_kind == kind:
                        factor[self.layout.group_of(kind, stage) == group] *= fault.factor
        return factor

    def slowed(self, kind: str, rank: int) -> float:
        """Factor on the collectives of a rank's group of a kind."""
        stage, inner = divmod(rank, self.layout.stage_size)
        return float(self.link(kind, stage)[np.searchsorted(self.layout.inner, inner)])

    def slow_ends(self, kind: str, rank: int) -> dict[int, float]:
        """The ranks to which a rank's own links are slow in the collectives of a kind, and by what factor."""
        found: dict[int, float] = {}
        for fault in self.faults:
            if (
                fault.link is not None
                and rank in fault.link
                and any(slow == kind for slow, _ in linked_groups(self.layout, fault.link))
            ):
                other = fault.link[0] + fault.link[1] - rank
                found[other] = found.get(other, 1.0) * fault.factor
        return found

    def hop(self, sender: int, receiver: int) -> Floats:
        """Factor on the time of a transfer between two stages by rank of a stage."""
        factor = np.ones(self.layout.width)
        low = min(sender, receiver)
        for fault in self.faults:
            if fault.link is not None:
                ends = np.stack([self.layout.ranks(low), self.layout.ranks(max(sender, receiver))])
                factor[(ends[0] == fault.link[0]) & (ends[1] == fault.link[1])] *= fault.factor
        return factor

    def input_ns(self, step: int, stage: int) -> Ints:
        """When the first operator of a step can start after the step began: the host's work, and the wait for data."""
        host = np.full(self.layout.width, self.job.costs.step_host_s() * NS_PER_S)
        for fault in self.faults:
            if fault.kind == "host_bound":
                host = np.where(self.struck(fault, stage), host * fault.factor, host)
        if self.noise:
            host *= np.exp(0.02 * np.random.default_rng([self.seed, 3, step, stage]).standard_normal(self.layout.width))
        wait: Ints = np.rint(host).astype(np.int64)
        for fault in self.faults:
            if fault.kind == "data_stall" and fault.in_step(step):
                wait = wait + fault.duration_ns * self.struck(fault, stage)
        return wait

    def pauses(self, step: int, stage: int) -> list[Pause]:
        """Stops of the host in a step: pauses of the interpreter and retries of the allocator."""
        found: list[Pause] = []
        rng = np.random.default_rng([self.seed, 4, step, stage])
        for fault in self.faults:
            if fault.kind == "gc_pause":
                ranks = self.layout.ranks(stage)
                due = (step + (ranks if fault.rank == ALL else 0)) % fault.every == fault.every - 1
                found += self._drawn("gc", rng, stage, self.struck(fault, stage) & due, (fault.duration_ns, 1))
            elif fault.kind == "memory_fragmentation":
                found += self._drawn("retry", rng, stage, self.struck(fault, stage), (RETRY_NS, fault.count))
        return found

    def struck(self, fault: Fault, stage: int) -> npt.NDArray[np.bool_]:
        """Which ranks of a stage a fault concerns."""
        ranks = self.layout.ranks(stage)
        return np.ones(len(ranks), dtype=bool) if fault.rank in (None, ALL) else ranks == fault.rank

    def skew_ns(self, rank: int) -> int:
        """How far the clock of a rank is ahead."""
        return sum(fault.duration_ns for fault in self.faults if fault.kind == "clock_skew" and fault.rank == rank)

    def _drawn(
        self, what: str, rng: np.random.Generator, stage: int, struck: npt.NDArray[np.bool_], size: tuple[int, int]
    ) -> list[Pause]:
        pause_ns, count = size
        if not struck.any():
            return []
        programs = [(key, program) for key, program in self.job.stages[stage].programs.items() if key[1] == "F" and program.ops]
        found = []
        for _ in range(count if programs else 0):
            (chunk, kind), program = programs[int(rng.integers(len(programs)))]
            micro_batch, place = int(rng.integers(self.job.micro_batches)), int(rng.integers(len(program.ops)))
            found.append(Pause(what, chunk, kind, micro_batch, place, np.where(struck, pause_ns, 0)))
        return found

    def _sigma(self) -> float:
        jitter = [fault.factor for fault in self.faults if fault.kind == "jitter"]
        return float(np.hypot.reduce([KERNEL_NOISE if self.noise else 0.0, *jitter]))

    def _host_waits(self, program: Program, fault: Fault) -> Ints:
        """What a slower host adds before every operator of a layer."""
        costs, back = self.job.costs, not any(op.name.startswith("forward/") for op in program.ops)
        kinds = [replace(costs, kind=kind) for kind in range(len(costs.work.layers))]
        added = [kind.launch_waits_s(fault.factor)[back] - kind.launch_waits_s()[back] for kind in kinds]
        # Dense layers that lead are of the last kind; with layers of one kind that is the first one too.
        leading = costs.plan.model.num_dense_layers if len(kinds) > 1 else 0
        layers = [op.name.split("/")[1] if "/" in op.name else "" for op in program.ops]
        sizes = {layer: layers.count(layer) for layer in set(layers)}
        waits = [added[int(layer.rpartition(".")[2]) < leading] * NS_PER_S / sizes[layer] if layer else 0.0 for layer in layers]
        return np.rint(waits).astype(np.int64)

    def _expert_place(self) -> Ints:
        layout = self.layout
        places: Ints = (layout.inner // layout.tensor) % layout.expert
        return places
