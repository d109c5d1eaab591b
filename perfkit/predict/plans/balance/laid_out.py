"""Laid out: layers of a pipeline drawn: the schedule of a layout, the memory of its stages, what moving a layer changes.

    drawn = laid_out(problem, "6 7 8 7")
    drawn.schedule.makespan_ns, drawn.stages(), drawn.moves()

Given layers alone, every stage gets the fastest mix of recomputation that fits, and the leanest one where nothing fits. The
problem of a plan is priced at what is drawn, so that the step and the peaks are those of the estimate (`from_plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.config.export_text import Export, export_text
from perfkit.core.errors import InputError
from perfkit.core.looks import brief
from perfkit.core.texts import say
from perfkit.core.units import GIB, NS_PER_US, format_bytes
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import efficiency_of
from perfkit.predict.limits import with_limit
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.balance import BalanceProgress, PlanResult, balance, schedule_case
from perfkit.predict.plans.balance.config_lists import megatron_layout, mindformers_lists, mindformers_text
from perfkit.predict.plans.balance.from_plan import ROUNDS, PlanProblem, balanced, problem_of_plan
from perfkit.predict.plans.balance.moves import LayerPlanner, Layers, even_split, layers_text, parse_layers
from perfkit.predict.plans.balance.problem import KINDS, Layout, PipelineProblem, layers_of
from perfkit.predict.plans.schedule.schedule import ScheduleResult, simulate_schedule

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "zbh1": "ZB-H1",
    "vpp": "interleaved",
    "vpp_lm": "interleaved, less memory",
}
TRANSFERS = {"none": "ignored", "overlap": "overlapped", "sender": "sender waits", "rendezvous": "both wait"}
AS_CONFIGURED, FASTEST = "as configured", "the fastest that fits"
"""Which layers of the plan's own split are recomputed."""
Pipeline = PipelineProblem | PlanProblem
"""A case by itself, or the problem of a plan."""
MOST_MOVES = 12
_MOST = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class LaidOut:
    """A layout with its schedule and every stage's peak; `even_ns` is the step of the even split, None if it does not fit.

    `pipeline` is what it was laid out for: of a plan the problem before it was priced at this layout.
    """

    planner: LayerPlanner
    layout: Layout
    schedule: ScheduleResult
    peak_bytes: tuple[int, ...]
    even_ns: int | None
    pipeline: Pipeline

    @property
    def problem(self) -> PipelineProblem:
        """What the layout is one of."""
        return self.planner.problem

    @property
    def step_ns(self) -> int:
        """The schedule, and what follows it."""
        return self.schedule.makespan_ns + self.problem.closing_ns

    def told(self) -> tuple[str, ...]:
        """The step, the stage that decides it and what is not better than an even split, in a sentence; then what is wrong."""
        schedule, problem, limit = self.schedule, self.problem, self.problem.memory_limit_bytes
        busiest = int(np.argmax(schedule.stage_busy_ns))
        busy_ns = int(schedule.stage_busy_ns[busiest])
        text = say(
            "The step takes {step_time_ns}; stage {stage} works longest, {busy_ns} ({busy_share}), and the bubble is "
            "{bubble_ratio} of the work.",
            step_time_ns=self.step_ns,
            stage=str(busiest),
            busy_ns=busy_ns,
            busy_share=busy_ns / max(1, self.step_ns),
            bubble_ratio=schedule.bubble_over_work,
        )
        change_ns = self.step_ns - (self.even_ns or self.step_ns)
        if change_ns:
            if self._is_even():
                longer = "{text} That is longer than the same split with its fastest recomputation."
                shorter = "{text} That is shorter than the same split with its fastest recomputation."
            else:
                longer = "{text} That is longer than with an even split and its fastest recomputation."
                shorter = "{text} That is shorter than with an even split and its fastest recomputation."
            text = say(longer if change_ns > 0 else shorter, text=text)
        notes: list[str] = [say("Assumed: {assumed}.", assumed=assumed) for assumed in problem.assumptions]
        over = [] if limit is None else [stage for stage, peak in enumerate(self.peak_bytes) if peak > limit]
        if over:
            stages = ("stage " if len(over) == 1 else "stages ") + ", ".join(map(str, over))
            own = isinstance(self.pipeline, PlanProblem) and np.array_equal(self.layout, self.pipeline.start)
            how = "as configured" if own else "even with the leanest recomputation"
            notes.append(f"Does not fit: {stages} would need more than {format_bytes(limit)} {how}.")
        return (text, *notes)

    def gain_text(self) -> str:
        """How much faster the layout is than the even split, in a sentence, and how long the plan takes as it is."""
        text = self._gain_text()
        if not isinstance(self.pipeline, PlanProblem):
            return text
        evaluator = Evaluator(self.pipeline.problem)
        own_ns = int(evaluator.makespans_ns(self.pipeline.start[None])[0]) + self.pipeline.problem.closing_ns
        return say("{text} As it is configured it takes {own_step_time_ns}.", text=text, own_step_time_ns=own_ns)

    def _is_even(self) -> bool:
        """Whether the layers are those of the even split, however they are recomputed."""
        problem = self.problem
        return layers_of(self.layout) == even_split(problem.num_layers, problem.num_chunks, problem.num_stages)

    def _gain_text(self) -> str:
        if not self.even_ns:
            return "An even split of the layers does not fit."
        gain_ns = self.even_ns - self.step_ns
        faster = "{gain_ratio} faster than the even split with its fastest recomputation ({even_step_time_ns})."
        slower = "{gain_ratio} slower than the even split with its fastest recomputation ({even_step_time_ns})."
        equal = "As fast as the even split with its fastest recomputation ({even_step_time_ns})."
        form = faster if gain_ns > 0 else slower if gain_ns else equal
        return say(form, gain_ratio=abs(gain_ns) / self.even_ns, even_step_time_ns=self.even_ns)

    def stages(self) -> pd.DataFrame:
        """One row a stage: `layers` by chunk, recomputed layers by kind, times, micro batches in flight, memory.

        `busy_ns`, `idle_ns` and, of a plan, `after_the_pipeline_ns` sum to the step.
        """
        problem, schedule, limit = self.problem, self.schedule, self.problem.memory_limit_bytes
        columns: dict[str, Any] = {
            "stage": range(problem.num_stages),
            "layers": [" + ".join(map(str, chunks)) for chunks in zip(*layers_of(self.layout), strict=True)],
        }
        for kind in KINDS[1:]:
            own = [index for index, variety in enumerate(problem.varieties) if variety.kind == kind]
            if own and self.layout[own].any():
                columns[kind] = self.layout[own].sum(axis=(0, 1)).tolist()
        columns |= {
            "busy_ns": list(schedule.stage_busy_ns),
            "idle_ns": list(schedule.stage_idle_ns),
            **({"after_the_pipeline_ns": problem.closing_ns, "step_time_ns": self.step_ns} if problem.closing_ns else {}),
            "in_flight": list(schedule.peak_inflight_chunks),
            "memory_bytes": list(self.peak_bytes),
            "free_bytes": [None if limit is None else limit - peak for peak in self.peak_bytes],
        }
        return brief(pd.DataFrame(columns), "stage", "layers", "busy_ns", "idle_ns", "memory_bytes", "free_bytes")

    def moves(self, most: int = MOST_MOVES, check: Callable[[], None] = lambda: None) -> pd.DataFrame:
        """The best moves of one layer (`LayerPlanner.moves`), which take longer than all the rest.

        Before and after a move a stage has its fastest recomputation, so that what is told is what the move does alone.
        """
        return self.planner.moves(self.planner.layout(layers_of(self.layout)), most=most, check=check)

    def recompute_ns(self) -> list[list[int]]:
        """By chunk and stage, what the backward of one micro batch repeats of the forward."""
        extra = np.zeros(self.layout.shape[1:], dtype=np.int64)
        for variety, counts in zip(self.problem.varieties, self.layout, strict=True):
            kinds = self.problem.body[variety.type].kinds
            if "none" in kinds:
                extra += counts * (kinds[variety.kind].bwd_ns - kinds["none"].bwd_ns)
        return [[max(0, int(value)) for value in row] for row in extra]

    def memory_parts(self) -> dict[str, list[int]]:
        """Bytes of every stage by part: what layers do not explain, parameters with their states, activations; sum is the peaks."""
        problem, evaluator = self.problem, self.planner.evaluator
        parameters = np.tensordot(self.layout, evaluator.param_bytes, (0, 0)) + evaluator.fixed["param_bytes"]
        static = [int(amount) for amount in parameters.sum(axis=0)]
        besides = evaluator.stage_bytes[evaluator.lead(self.layout[:, -1].T), np.arange(problem.num_stages)]
        constant = [problem.const_bytes + amount for amount in besides.tolist()]
        kept = [peak - other - held for peak, other, held in zip(self.peak_bytes, constant, static, strict=True)]
        return {"constant": constant, "parameters": static, "activations": kept}

    def exports(self) -> tuple[Export, ...]:
        """The layout in words of MindFormers and Megatron; of a plan its whole file too, as `perfkit balance --out` writes it."""
        lists = mindformers_text(mindformers_lists(self.problem, self.layout))
        option = f"--pipeline-model-parallel-layout '{megatron_layout(self.layout)}'"
        return Export("MindFormers", lists, "yaml"), Export("Megatron", option, "sh"), *self._written()

    def _written(self) -> tuple[Export, ...]:
        if not isinstance(self.pipeline, PlanProblem) or (document := self.pipeline.plan.document) is None:
            return ()
        plan, limit = self.pipeline.plan_of(self.layout), self.problem.memory_limit_bytes
        if plan.usable_memory is None or plan.usable_memory.limit_bytes != limit:
            plan = with_limit(plan, limit, self.problem.memory_limit_source)
        return (export_text(plan, document.dialect, whole=True),)


