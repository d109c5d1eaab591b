"""Simulate: a plan as a run, with the tables that a recording of it would have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from perfkit.core import clock
from perfkit.core.errors import InputError, Problems
from perfkit.core.run import Fact, LazyTable, LazyTables, Run
from perfkit.core.source import Source
from perfkit.core.spec.plan import Plan
from perfkit.predict.calibration import Calibration
from perfkit.predict.estimate import efficiency_of
from perfkit.predict.simulate import host, tables
from perfkit.predict.simulate.costs import Costs
from perfkit.predict.simulate.disturbances import Disturbances
from perfkit.predict.simulate.events import StageEvents, StepTimes, stage_events, step_times
from perfkit.predict.simulate.faults import ALL, Fault, parse_faults
from perfkit.predict.simulate.lanes import Simulation, StageStep
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.memory import memory_curve
from perfkit.predict.simulate.passes import Pass
from perfkit.predict.simulate.stages import job_of

FORMAT = "perfkit-run"
MAX_RANKS = 1024
"""Jobs with more ranks are simulated by classes: replicas that nothing tells apart are one."""
MAX_PASSES = 50_000
"""Micro batches times ranks of a stage; the events of so many are drawn at once."""
MAX_STEPS = 1000
FIRST_STEP = 1
START_NS = 1_767_225_600_000_000_000
"""When a simulated run begins: 2026-01-01, UTC."""
KEPT_EVENTS = 4_000_000
"""Events of more than so many are not kept between steps but computed again where a table is asked for."""


def simulate(
    plan: Plan,
    faults: Iterable[str | Fault] = (),
    *,
    seed: int = 0,
    steps: int = 3,
    ranks: Sequence[int] | None = None,
    calibration: str | Calibration | None = None,
) -> Run:
    """The run of a plan: `steps` steps on every rank, as a profiler would record them; equal for equal arguments.

    `faults` are spelled as `FAULTS` lists them. `ranks` are those whose events are in the tables (all are simulated); without them
    all are, up to 1 024, and beyond that one replica and those that faults touch, each for all others like it. Raises InputError
    with everything that is wrong with the plan, the faults and the numbers.
    """
    prepared = prepare(plan, faults, seed=seed, steps=steps, ranks=ranks, calibration=calibration)
    return prepared.run()


@dataclass
class Prepared:
    """A simulation that is ready to run: what is in it was checked."""

    plan: Plan
    faults: tuple[Fault, ...]
    disturbances: Disturbances
    steps: int
    ranks: tuple[int, ...]
    notes: tuple[str, ...]
    calibration: str | Calibration | None = None
    _kept: list[list[StageStep]] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        """The layout with the replicas that are simulated."""
        return self.disturbances.layout

    def durations_ns(self) -> list[int]:
        """How long every step takes on the rank that needs longest."""
        simulation = Simulation(self.disturbances, START_NS)
        found = []
        for number in range(self.steps):
            stages = simulation.step(number)
            found.append(max(int((stage.end - stage.begin).max()) for stage in stages))
        return found

    def run(self) -> Run:
        """The run with its tables; those of events are made when they are asked for."""
        simulation = Simulation(self.disturbances, START_NS)
        times: list[list[StepTimes]] = []
        rows = 0
        for number in range(self.steps):
            stages = simulation.step(number)
            found = []
            for stage, step in enumerate(stages):
                events = self._events(step, step.passes, stage)
                rows += len(events.op) * self.layout.width
                found.append(step_times(step, events, self.layout))
            times.append(found)
            if rows > KEPT_EVENTS:
                for step in [step for kept in (*self._kept, stages) for step in kept]:
                    step.passes = {}
            self._kept.append(stages)
        return self._assembled(times, rows)

    def _assembled(self, times: Sequence[Sequence[StepTimes]], rows: int) -> Run:
        recorded = tables.Recorded(
            layout=self.layout,
            steps=tuple(range(FIRST_STEP, FIRST_STEP + self.steps)),
            times=times,
            events=self.events,
            disturbances=self.disturbances,
            wanted=self.ranks,
            rows=rows,
        )
        events = rows * len(self.ranks) // (self.layout.width * self.layout.pipeline)
        talks = self.layout.world > 1
        lazy = {
            "kernels": recorded.lazy("kernels", tables.kernels, events),
            "collectives": recorded.lazy("collectives", tables.collectives, None if talks else 0),
            "links": recorded.lazy("links", tables.links, None if talks else 0),
            "host": recorded.lazy("host", host.host_events, None),
            "launches": recorded.lazy("launches", host.launches, events),
            "steps": LazyTable.of(tables.table("steps", tables.steps(recorded))),
            "step_parts": LazyTable.of(tables.table("step_parts", tables.step_parts(recorded))),
            "groups": LazyTable.of(tables.table("groups", tables.groups(recorded))),
            "memory_curve": LazyTable.of(
                tables.table("memory_curve", memory_curve(self.disturbances, self._kept, recorded, self.faults))
            ),
        }
        run = Run(
            name=f"{self.plan.model.name or 'plan'}, {self.plan.num_devices} ranks, simulated",
            kind="simulated",
            format=FORMAT,
            tables=LazyTables(lazy),
            placement={rank: self.layout.position(rank) for rank in self.ranks},
            facts=_facts(self.plan),
            plan=self.plan,
            notes=self.notes,
            clock=dict.fromkeys(self.ranks, 0),
        )
        wrong = any(fault.kind == "clock_skew" for fault in self.faults)
        return replace(run, clock=clock.offsets(clock.estimate(run))) if wrong else run

    def events(self, place: int, stage: int) -> StageEvents:
        """The events of a stage in one of the steps."""
        step = self._kept[place][stage]
        passes = step.passes or Simulation(self.disturbances).passes_of(place, stage)
        return self._events(step, passes, stage)

    def _events(self, step: StageStep, passes: dict[tuple[int, str], Pass], stage: int) -> StageEvents:
        return stage_events(step, passes, self.layout, stage, self.disturbances.job.boundary_bytes)


def number_problems(steps: int, seed: int) -> list[str]:
    """What is wrong with the steps and the seed of a simulation."""
    found = [] if 1 <= steps <= MAX_STEPS else [f"steps = {steps} must be 1 to {MAX_STEPS}"]
    return found + ([] if seed >= 0 else [f"seed = {seed} must be at least 0"])


def prepare(
    plan: Plan,
    faults: Iterable[str | Fault] = (),
    *,
    seed: int = 0,
    steps: int = 3,
    ranks: Sequence[int] | None = None,
    calibration: str | Calibration | None = None,
) -> Prepared:
    """Check everything and set a simulation up, as `simulate` does."""
    problems, whole = Problems(), Layout.of(plan)
    parsed: tuple[Fault, ...] = ()
    with problems.of():
        parsed = parse_faults(faults, whole)
    problems += number_problems(steps, seed)
    outside = sorted(rank for rank in set(ranks or ()) if not 0 <= rank < whole.world)
    if outside:
        problems.append(f"ranks = {', '.join(map(str, outside[:8]))}: the plan has ranks 0 to {whole.world - 1}")
    try:
        eff = efficiency_of(plan, calibration) if plan.hardware else None
        layout = Layout.of(plan, _replicas(whole, parsed, ranks or ()))
        num_passes = plan.num_micro_batches * plan.parallel.micro_batch_interleave_size
        if layout.width * num_passes > MAX_PASSES:
            text = (
                f"{num_passes} micro batches on {layout.width} ranks of a stage; at most {MAX_PASSES} passes a stage are simulated"
            )
            raise InputError("simulate", [f"global_batch_size = {plan.workload.global_batch_size} gives {text}"])
        job = job_of(Costs.of_plan(plan, eff, parsed), layout, parsed) if eff else None
        if job is None:
            problems.append('hardware is not named; a simulation needs the device, for example "Ascend-910B2"')
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError("simulate", problems)
    assert job is not None
    classes = len(layout.replicas) < whole.data
    disturbances = Disturbances(job, parsed, seed, noise=not classes)
    wanted = (
        tuple(sorted(set(ranks))) if ranks else tuple(int(rank) for stage in range(layout.pipeline) for rank in layout.ranks(stage))
    )
    notes = (
        [f"of {whole.data} replicas {len(layout.replicas)} are simulated; the others do the same as replica {layout.replicas[-1]}"]
        if classes
        else []
    )
    return Prepared(plan, parsed, disturbances, steps, wanted, tuple(notes), calibration)


def _replicas(whole: Layout, faults: Sequence[Fault], ranks: Sequence[int]) -> tuple[int, ...] | None:
    """All replicas of a job that is small enough, else those that something tells apart, and one for the others."""
    if whole.world <= MAX_RANKS:
        return None
    touched = {rank for fault in faults for rank in ((fault.rank,) if fault.rank not in (None, ALL) else fault.link or ())}
    found = {whole.position(int(rank)).data or 0 for rank in {*touched, *ranks}}
    rest = next((replica for replica in range(whole.data) if replica not in found), None)
    return tuple(sorted(found)) if rest is None else tuple(sorted({*found, rest}))


def _facts(plan: Plan) -> dict[str, Fact]:
    stated: dict[str, int | float | str] = {
        "num_devices": plan.num_devices,
        "global_batch_size": plan.workload.global_batch_size,
        "micro_batch_size": plan.workload.micro_batch_size,
        "seq_length": plan.workload.seq_length,
        "data_parallel_size": plan.parallel.data_parallel_size,
        "tensor_parallel_size": plan.parallel.tensor_parallel_size,
        "pipeline_parallel_size": plan.parallel.pipeline_parallel_size,
        "context_parallel_size": plan.parallel.context_parallel_size,
        "expert_parallel_size": plan.parallel.expert_parallel_size,
    }
    device: dict[str, int | float | str] = {"device_name": plan.hardware.name} if plan.hardware else {}
    return {name: Fact(value=value, source=Source("simulated", "plan", name)) for name, value in {**stated, **device}.items()}
