"""Parallel strategy: every way to divide the model, the front of time and memory, plans side by side, and why the others lost.

A click on a mark or a row puts a plan first in the comparison (four at most, a second click takes it out); a plan by hand stands
beside them. The first of them is what is exported and saved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.units import GIB, format_bytes, format_ratio
from perfkit.face.charts.plans import plan_scatter, rejected_bars, rejected_rows, step_bars, step_rows
from perfkit.face.panels._plan_state import PLAN_CONTROLS
from perfkit.face.panels._strategy_export import DIALECTS, Compared, exported, save, short
from perfkit.face.panels._strategy_state import LEVELS, MOST_CHOSEN, SEQUENCE, State, search, start
from perfkit.face.panels._strategy_tables import compared_table, marks_of, plans_table, time_text
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Slider, Toggle
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.face.widgets.worker import Progress
from perfkit.predict.estimate import Estimate, estimate
from perfkit.predict.plans.search.search_result import SearchResult
from perfkit.predict.plans.search.search_text import plan_text
from perfkit.predict.plans.search.strategy_space import divisors

GUIDE, OWN = "guide", "own"
Predicted = tuple[Plan, Estimate]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; `own_problems` say why the plan by hand is impossible."""

    state: State
    found: SearchResult
    compared: tuple[Compared, ...]
    own_problems: tuple[str, ...]


def compute(state: State, progress: Progress | None = None) -> Result:
    """Search, and estimate what is compared; raises InputError with all contradictions of the limits."""
    found = search(state, progress)
    plans = dict(_chosen(state, found))
    problems: tuple[str, ...] = ()
    if state.compare_own:
        try:
            own = _own_plan(state, found)
            plans[OWN] = own, estimate(own)
        except InputError as error:
            problems = error.problems
    names = {GUIDE: "rule of thumb", OWN: "by hand"}
    compared = [
        Compared(key=key, name=f"{index} {names.get(key, 'plan')}: {short(plan)}", plan=plan, estimate=predicted)
        for index, (key, (plan, predicted)) in enumerate(plans.items(), 1)
    ]
    return Result(state=state, found=found, compared=tuple(compared), own_problems=problems)


def _chosen(state: State, found: SearchResult) -> list[tuple[str, Predicted]]:
    """The chosen plans, else the two best and the rule of thumb."""
    if state.chosen:
        shown = state.chosen[: MOST_CHOSEN - state.compare_own]
        return [(key, plan) for key in shown if (plan := _plan(key, found)) is not None]
    if found.nearest is not None:
        return [("nearest", (found.nearest.plan, found.nearest.estimate))]
    keys = [f"l{index}" for index in range(min(2, len(found.plans)))]
    return [(key, plan) for key in [*keys, GUIDE] if (plan := _plan(key, found)) is not None]


def _plan(key: str, found: SearchResult) -> Predicted | None:
    """The plan of a mark or row."""
    if key == GUIDE:
        return None if found.suggestion is None else (found.suggestion[1].plan, found.suggestion[1].estimate)
    kind, number = key[:1], int(key[1:] or -1) if key[1:].isdigit() else -1
    if kind == "l" and 0 <= number < len(found.plans):
        return found.plans[number].plan, found.plans[number].estimate
    if kind == "f" and 0 <= number < len(found.pareto):
        plan = found.pareto[number].plan
    elif kind == "r" and 0 <= number < found.evaluated:
        plan = found.plan_of(number)
    else:
        return None
    return plan, estimate(plan)


def _own_plan(state: State, found: SearchResult) -> Plan:
    names = {"tp": "tensor", "pp": "pipeline", "vpp": "chunks", "cp": "context", "ep": "expert", "mbs": "micro_batch"}
    sizes = {name: int(getattr(state, f"own_{field}")) for name, field in names.items()}
    sizes |= {"zero": int(state.own_level), "sp": int(state.own_sequence)}
    return found.plan_with(**sizes, recompute=state.own_recompute)