def laid_out(pipeline: Pipeline, layers: str | Layout) -> LaidOut:
    """A layout, or layers as text (`layers_text`), simulated; raises InputError if the layers are no split of the model."""
    problem = case_of(pipeline)
    asked = parse_layers(layers) if isinstance(layers, str) else layers
    planner, layout = _planned(pipeline, asked)
    split = even_split(problem.num_layers, problem.num_chunks, problem.num_stages)
    same = not isinstance(asked, np.ndarray) and asked == split
    even_planner, even = (planner, layout) if same else _planned(pipeline, split)
    schedule = simulate_schedule(schedule_case(planner.problem, layout))
    even_ns = None
    if even_planner.evaluator.fits(even[None])[0]:
        alike = np.array_equal(layout, even)
        makespan_ns = schedule.makespan_ns if alike else int(even_planner.evaluator.makespans_ns(even[None])[0])
        even_ns = makespan_ns + even_planner.problem.closing_ns
    peaks = tuple(planner.evaluator.peaks_bytes(layout[None])[0].tolist())
    return LaidOut(planner=planner, layout=layout, schedule=schedule, peak_bytes=peaks, even_ns=even_ns, pipeline=pipeline)


def recomputed(pipeline: Pipeline, layers: str, recompute: str) -> str | Layout:
    """What to lay out: the plan's own layout where `layers` are its own and `recompute` is `AS_CONFIGURED`, else the layers."""
    if recompute == AS_CONFIGURED and isinstance(pipeline, PlanProblem):
        own = [list(row) for row in pipeline.plan.stage_layers]
        return pipeline.start if parse_layers(layers) == own else layers
    return layers


