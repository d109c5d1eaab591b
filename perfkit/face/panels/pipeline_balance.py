"""Pipeline balance: the schedule of a layout as a picture, what moving a layer changes, and the best layout with its proof.

A layout is even, edited or solved. For edited layers recomputation follows: the least of every stage that fits. A solve can be
cancelled; its best layout so far is then shown with its gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.units import format_bytes, format_ns, format_ratio
from perfkit.face.charts.schedule import memory_bars, memory_rows, picture_height, schedule_picture, schedule_rows
from perfkit.face.panels._pipeline_solve import solve
from perfkit.face.panels._pipeline_state import (
    SCHEDULE_NAMES,
    State,
    case_options,
    counts_of,
    problem_of,
    schedule_options,
    start,
    transfer_options,
)
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider, Text
from perfkit.face.widgets.panel import Answer, Code, Panel
from perfkit.face.widgets.table import Table
from perfkit.face.widgets.worker import Progress
from perfkit.predict.plans.balance.balance import PlanResult, schedule_case
from perfkit.predict.plans.balance.case_file import PLAN_FORMAT
from perfkit.predict.plans.balance.config_lists import megatron_layout, mindformers_lists, mindformers_text
from perfkit.predict.plans.balance.moves import LayerPlanner, parse_layers
from perfkit.predict.plans.balance.problem import KINDS, Layout, PipelineProblem, layers_of
from perfkit.predict.plans.schedule.schedule import ScheduleResult, simulate_schedule

MOVES_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Result:
    """All that the page shows; `even_ns` is the even split's makespan (None if it does not fit), `solved` the solver's answer.

    `check` raises once nobody waits for what is still to be computed.
    """

    state: State
    planner: LayerPlanner
    layout: Layout
    schedule: ScheduleResult
    peak_bytes: tuple[int, ...]
    even_ns: int | None
    solved: PlanResult | None
    check: Callable[[], None]

    @property
    def problem(self) -> PipelineProblem:
        """What the layout is one of."""
        return self.planner.problem

    @cached_property
    def moves(self) -> pd.DataFrame:
        """The best moves of one layer; they take longer than all the rest, and no chart needs them."""
        return self.planner.moves(self.layout, most=MOVES_SHOWN, check=self.check)


def compute(state: State, progress: Progress | None = None) -> Result:
    """Simulate the chosen layout; solves first if the solved layout is asked for."""
    problem = problem_of(state)
    planner = LayerPlanner(problem)
    evaluator, even = planner.evaluator, planner.layout(planner.even())
    solved = solve(problem, int(state.time_limit_s), progress) if state.layout == "solved" else None
    if solved is not None and solved.layout is not None:
        layout = solved.layout
    elif state.layout == "edited":
        layout = planner.layout(parse_layers(state.layers))
    else:
        layout = even
    schedule = simulate_schedule(schedule_case(problem, layout))
    is_even = np.array_equal(layout, even)
    fits = evaluator.fits(even[None])[0]
    return Result(
        state=state,
        planner=planner,
        layout=layout,
        schedule=schedule,
        peak_bytes=tuple(evaluator.peaks_bytes(layout[None])[0].tolist()),
        even_ns=None if not fits else schedule.makespan_ns if is_even else int(evaluator.makespans_ns(even[None])[0]),
        solved=solved,
        check=progress.check if progress else lambda: None,
    )


def view(result: Result) -> Answer:
    """The schedule and the memory as pictures, stages and moves as tables, the layout as configuration."""
    problem = result.problem
    charts = {
        "schedule": Figure(
            chart=schedule_picture(schedule_rows(result.schedule.columns(), _recompute_ns(result))),
            title=f"What every stage runs ({SCHEDULE_NAMES[problem.schedule]}); outlined: the critical path",
            sources=["computed: exact simulation in whole nanoseconds, docs/plans.md"],
            table="operations",
            wide=True,
            params={"height": picture_height(problem.num_stages)},
        ),
        "memory": Figure(
            chart=memory_bars(memory_rows(_memory_parts(result), problem.memory_limit_bytes)),
            title="Memory peak of every stage",
            sources=["computed: constant + parameters + activations in flight, docs/plans.md"],
            table="memory",
            wide=True,
        ),
    }
    return Answer(
        charts, lambda: _tables(result), _sentence(result), _notes(result), lambda: _configuration(problem, result.layout)
    )


def _tables(result: Result) -> dict[str, Table]:
    return {
        "moves": Table(
            frame=_moves_table(result),
            title="What moving one layer changes (choose a row to do it)",
            labels={"layers": "layers after the move"},
            selectable=True,
        ),
        "stages": Table(frame=_stage_table(result), title="Stages, with recomputed layers by kind"),
    }


def _recompute_ns(result: Result) -> list[list[int]]:
    """By chunk and stage, what the backward of one micro batch repeats of the forward."""
    problem = result.problem
    extra = np.zeros(result.layout.shape[1:], dtype=np.int64)
    for variety, counts in zip(problem.varieties, result.layout, strict=True):
        kinds = problem.body[variety.type].kinds
        if "none" in kinds:
            extra += counts * (kinds[variety.kind].bwd_ns - kinds["none"].bwd_ns)
    return [[max(0, int(value)) for value in row] for row in extra]


def _memory_parts(result: Result) -> dict[str, Any]:
    problem, evaluator = result.problem, result.planner.evaluator
    parameters = np.tensordot(result.layout, evaluator.param_bytes, (0, 0)) + evaluator.fixed["param_bytes"]
    static = [int(amount) for amount in parameters.sum(axis=0)]
    dynamic = [peak - problem.const_bytes - held for peak, held in zip(result.peak_bytes, static, strict=True)]
    return {"constant": [problem.const_bytes] * problem.num_stages, "parameters": static, "activations": dynamic}


def _moves_table(result: Result) -> pd.DataFrame:
    moves = result.moves
    return pd.DataFrame(
        {
            "from stage": moves["from"],
            "to stage": moves["to"],
            "step": [f"{'+' if change >= 0 else '−'}{format_ns(abs(int(change)))}" for change in moves["change_ns"]],
            "memory": ["fits" if fits else "too much" for fits in moves["fits"]],
            "layers": moves["layers"],
        }
    )


def _stage_table(result: Result) -> pd.DataFrame:
    problem, schedule, limit = result.problem, result.schedule, result.problem.memory_limit_bytes
    layers, idle_ns, in_flight = layers_of(result.layout), schedule.stage_idle_ns, schedule.peak_inflight_chunks
    rows = []
    for stage in range(problem.num_stages):
        row: dict[str, Any] = {"stage": stage, "layers": " + ".join(str(chunk[stage]) for chunk in layers)}
        for kind in KINDS[1:]:
            own = [index for index, variety in enumerate(problem.varieties) if variety.kind == kind]
            if own and result.layout[own].any():
                row[kind] = int(result.layout[own][:, :, stage].sum())
        row |= {
            "busy": format_ns(schedule.stage_busy_ns[stage]),
            "idle": format_ns(idle_ns[stage]),
            "in flight": in_flight[stage],
            "memory": format_bytes(result.peak_bytes[stage]),
            "free memory": "no limit" if limit is None else _signed_bytes(limit - result.peak_bytes[stage]),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _signed_bytes(size: int) -> str:
    return format_bytes(size) if size >= 0 else f"−{format_bytes(-size)}"


def _sentence(result: Result) -> str:
    schedule, solved = result.schedule, result.solved
    if solved is not None:
        return solved.why()
    busiest = int(np.argmax(schedule.stage_busy_ns))
    text = (
        f"The step takes {format_ns(schedule.makespan_ns, 6)}; stage {busiest} works longest, "
        f"{format_ratio(schedule.stage_busy_ns[busiest] / max(1, schedule.makespan_ns))} of the step, and the bubble is "
        f"{format_ratio(schedule.bubble_over_work)} of the work. "
    )
    change_ns = schedule.makespan_ns - (result.even_ns or schedule.makespan_ns)
    if change_ns:
        text += f"That is {format_ns(abs(change_ns))} {'longer' if change_ns > 0 else 'shorter'} than with an even split. "
    return text + "Choose “solved” for the best layout."


def _notes(result: Result) -> tuple[str, ...]:
    problem, solved, limit = result.problem, result.solved, result.problem.memory_limit_bytes
    notes = [f"Assumed: {text}." for text in problem.assumptions]
    over = [] if limit is None else [stage for stage, peak in enumerate(result.peak_bytes) if peak > limit]
    if over:
        stages = ("stage " if len(over) == 1 else "stages ") + ", ".join(map(str, over))
        notes.append(f"Does not fit: {stages} would need more than {format_bytes(limit)} even with the leanest recomputation.")
    if solved is not None and solved.layout is not None:
        notes.append(_gain(result))
        if solved.status == "time_limit":
            notes.append("The search ended early; allow more time to close the gap. The bound holds either way.")
    if solved is not None and solved.layout is None:
        notes.append("The even split is drawn instead.")
    return tuple(notes)


def _gain(result: Result) -> str:
    even_ns = result.even_ns
    if not even_ns:
        return "An even split of the layers does not fit."
    gain_ns = even_ns - result.schedule.makespan_ns
    share = f"{format_ratio(abs(gain_ns) / even_ns)} {'faster' if gain_ns > 0 else 'slower'} than" if gain_ns else "As fast as"
    return f"{share} the even split with its fastest recomputation ({format_ns(even_ns, 5)})."


def _configuration(problem: PipelineProblem, layout: Layout) -> tuple[Code, ...]:
    return (
        Code(mindformers_text(mindformers_lists(problem, layout)), "yaml", "MindFormers"),
        Code(f"--pipeline-model-parallel-layout '{megatron_layout(layout)}'", "sh", "Megatron"),
    )


def move(state: State, _table: str, row: dict[str, Any]) -> State:
    """The state after a click on a move: it is made."""
    return replace(state, layers=str(row["layers"])) if row.get("layers") else state


PANEL = Panel(
    title="Layers and recomputation of every stage",
    start=start,
    compute=compute,
    view=view,
    on_row=move,
    shared=("layout",),
    controls=(
        PathPicker(path="case", options=case_options, label="Case", help=f"a {PLAN_FORMAT} file"),
        Choice(
            path="layout",
            options=(("even split", "even"), ("as edited", "edited"), ("solved", "solved")),
            buttons=True,
            label="Layout",
            help="solved: the shortest step that fits, with a proof or a gap",
        ),
        Slider(
            path="time_limit_s", low=5, high=300, label="Time to solve", unit="s", visible=lambda state: state.layout == "solved"
        ),
        Text(
            path="layers",
            label="Layers by stage",
            help="stages separated by spaces, chunks by semicolons",
            key="offset",
            visible=lambda state: state.layout != "solved",
        ),
        Slider(
            path="num_stages",
            low=1,
            high=64,
            values=counts_of("num_stages"),
            label="Pipeline stages",
            key="parallel_config.pipeline_stage",
        ),
        Slider(
            path="num_chunks",
            low=1,
            high=64,
            values=counts_of("num_chunks"),
            label="Chunks a stage",
            key="parallel_config.pp_interleave_num",
        ),
        Choice(path="schedule", options=schedule_options, label="Schedule", buttons=True, key="parallel.pipeline_config"),
        Slider(path="num_microbatches", low=1, high=256, label="Micro batches", key="parallel_config.micro_batch_num"),
        Number(path="limit_gib", low=0.0, high=4096.0, label="Memory limit", unit="GiB", empty=0.0, placeholder="none"),
        Number(path="p2p_us", low=0.0, high=1e6, label="Transfer between stages", unit="µs"),
        Choice(path="p2p_mode", options=transfer_options, label="Transfers are"),
    ),
)