def view(result: Result) -> Answer:
    """Strategies, steps side by side and reasons as charts; ranked plans and the compared ones as tables; the first as text."""
    found, state = result.found, result.state
    charts = {
        "strategies": Figure(
            chart=plan_scatter(marks_of(found, result.compared)),
            title="Strategies that fit, and the front of throughput against memory",
            alt=_sentence(result),
            sources=["computed: perfkit.estimate of every strategy, docs/plans.md", *_calibration(result)],
            table="plans",
            wide=True,
        ),
        "steps": Figure(
            chart=step_bars(step_rows({item.name: item.estimate.breakdown for item in result.compared})),
            title="What the step of the compared plans is made of",
            alt="; ".join(f"{item.name}: {time_text(item.estimate.step_time_s)}" for item in result.compared),
            sources=["computed: perfkit.predict.cost.step_time"],
            wide=True,
        ),
        "rejected": Figure(
            chart=rejected_bars(rejected_rows(found.rejected)),
            title="Why the others lost (each combination counts under its first reason)",
            alt="; ".join(f"{reason}: {count}" for reason, count in found.rejected.items()),
            sources=["computed: rules of docs/plans.md"],
            wide=True,
        ),
    }
    return Answer(
        charts, lambda: _tables(result), _sentence(result), lambda: _notes(result), lambda: exported(result.compared, state.dialect)
    )


def _tables(result: Result) -> dict[str, Table]:
    found = result.found
    return {
        "compared": Table(frame=compared_table(found, result.compared), title="The compared plans"),
        "plans": Table(
            frame=plans_table(found),
            title=f"The best plans of different divisions (choose a row to compare, {MOST_CHOSEN} at most)",
            selectable=True,
        ),
    }


def _sentence(result: Result) -> str:
    found = result.found
    if not found.plans:
        if not found.complete:
            return "The search was stopped before any plan was evaluated."
        return found.missing_text()
    best = found.plans[0]
    counted = f"{found.searched} combinations, {found.evaluated} keep the rules, {found.feasible} fit "
    text = f"{counted}{format_bytes(found.memory_limit_bytes)}. Best on {found.devices} devices: {plan_text(best.plan)}, {best.why}"
    return text if found.complete else f"Stopped early: {text}"


def _notes(result: Result) -> tuple[str, ...]:
    found, notes = result.found, []
    if found.plans:
        best = found.plans[0]
        low, high = best.estimate.interval_s
        sure = "so the order is clear" if best.win_share >= 0.8 else "so it is too close to call"
        notes.append(
            f"The best is the fastest listed in {format_ratio(best.win_share, 2)} of the draws of the calibration's numbers, "
            f"{sure}. "
            f"80 % of its measured times would lie between {time_text(low)} and {time_text(high)}; {found.close} strategies are "
            "predicted below that upper end."
        )
    if found.nearest is not None:
        parts = sorted(found.nearest.parts.parts.items(), key=lambda item: -item[1])[:4]
        named = ", ".join(f"{part} {format_bytes(amount)}" for part, amount in parts)
        notes.append(f"What fills its fullest stage: {named}. More devices, or sharing more of the optimizer's state, would help.")
    if found.suggestion is not None:
        notes.append(f"Rule of thumb for this size ({found.suggestion[0]}): {found.suggestion[1].why}")
    if result.own_problems:
        notes.append(f"The plan by hand is impossible: {'; '.join(result.own_problems)}.")
    return tuple(notes)


def choose(state: State, _name: str, datum: dict[str, Any]) -> State:
    """The state after a click on a mark or row: its plan joins the comparison, or leaves it."""
    key = str(datum["id"]) if "id" in datum else f"l{int(datum['rank']) - 1}" if "rank" in datum else ""
    if not key:
        return state
    if key in state.chosen:
        return replace(state, chosen=tuple(one for one in state.chosen if one != key))
    return replace(state, chosen=(key, *(state.chosen or ("l0",)))[:MOST_CHOSEN])


