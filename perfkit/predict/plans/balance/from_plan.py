"""From a plan to a pipeline problem and back: layer times and memory out of the calculators, or scaled to a measured run.

A layer's time is that of the step model for the mean layer of its type, once for every kind of recomputation. Memory is that of the
memory model: what a layer keeps, its parameters with gradients and optimizer state, and what the first and last stage have besides.
What does not grow with layers is one constant, the largest of all stages, so that the balance never promises more room than
`perfkit estimate` finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.config.dialects.compare import full_everywhere
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.cost.again import dense_of
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.stage_columns import FORWARD_SHARE
from perfkit.predict.cost.work_columns import micro_batch_work
from perfkit.predict.limits import with_limit
from perfkit.predict.memory import activations
from perfkit.predict.memory.memory import peak_memory, static_of
from perfkit.predict.memory.settings import MemorySettings, settings_for
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.config_lists import layout_of_lists
from perfkit.predict.plans.balance.problem import EndPart, Kind, LayerType, Layout, PipelineProblem
from perfkit.predict.plans.balance.recompute_options import again_s

SELECT = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanProblem:
    """The problem of a plan, the patterns that its kind "select" repeats, and the plan."""

    problem: PipelineProblem
    plan: Plan
    select: tuple[str, ...]

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
        """The plan with the layers and recomputation of a layout; select and communication counts include the full layers."""
        problem = self.problem
        rows = {kind: _of_kind(problem, layout, kind) for kind in ("full", "both", "select", "comm")}
        select, comm = rows["full"] + rows["both"] + rows["select"], rows["full"] + rows["both"] + rows["comm"]
        layers = _counts(layout.sum(axis=0))
        even = len({count for row in layers for count in row}) == 1
        recompute = RecomputePlan(
            full_layers=_counts(rows["full"]) if rows["full"].any() else (),
            operators=dict.fromkeys(self.select, _counts(select)) if (rows["both"] + rows["select"]).any() else {},
            communication=_counts(comm) if (rows["both"] + rows["comm"]).any() else (),
        )
        parallel = replace(self.plan.parallel, layers_per_stage=None if even else layers)
        return replace(self.plan, parallel=parallel, recompute=recompute)


def problem_of_plan(
    plan: Plan, efficiency: Efficiency, *, memory_limit_bytes: float | str | None = None, settings: MemorySettings | None = None
) -> PlanProblem:
    """The pipeline problem of a plan with stages, under its own memory limit unless another is given.

    Raises InputError if it has no stages, or no device to take times from.
    """
    problems = []
    if plan.parallel.pipeline_parallel_size == 1:
        problems.append("pipeline_parallel_size = 1: there is only one stage; balance needs at least two")
    if plan.hardware is None:
        problems.append("the configuration names no device; name one to take times from")
    if problems:
        raise InputError("balance", problems)
    plan = with_limit(plan, memory_limit_bytes)
    usable = plan.usable_memory
    settings = settings or settings_for(plan)
    select = tuple(plan.recompute.operators) or SELECT
    types = [_layer_type(one, efficiency, settings, select) for one in _types(plan)]
    head, tail = _ends(plan, efficiency, settings, types)
    problem = PipelineProblem(
        schedule="vpp" if plan.parallel.virtual_pipeline_parallel_size > 1 else "1f1b",
        num_stages=plan.parallel.pipeline_parallel_size,
        num_chunks=plan.parallel.virtual_pipeline_parallel_size,
        num_microbatches=plan.num_micro_batches,
        body=tuple(types),
        head=head,
        tail=tail,
        memory_limit_bytes=None if usable is None else usable.limit_bytes,
        memory_limit_source="" if usable is None else usable.source,
        assumptions=("times and memory are predicted by the calculators, not measured", f"select repeats {', '.join(select)}"),
    )
    return PlanProblem(problem=_with_constant(problem, plan, settings, select), plan=plan, select=select)


def scaled(found: PlanProblem, measured_stage_s: Sequence[float | None]) -> PlanProblem:
    """The problem with layer times scaled to a run: `measured_stage_s` is what each stage computed in a step, None if unknown.

    Every stage gives the ratio of measured to predicted computing; the median of those that are known scales all times. Raises
    InputError if no stage was measured.
    """
    problem = found.problem
    evaluator = Evaluator(problem)
    times = evaluator.chunk_times_ns(found.start()[None])[0].sum(axis=(0, 1)) * problem.num_microbatches / NS
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
    return replace(found, problem=changed)


def faster(part: EndPart | None, ratio: float) -> EndPart | None:
    """What the first or last stage has besides layers, with its times multiplied."""
    return part and replace(part, fwd_ns=round(part.fwd_ns * ratio), bwd_ns=round(part.bwd_ns * ratio))


def _types(plan: Plan) -> list[tuple[Plan, str, int]]:
    """The plan with a body of one layer type only, for every type: leading dense layers, then those with experts."""
    model = plan.model
    if not model.num_experts:
        return [(plan, "layer", model.num_layers)]
    alike = replace(plan, parallel=replace(plan.parallel, layers_per_stage=None))
    mixed, dense = replace(alike, model=replace(model, num_dense_layers=0)), dense_of(alike)
    found = [(dense, "dense layer", model.num_dense_layers), (mixed, "expert layer", model.num_layers - model.num_dense_layers)]
    return [one for one in found if one[2]]


def _layer_type(
    part: tuple[Plan, str, int], efficiency: Efficiency, settings: MemorySettings, select: tuple[str, ...]
) -> LayerType:
    plan, name, count = part
    layer = micro_batch_work(costs_of([replace(plan, recompute=RecomputePlan())]), efficiency).layers[0]
    forward, backward, full = (float(seconds[0]) for seconds in (layer.forward_s, layer.backward_s, layer.again_s[0]))
    chosen, gathered = again_s(plan, efficiency, select), again_s(plan, efficiency, (), communication=True)
    extra = {"none": 0.0, "select": chosen, "comm": gathered, "both": chosen + gathered, "full": full}
    kinds = {
        kind: Kind(bwd_ns=round((backward + extra[kind]) * NS), act_bytes=round(_kept(plan, settings, kind, select)))
        for kind in extra
        if gathered or kind not in ("comm", "both")
    }
    least = {name: kind for name, kind in kinds.items() if name == "none" or kind.act_bytes < kinds["none"].act_bytes}
    return LayerType(
        name=name, count=count, fwd_ns=round(forward * NS), param_bytes=round(_layer_static(plan, settings)), kinds=least
    )


def _kept(plan: Plan, settings: MemorySettings, kind: str, select: tuple[str, ...]) -> float:
    """Bytes that one layer keeps of a micro batch."""
    scale = 1 + settings.fragmentation
    if kind == "full":
        return scale * activations.layer_input(plan)
    tensors = activations.layer_tensors(plan, settings, experts=plan.model.num_experts > 0)
    patterns = select if kind in ("select", "both") else ()
    return scale * sum(activations.kept_bytes(tensors, patterns, gather_again=kind in ("comm", "both")).values())


def _layer_static(plan: Plan, settings: MemorySettings) -> float:
    """Parameters, gradients and optimizer state of one layer: what a stage holds more with one layer more."""
    sizes = []
    least = max(1, min(4, plan.model.num_layers - 2))
    for first in (least, least + 1):
        stages = plan.parallel.pipeline_parallel_size
        rest = plan.model.num_layers - first
        row = (first, rest, *(0,) * (stages - 2))
        parallel = replace(plan.parallel, virtual_pipeline_parallel_size=1, layers_per_stage=(row,))
        sizes.append(_static(replace(plan, parallel=parallel, recompute=RecomputePlan()), settings, 0))
    return sizes[1] - sizes[0]


def _static(plan: Plan, settings: MemorySettings, stage: int) -> float:
    return (1 + settings.fragmentation) * float(static_of(plan, settings, stage).total)


def _ends(plan: Plan, efficiency: Efficiency, settings: MemorySettings, types: Sequence[LayerType]) -> tuple[EndPart, EndPart]:
    """Embedding and head: what the first and last stage have besides their layers."""
    work = micro_batch_work(costs_of([replace(plan, recompute=RecomputePlan())]), efficiency)
    embedding, head = float(work.embedding[0]), float(work.head.total[0])
    held = _per_stage(plan, types)
    last = plan.parallel.pipeline_parallel_size - 1
    first_bytes, last_bytes = (round(max(0.0, _static(plan, settings, stage) - held[stage])) for stage in (0, last))
    return (
        _end(embedding, first_bytes),
        _end(head, last_bytes),
    )


def _end(seconds: float, param_bytes: int) -> EndPart:
    forward = FORWARD_SHARE * seconds
    return EndPart(fwd_ns=round(forward * NS), bwd_ns=round((seconds - forward) * NS), param_bytes=param_bytes)


def _per_stage(plan: Plan, types: Sequence[LayerType]) -> list[float]:
    """Static bytes of the layers of every stage."""
    left = [part.count for part in types]
    held = [0.0] * plan.parallel.pipeline_parallel_size
    for row in plan.stage_layers:
        for stage, count in enumerate(row):
            rest = count
            for index, part in enumerate(types):
                taken = min(rest, left[index])
                left[index], rest = left[index] - taken, rest - taken
                held[stage] += taken * part.param_bytes
    return held


def _with_constant(problem: PipelineProblem, plan: Plan, settings: MemorySettings, select: tuple[str, ...]) -> PipelineProblem:
    """The problem with the bytes that no layer explains: the largest of all stages, with nothing, operators or all recomputed."""
    layers, evaluator = plan.stage_layers, Evaluator(problem)
    variants = {
        "none": RecomputePlan(),
        "select": RecomputePlan(operators=dict.fromkeys(select, layers)),
        "full": RecomputePlan(all_layers=True),
    }
    left = [0.0]
    for kind, recompute in variants.items():
        if all(kind in part.kinds for part in problem.body):
            found = peak_memory(replace(plan, recompute=recompute), schedule=problem.schedule, settings=settings).stages
            linear = evaluator.peaks_bytes(_layout(problem, plan, kind)[None])[0]
            left += [float(whole.total) - float(own) for whole, own in zip(found, linear, strict=True)]
    return replace(problem, const_bytes=round(max(left)))


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


def _of_kind(problem: PipelineProblem, layout: Layout, kind: str) -> Layout:
    rows = [index for index, variety in enumerate(problem.varieties) if variety.kind == kind]
    return np.asarray(layout[rows].sum(axis=0), dtype=np.int64)


def _counts(rows: Layout) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(count) for count in row) for row in rows)
