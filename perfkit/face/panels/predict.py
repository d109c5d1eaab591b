"""Predict: what the open round will bring, written down before it is measured and locked as soon as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_S, format_change, format_entry, rounded
from perfkit.face.panels._plan_state import State as PlanState
from perfkit.face.panels._plan_state import plan_of
from perfkit.face.panels._plan_state import start as start_plan
from perfkit.face.widgets import context
from perfkit.face.widgets.control import Choice, Number, Text
from perfkit.face.widgets.log import open_round, open_row, rounds_of, writable_project
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.predict.estimate import estimate
from perfkit.project import GoalMetric, Project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS, written

BY_HAND = "by hand"
METHOD = "perfkit estimate"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The prediction as it is typed, in the unit of the goal; choosing another `plan` fills it from the estimate."""

    plan: str = BY_HAND
    filled: str = BY_HAND
    metric: GoalMetric = "tokens_per_s_per_device"
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    method: str = METHOD

    def __post_init__(self) -> None:
        if self.plan == self.filled:
            return
        object.__setattr__(self, "filled", self.plan)
        if self.plan != BY_HAND:
            for name, amount in zip(("value", "low", "high"), estimated(self.plan, self.metric), strict=True):
                object.__setattr__(self, name, rounded(amount / GOALS[self.metric][1], 4))
            object.__setattr__(self, "method", METHOD)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The open round beside the others."""

    state: State
    project: Project
    row: dict[str, Any]
    errors: tuple[float, ...]


def estimated(plan: str, metric: GoalMetric) -> tuple[float, float, float]:
    """The goal metric of a plan as predicted, with the bounds of its 80 % interval, in the unit of the log."""
    found = estimate(plan_of(PlanState(preset=plan)))
    fast_s, slow_s = found.interval_s
    if metric == "step_time_ns":
        return found.step_time_s * NS_PER_S, fast_s * NS_PER_S, slow_s * NS_PER_S
    value = found.mfu if metric == "mfu" else found.tokens_per_s_per_device
    return value, value * found.step_time_s / slow_s, value * found.step_time_s / fast_s


def start() -> State:
    """The estimate of the open round's plan, else of the project's configuration."""
    project = context.current_project()
    if project is None:
        return State()
    state = State(metric=project.goal_metric)
    row = open_row(rounds_of(project))
    kept = [] if row is None else [project.folder / config["path"] for config in row["configs"] if config["role"] == "plan"]
    config = next((path for path in kept if path.exists()), None)
    try:
        return replace(state, plan=str(config) if config else start_plan().preset)
    except InputError:
        # A plan that cannot be read or estimated says so on page 02; here the fields are filled by hand.
        return state


def compute(state: State) -> Result:
    """The open round and how good the predictions were so far; raises NothingYet without an open round."""
    project = context.current_project()
    if project is None:
        raise NothingYet("A prediction belongs to a round of a project. Make a project on page 00.")
    rounds = rounds_of(project)
    row = open_row(rounds)
    if row is None:
        raise NothingYet("No round is open, so there is nothing to predict. Start one on page 00.")
    errors = tuple(row["error_ratio"] for row in rounds if row["error_ratio"] is not None)
    return Result(state=replace(state, metric=project.goal_metric), project=project, row=row, errors=errors[-4:])


def view(result: Result) -> Answer:
    """What the round predicts so far, every version of it."""
    row = result.row
    tables = {}
    if row["predictions"]:
        shown = [
            {
                "metric": item["metric"].replace("_", " "),
                "value": written(item["metric"], item["value"], item["unit"]),
                "between": "" if item["low"] is None else " and ".join(_bounds(item)),
                "method": item["method"],
            }
            for item in row["predictions"]
        ]
        tables["predictions"] = Table(frame=pd.DataFrame(shown), title="Predictions of this round, the last one counts")
    return Answer({}, tables, _sentence(result))


def _bounds(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(written(item["metric"], item[side], item["unit"]) for side in ("low", "high"))


def _sentence(result: Result) -> str:
    row, metric = result.row, result.project.goal_metric
    errors = ", ".join(format_change(error) for error in result.errors)
    past = f" Your last {len(result.errors)} predictions were off by {errors}." if errors else ""
    name = f"Round {row['number']} ({row['title']})"
    if row["runs"]:
        return (
            f"{name} is measured, so its prediction is locked: {written(metric, row['prediction'], absent='none was made')}.{past}"
        )
    if row["prediction"] is None:
        return f"{name} has no prediction of its goal, {GOALS[metric][0]}. Write down what you expect before you measure.{past}"
    return f"{name} predicts {written(metric, row['prediction'])}; a new one replaces it until a run is attached.{past}"


def lock(state: State) -> str:
    """Write the prediction to the open round; raises InputError with everything that is wrong with it."""
    project = writable_project("predict")
    row = open_round(project, "predict")
    metric = project.goal_metric
    problems = [] if state.value > 0 else [f"value = {format_entry(state.value)} must be more than 0"]
    problems += [] if state.method.strip() else ["method is empty; say how the figure was found"]
    if state.low and state.high and not state.low <= state.value <= state.high:
        least, most, typed = map(format_entry, (state.low, state.high, state.value))
        problems.append(f"the range {least} to {most} does not hold the value {typed}")
    if problems:
        raise InputError("predict", problems)
    value, low, high = (amount * GOALS[metric][1] for amount in (state.value, state.low, state.high))
    ExperimentLog(project.folder).predict(
        row["number"], metric, value, low=low or None, high=high or None, method=state.method.strip()
    )
    return f"Round {row['number']} now predicts {written(metric, value)}. It is locked once a run is attached."


def _can_lock(_state: object = None) -> bool:
    project = context.current_project()
    if project is None or project.read_only:
        return False
    row = open_row(rounds_of(project))
    return row is not None and not row["runs"]


def _plans(_state: object = None) -> list[tuple[str, str, str]]:
    models = [(name, name, "Published models on 16 devices") for name in catalog.models()]
    return [(BY_HAND, BY_HAND, ""), *context.config_options(), *models]


PANEL = Panel(
    title="Predict before you measure",
    follows_log=True,
    start=start,
    compute=compute,
    view=view,
    controls=(
        Choice(path="plan", options=_plans, label="Fill from the estimate of", visible=_can_lock),
        Number(path="value", low=0, high=1e12, label="Expected", help="in the unit of the project's goal", visible=_can_lock),
        Number(path="low", low=0, high=1e12, label="At least", empty=0, placeholder="not said", visible=_can_lock),
        Number(path="high", low=0, high=1e12, label="At most", empty=0, placeholder="not said", visible=_can_lock),
        Text(path="method", label="Method", placeholder="how the figure was found", visible=_can_lock),
    ),
    actions=(
        Action(
            name="predict",
            label="Lock it into the round",
            run=lock,
            help="writes the prediction to the log; refused once the round has a run",
            visible=_can_lock,
        ),
    ),
)