def _calibration(result: Result) -> list[str]:
    return [
        f"{name}: {source}"
        for name, source in (result.compared[0].estimate.sources if result.compared else ())
        if name == "efficiencies"
    ]


def _limits(state: State) -> list[float]:
    memory = catalog.hardware_named(state.device).memory_bytes / GIB
    return sorted({*map(float, range(2, int(memory) + 1)), memory, min(state.limit_gib, memory)})


def save_plan(state: State) -> str:
    """Write the first compared plan to the open round of the project."""
    return save(compute(state).compared, state.dialect)


def _own(path: str, low: int, high: int, label: str, key: str, **more: Any) -> Slider:
    return Slider(path=path, low=low, high=high, values=_divisors, label=f"By hand: {label}", key=key, visible=_by_hand, **more)


def _divisors(state: State) -> list[float]:
    return [float(size) for size in divisors(max(1, int(state.devices))) if size <= 1024]


def _by_hand(state: State) -> bool:
    return state.compare_own


def _has_experts(state: State) -> bool:
    return state.compare_own and read_plan(state.preset).model.num_experts > 0


PANEL = Panel(
    title="Strategies for this model",
    start=start,
    compute=compute,
    view=view,
    on_select=choose,
    on_row=choose,
    shared=("preset",),
    actions=(
        Action(
            name="save",
            label="Save the first plan to the round",
            run=save_plan,
            help="writes its configuration and prediction to the open round of the project",
            visible=context.can_save,
        ),
    ),
    controls=(
        *PLAN_CONTROLS[:2],
        Number(path="devices", low=1, high=1_000_000, step=1, label="Devices"),
        Slider(
            path="limit_gib", low=2, high=256, values=_limits, label="Memory limit", unit="GiB", key="context.max_device_memory"
        ),
        Number(path="global_batch_size", low=1, high=1_000_000, step=1, label="Global batch", unit="sequences"),
        Slider(
            path="most_tensor",
            low=1,
            high=64,
            values=(1, 2, 4, 8, 16, 32, 64),
            label="Largest tensor parallel",
            help="at most the devices of a node, unless you know better",
            key="parallel_config.model_parallel",
        ),
        Choice(path="micro_batches", options=(1, 2, 4, 8), multiple=True, buttons=True, label="Micro batch"),
        Choice(path="chunks", options=(1, 2, 4, 5, 8), multiple=True, buttons=True, label="Chunks a stage"),
        Choice(
            path="sequence",
            options=tuple(SEQUENCE),
            buttons=True,
            label="Sequence parallel",
            key="parallel_config.use_seq_parallel",
        ),
        Choice(
            path="levels",
            options=LEVELS,
            multiple=True,
            buttons=True,
            label="Shared by the optimizer's group",
            key="parallel.enable_parallel_optimizer",
        ),
        Choice(path="dialect", options=DIALECTS, label="Export as"),
        Toggle(path="compare_own", label="Compare a plan by hand", help="data parallel takes the devices that are left"),
        _own("own_tensor", 1, 64, "tensor parallel", "parallel_config.model_parallel"),
        _own("own_pipeline", 1, 64, "pipeline stages", "parallel_config.pipeline_stage"),
        Slider(path="own_chunks", low=1, high=16, label="By hand: chunks a stage", visible=_by_hand),
        _own("own_context", 1, 64, "context parallel", "parallel_config.context_parallel"),
        Slider(path="own_expert", low=1, high=256, values=_divisors, label="By hand: expert parallel", visible=_has_experts),
        Slider(path="own_micro_batch", low=1, high=32, label="By hand: micro batch", visible=_by_hand),
        Choice(path="own_level", options=LEVELS, label="By hand: shared", visible=_by_hand),
        Toggle(path="own_sequence", label="By hand: sequence parallel", visible=_by_hand),
        Choice(
            path="own_recompute", options=("none", "selective", "full"), buttons=True, label="By hand: recompute", visible=_by_hand
        ),
    ),
)
