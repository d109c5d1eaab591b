"""From a plan to a pipeline problem and back: layer times and memory of the estimate, or scaled to a measured run.

What one layer more adds to a stage, by type and kind of recomputation, is the price of a layer; what a stage has besides is told
apart by stage. Both are exact where the estimate is a sum over layers. Where it is not (sharded parameters that computing hides in
part, the reduction after the last backward pass), they hold exactly for one layout and nearly for those beside it: `balanced`
prices again at its answer until the estimate of what it writes is what it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from perfkit.config.dialects.compare import full_everywhere
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan, uneven
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.relaid import respread
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.limits import with_limit
from perfkit.predict.memory import activations
from perfkit.predict.memory.memory import peak_memory, static_of
from perfkit.predict.memory.settings import MemorySettings, settings_for
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._prices import StagePrices, TypePlan, types_of
from perfkit.predict.plans.balance.balance import BalanceProgress, PlanResult, balance, time_problems
from perfkit.predict.plans.balance.config_lists import layout_of_lists
from perfkit.predict.plans.balance.problem import EndPart, Kind, LayerType, Layout, PipelineProblem

SELECT = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
ROUNDS = 4
"""Times that a problem is priced again at its own answer."""


@dataclass(frozen=True, kw_only=True)
class PlanProblem:
    """The problem of a plan, the patterns that its kind "select" repeats, the plan, and the estimate's prices of its layouts.

    Without `prices` the times are those of a run. `exact_at` is the layout that it was priced at last, under a schedule; `peaks`
    has the peak of every stage by schedule and layout: layouts with as many layers on each stage have three of four in common.
    """

    problem: PipelineProblem
    plan: Plan
    select: tuple[str, ...]
    prices: StagePrices | None
    exact_at: tuple[str, bytes] | None = None
    peaks: dict[tuple[str, bytes], Layout] = field(default_factory=dict, compare=False, repr=False)

    def priced_at(self, layout: Layout) -> PlanProblem:
        """The same problem with what its stages have besides layers, in time and memory, exact at this layout."""
        at = (self.problem.schedule, layout.tobytes())
        if self.exact_at == at:
            return self
        problem = replace(self.problem, stage_bytes=())
        if self.prices is not None:
            plain = replace(problem, pass_ns=(), closing_ns=0)
            pass_ns, closing_ns = self.prices.besides_ns(self.plan_of(layout), layout, Evaluator(plain))
            problem = replace(plain, pass_ns=pass_ns, closing_ns=closing_ns)
        problem = replace(problem, stage_bytes=self._stage_bytes(layout, Evaluator(problem)))
        return replace(self, problem=problem, exact_at=at)

    def written(self, layout: Layout) -> Layout:
        """The layout that the plan with the layers and recomputation of this one has."""
        return self.start if np.array_equal(layout, self.start) else replace(self, plan=self.plan_of(layout)).start

    def _stage_bytes(self, layout: Layout, plain: Evaluator) -> tuple[tuple[int, ...], ...]:
        """By what the last chunk recomputes and stage, the peak of the estimate less what layers explain; exact at the layout."""
        stages = np.arange(self.problem.num_stages)
        found = np.full((3, len(stages)), np.iinfo(np.int64).min)
        for kind in ("none", "select", "full"):
            alike = _all_of(self.problem, layout, kind)
            found[plain.lead(alike[:, -1].T), stages] = self._left_bytes(alike, plain)
        found[plain.lead(layout[:, -1].T), stages] = self._left_bytes(layout, plain)
        # What no layer type can do is never asked for.
        found = np.where(found == np.iinfo(np.int64).min, found.max(axis=0), found)
        return _counts(found)

    def _left_bytes(self, layout: Layout, plain: Evaluator) -> Layout:
        at = (self.problem.schedule, layout.tobytes())
        if at not in self.peaks:
            peaks = peak_memory(self.plan_of(layout), schedule=self.problem.schedule).stages
            self.peaks[at] = np.array([round(peak.total) for peak in peaks], dtype=np.int64)
        return np.asarray(self.peaks[at] - plain.peaks_bytes(layout[None])[0])

    @cached_property
    def start(self) -> Layout:
        """The plan's own layers and recomputation, to improve on; a layer that repeats any pattern counts as select."""
        problem, layers, recompute = self.problem, self.plan.stage_layers, self.plan.recompute
        none = tuple((0,) * len(row) for row in layers)
        full = layers if full_everywhere(recompute, layers) else recompute.full_layers or none
        chosen = np.max([np.array(counts) for counts in recompute.operators.values()] or [np.array(none)], axis=0)
        plain = _layout(problem, self.plan)
        types = [variety.type for variety in problem.varieties]
        by_type = np.stack(
            [plain[[index for index, own in enumerate(types) if own == kind]].sum(axis=0) for kind in sorted(set(types))]
        )
        return layout_of_lists(problem, by_type, np.array(full), chosen, np.array(recompute.communication or none))

    def plan_of(self, layout: Layout) -> Plan:
        """The plan with the layers and recomputation of a layout; select and communication counts include the full layers.

        Its own layout gives the plan as it is. In any other the core of attention is repeated where it was, and layers that wait on
        the host follow (`respread`) as far as they are not recomputed in full.
        """
        problem, now = self.problem, self.plan.recompute
        if np.array_equal(layout, self.start):
            return self.plan
        rows = {kind: _of_kind(problem, layout, kind) for kind in ("full", "both", "select", "comm")}
        select, comm = rows["full"] + rows["both"] + rows["select"], rows["full"] + rows["both"] + rows["comm"]
        layers = _counts(layout.sum(axis=0))
        swapped = respread(now, self.plan.stage_layers, layers).swapped_layers if now.swapped_layers else ()
        recompute = RecomputePlan(
            full_layers=_counts(rows["full"]) if rows["full"].any() else (),
            operators=dict.fromkeys(self.select, _counts(select)) if (rows["both"] + rows["select"]).any() else {},
            communication=_counts(comm) if (rows["both"] + rows["comm"]).any() else (),
            attention_core=now.attention_core,
            swapped_layers=_counts(np.minimum(swapped, layout.sum(axis=0) - rows["full"])) if swapped else (),
        )
        parallel = replace(self.plan.parallel, layers_per_stage=uneven(layers))
        return replace(self.plan, parallel=parallel, recompute=recompute)