def _planned(pipeline: Pipeline, layers: Layers | Layout) -> tuple[LayerPlanner, Layout]:
    """A layout, or layers with their fastest recomputation; the problem of a plan is priced there, as in `balanced`."""
    planner = LayerPlanner(case_of(pipeline))
    layout = layers if isinstance(layers, np.ndarray) else planner.layout(layers)
    if not isinstance(pipeline, PlanProblem):
        return planner, layout
    # Lists of first layers cannot say every layout: what is drawn is the one that can be written.
    layout = pipeline.written(layout)
    for _ in range(ROUNDS):
        planner = LayerPlanner(pipeline.priced_at(layout).problem)
        again = layout if isinstance(layers, np.ndarray) else pipeline.written(planner.layout(layers))
        if np.array_equal(again, layout):
            return planner, layout
        layout = again
    return LayerPlanner(pipeline.priced_at(layout).problem), layout


def case_of(pipeline: Pipeline) -> PipelineProblem:
    """The case by itself."""
    return pipeline.problem if isinstance(pipeline, PlanProblem) else pipeline


def own_layers(problem: Pipeline, num_stages: int, num_chunks: int) -> str:
    """The layers that the plan has on its own stages and chunks, as text; the even split on others, and for a case."""
    case = case_of(problem)
    if isinstance(problem, PlanProblem) and (num_stages, num_chunks) == (case.num_stages, case.num_chunks):
        return layers_text(problem.plan.stage_layers)
    return layers_text(even_split(case.num_layers, num_chunks, num_stages))


def best_layout(
    pipeline: Pipeline, *, time_limit_s: float = 60.0, progress: Callable[[BalanceProgress], bool | None] | None = None
) -> PlanResult:
    """The best layout of a case (`balance`) or of the problem of a plan (`balanced`)."""
    if isinstance(pipeline, PlanProblem):
        return balanced(pipeline, time_limit_s=time_limit_s, progress=progress)
    return balance(pipeline, time_limit_s=time_limit_s, progress=progress)