def problem_of_plan(plan: Plan, efficiency: Efficiency, *, memory_limit_bytes: float | str | None = None) -> PlanProblem:
    """The pipeline problem of a plan with stages, under its own memory limit unless another is given.

    Raises InputError if it has no stages, or no device to take times from.
    """
    problems = []
    if plan.parallel.pipeline_parallel_size == 1:
        problems.append("pipeline_parallel_size = 1: there is only one stage; balance needs at least two")
    if plan.hardware is None:
        problems.append('hardware is not named; a balance needs the device, for example "Ascend-910B2"')
    if problems:
        raise InputError("balance", problems)
    plan = with_limit(plan, memory_limit_bytes)
    usable, parallel = plan.usable_memory, plan.parallel
    select = tuple(plan.recompute.operators) or SELECT
    types = types_of(plan)
    prices = StagePrices.of(plan, efficiency, types, select)
    head, tail = prices.ends()
    copies, pieces = parallel.micro_batch_interleave_size, parallel.sequence_chunks
    problem = PipelineProblem(
        schedule="vpp" if parallel.virtual_pipeline_parallel_size > 1 else "1f1b",
        num_stages=parallel.pipeline_parallel_size,
        num_chunks=parallel.virtual_pipeline_parallel_size,
        num_microbatches=plan.num_micro_batches * copies * pieces,
        body=tuple(_layer_type(part, prices, index, select) for index, part in enumerate(types)),
        head=head,
        tail=tail,
        memory_limit_bytes=None if usable is None else usable.limit_bytes,
        memory_limit_source="" if usable is None else usable.source,
        micro_batch_copies=copies,
        sequence_chunks=pieces,
        assumptions=(say("times and memory are predicted by the calculators, not measured"), *_kept_as_it_is(plan, select)),
    )
    found = PlanProblem(problem=problem, plan=plan, select=select, prices=prices)
    return found.priced_at(found.start)


def _kept_as_it_is(plan: Plan, select: Sequence[str]) -> Iterator[str]:
    # Patterns stand there with their dots escaped; who reads them wants the names.
    yield say("select repeats {operators}", operators=", ".join(select).replace("\\.", "."))
    if plan.recompute.attention_core:
        yield say("the core of attention is computed again in every layer, as in the plan")
    if any(map(any, plan.recompute.swapped_layers)):
        yield say("as many layers wait on the host as in the plan, where they are not recomputed in full")


def balanced(
    found: PlanProblem, *, time_limit_s: float = 60.0, progress: Callable[[BalanceProgress], bool | None] | None = None
) -> PlanResult:
    """The best layout of a plan's problem, in the times and bytes that the estimate of the plan that is written gives it."""
    if problems := time_problems(time_limit_s):
        raise InputError("balance", problems)
    until, start = time.monotonic() + time_limit_s, found.written(found.start)
    found = found.priced_at(start)
    best = _priced(PlanResult(problem=found.problem, status="time_limit", layout=start, makespan_ns=0, bound_ns=0), found, start)
    for _ in range(ROUNDS):
        result = balance(found.problem, time_limit_s=max(0.0, until - time.monotonic()), progress=progress, start=start)
        if result.layout is None:
            return best or result
        # Lists of first layers cannot say every layout: what counts is the one that is written.
        layout = found.written(result.layout)
        found = found.priced_at(layout)
        answer = _priced(result, found, layout)
        if answer is not None and (best is None or _ns(answer) <= _ns(best)):
            best = answer
        if answer is not None and np.array_equal(layout, start):
            break
        start = layout
    return best or replace(result, status="time_limit", layout=None, makespan_ns=None, bound_ns=None)


def _ns(result: PlanResult) -> int:
    return result.makespan_ns or 0


def _priced(result: PlanResult, found: PlanProblem, layout: Layout) -> PlanResult | None:
    """The result with a layout at which the problem is priced; None if it does not fit."""
    problem, evaluator = found.problem, Evaluator(found.problem)
    if not evaluator.fits(layout[None])[0]:
        return None
    makespan_ns = int(evaluator.makespans_ns(layout[None])[0]) + problem.closing_ns
    bound_ns = (result.bound_ns or 0) + makespan_ns - _ns(result)
    return replace(
        result,
        problem=problem,
        layout=layout,
        makespan_ns=makespan_ns,
        bound_ns=max(0, min(makespan_ns, bound_ns)) if result.bound_ns else 0,
        peak_bytes=tuple(evaluator.peaks_bytes(layout[None])[0].tolist()),
    )


def scaled(found: PlanProblem, measured_stage_s: Sequence[float | None]) -> PlanProblem:
    """The problem with layer times scaled to a run: `measured_stage_s` is what each stage computed in a step, None if unknown.

    Every stage gives the ratio of measured to predicted computing; the median of those that are known scales all times. Raises
    InputError if no stage was measured.
    """
    problem = found.problem
    evaluator = Evaluator(problem)
    beside = np.array(problem.pass_ns or 0, dtype=np.int64)
    times = (evaluator.chunk_times_ns(found.start[None])[0][:2] - beside).sum(axis=(0, 1)) * problem.num_microbatches / NS_PER_S
    ratios = [measured / float(own) for measured, own in zip(measured_stage_s, times, strict=False) if measured and own]
    if not ratios:
        raise InputError("balance", ["no stage of the run has a measured computing time"])
    ratio = float(np.median(ratios))
    body = tuple(
        replace(
            part,
            fwd_ns=round(part.fwd_ns * ratio),
            kinds={name: replace(kind, bwd_ns=round(kind.bwd_ns * ratio)) for name, kind in part.kinds.items()},
        )
        for part in problem.body
    )
    note = f"times are scaled by {ratio:.4g}: the median of measured over predicted computing of {len(ratios)} stages"
    changed = replace(
        problem,
        body=body,
        head=faster(problem.head, ratio),
        tail=faster(problem.tail, ratio),
        assumptions=(*problem.assumptions, note),
    )
    return replace(found, problem=changed, prices=None, exact_at=None)