def moves_table(moves: pd.DataFrame) -> pd.DataFrame:
    """Moves as a page shows them: `from_stage`, `to_stage`, `change_ns` of the step, `memory`, `layers` after the move."""
    shown = moves.rename(columns={"from": "from_stage", "to": "to_stage"})
    shown.insert(3, "memory", ["fits" if fits else "too much" for fits in moves["fits"]])
    shown.attrs = {"labels": {"layers": "layers after the move", "change_ns": "change of the step"}}
    return shown.drop(columns="fits")


def moves_told(moves: pd.DataFrame, layers: str) -> str:
    """The best move from `layers`, in a sentence."""
    if moves.empty:
        return "No layer can be moved."
    best = moves.iloc[0]
    won_ns = -int(best["change_ns"])
    if won_ns <= 0:
        return say("No single move from {layers} makes the step shorter.", layers=layers)
    fits = "From {layers}: one layer from {first} to {last} saves {won_ns} a step."
    too_large = "From {layers}: one layer from {first} to {last} saves {won_ns} a step, but it does not fit."
    form = fits if best["fits"] else too_large
    return say(form, layers=layers, first=str(best["from"]), last=str(best["to"]), won_ns=won_ns)


def changed_problem(pipeline: Pipeline, *, limit_gib: float, p2p_us: float, **sizes: Any) -> Pipeline:
    """The pipeline with other fields (`sizes`), a limit in GiB (0: none) and a transfer between stages in microseconds.

    The limit keeps its source as long as it is the problem's own. Stages, chunks and micro batches of a plan change the plan, from
    which its problem is made anew. Raises InputError with every contradiction.
    """
    if isinstance(pipeline, PlanProblem):
        pipeline = _changed_plan_problem(pipeline, **sizes)
        sizes = {"schedule": sizes.get("schedule", pipeline.problem.schedule), "p2p_mode": sizes.get("p2p_mode", "none")}
    problem = case_of(pipeline)
    asked = round(limit_gib * GIB) if limit_gib > 0 else None
    own = asked == problem.memory_limit_bytes
    source = problem.memory_limit_source if own else f"limit_gib = {limit_gib:g}" if asked else ""
    limit = {"memory_limit_bytes": asked, "memory_limit_source": source}
    changed = replace(problem, **{**sizes, **limit, "p2p_ns": round(p2p_us * NS_PER_US)})
    if not isinstance(pipeline, PlanProblem):
        return changed
    found = replace(pipeline, problem=changed)
    return found if changed.schedule == problem.schedule else found.priced_at(found.start)


def _changed_plan_problem(found: PlanProblem, **sizes: Any) -> PlanProblem:
    problem, plan = found.problem, found.plan
    fields = {"num_stages": "pipeline_parallel_size", "num_chunks": "virtual_pipeline_parallel_size"}
    changes = {
        field: sizes[name] for name, field in fields.items() if sizes.get(name, getattr(problem, name)) != getattr(problem, name)
    }
    micro_batches = sizes.get("num_microbatches", problem.num_microbatches)
    if micro_batches != problem.num_microbatches:
        whole, rest = divmod(plan.workload.global_batch_size * micro_batches, problem.num_microbatches)
        if rest:
            parts = problem.micro_batch_copies * problem.sequence_chunks
            raise InputError("pipeline", [f"num_microbatches = {micro_batches} must be a multiple of {parts}, the parts of each"])
        changes["global_batch_size"] = whole
    if not changes:
        return found
    changed = changed_plan(plan, **changes)
    return problem_of_plan(changed, efficiency_of(changed))


def schedules_of(problem: Pipeline, num_chunks: int) -> list[tuple[str, str]]:
    """The schedules that so many chunks allow, as title and name."""
    split = any(kind.wgrad_ns for part in case_of(problem).body for kind in part.kinds.values())
    names = ("vpp", "vpp_lm") if num_chunks > 1 else ("1f1b", "gpipe", "zbh1") if split else ("1f1b", "gpipe")
    return [(SCHEDULES[name], name) for name in names]


def transfers_of(schedule: str) -> list[tuple[str, str]]:
    """How stages may send to each other under a schedule, as title and name."""
    return [(title, name) for name, title in TRANSFERS.items() if name != "rendezvous" or schedule in ("1f1b", "gpipe")]


def stages_of(problem: Pipeline, num_chunks: int) -> list[int]:
    """Numbers of stages for which there are enough layers beside so many chunks; a plan without stages has no pipeline."""
    case, least = case_of(problem), 2 if isinstance(problem, PlanProblem) else 1
    return list(range(least, min(_MOST, case.num_layers // max(1, num_chunks or case.num_chunks)) + 1)) or [least]


def chunks_of(problem: Pipeline, num_stages: int) -> list[int]:
    """Chunks a stage for which there are enough layers beside so many stages."""
    return stages_of(case_of(problem), num_stages)