def faster(part: EndPart | None, ratio: float) -> EndPart | None:
    """What the first or last stage has besides layers, with its times multiplied."""
    return part and replace(part, fwd_ns=round(part.fwd_ns * ratio), bwd_ns=round(part.bwd_ns * ratio))


def _layer_type(part: TypePlan, prices: StagePrices, index: int, select: tuple[str, ...]) -> LayerType:
    settings = settings_for(part.plan)
    kept = {kind: _kept(part.plan, settings, kind, select) for kind in prices.kinds_of(index)}
    least = [kind for kind in kept if kind == "none" or kept[kind] < kept["none"]]
    forward_ns, backward_ns = prices.layer_ns(index)
    return LayerType(
        name=part.name,
        count=part.count,
        fwd_ns=forward_ns,
        param_bytes=round(_layer_static(part.plan, settings)),
        kinds={kind: Kind(bwd_ns=backward_ns[kind], act_bytes=round(kept[kind])) for kind in least},
        forward_first=part.forward_first,
    )


def _kept(plan: Plan, settings: MemorySettings, kind: str, select: tuple[str, ...]) -> float:
    """Bytes that one layer keeps of a micro batch."""
    scale = 1 + settings.fragmentation
    if kind == "full":
        return scale * activations.layer_input(plan)
    tensors = activations.layer_tensors(plan, settings, experts=plan.model.num_experts > 0)
    patterns = select if kind in ("select", "both") else ()
    kept = activations.kept_bytes(
        tensors, patterns, attention_core=plan.recompute.attention_core, gather_again=kind in ("comm", "both")
    )
    return scale * sum(kept.values())


def _layer_static(plan: Plan, settings: MemorySettings) -> float:
    """Parameters, gradients and optimizer state of one layer: what a stage holds more with one layer more."""
    sizes = []
    least = max(1, min(4, plan.model.num_layers - 2))
    for first in (least, least + 1):
        stages = plan.parallel.pipeline_parallel_size
        rest = plan.model.num_layers - first
        row = (first, rest, *(0,) * (stages - 2))
        parallel = replace(plan.parallel, virtual_pipeline_parallel_size=1, layers_per_stage=(row,))
        held = static_of(replace(plan, parallel=parallel, recompute=RecomputePlan()), settings, 0)
        sizes.append((1 + settings.fragmentation) * float(held.total))
    return sizes[1] - sizes[0]


def _layout(problem: PipelineProblem, plan: Plan, kind: str = "none") -> Layout:
    """The plan's layers, all of one kind of recomputation."""
    layout = np.zeros((len(problem.varieties), problem.num_chunks, problem.num_stages), dtype=np.int64)
    rows = {variety.type: index for index, variety in enumerate(problem.varieties) if variety.kind == kind}
    left = [part.count for part in problem.body]
    for chunk, row in enumerate(plan.stage_layers):
        for stage, count in enumerate(row):
            rest = count
            for index in range(len(left)):
                taken = min(rest, left[index])
                layout[rows[index], chunk, stage] += taken
                left[index], rest = left[index] - taken, rest - taken
    return layout


def _all_of(problem: PipelineProblem, layout: Layout, kind: str) -> Layout:
    """The layers of a layout, all of one kind of recomputation where their type knows it."""
    found, rows = np.zeros_like(layout), {variety: index for index, variety in enumerate(problem.varieties)}
    for own, variety in zip(layout, problem.varieties, strict=True):
        found[rows.get(variety._replace(kind=kind), rows[variety._replace(kind="none")])] += own
    return found


def _of_kind(problem: PipelineProblem, layout: Layout, kind: str) -> Layout:
    rows = [index for index, variety in enumerate(problem.varieties) if variety.kind == kind]
    return np.asarray(layout[rows].sum(axis=0), dtype=np.int64)


def _counts(rows: Layout) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(count) for count in row) for row in rows)
