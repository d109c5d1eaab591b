"""Decide: close the open round with a verdict and a reason, and see how good the predictions of the rounds were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_change
from perfkit.face.charts.compare import predicted_measured
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Text
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project import Project
from perfkit.project.experiments import CONFIRMATION, ExperimentLog
from perfkit.project.goals import GOALS, written

NONE = "choose"
VERDICTS = (NONE, "keep", "revert", "repeat", "stop")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The decision as it is typed; nothing is preselected."""

    verdict: str = NONE
    reason: str = ""
    next_step: str = ""
    confirmation: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The log, and what the open round still lacks."""

    project: Project
    document: dict[str, Any]
    open_round: int | None
    missing: dict[str, list[str]]


def compute(_state: State) -> Result:
    """Read the log of the project; raises NothingYet if there is none."""
    project = context.current_project()
    if project is None:
        raise NothingYet("No project is open, so there is nothing to decide. Make one on page 00.")
    log = ExperimentLog(project.folder, read_only=True)
    document = log.show("json")
    if not document["rounds"]:
        raise NothingYet("This project has no rounds yet. Start the first one on page 01.")
    number = next((row["number"] for row in document["rounds"] if not row["verdict"]), None)
    return Result(project=project, document=document, open_round=number, missing={} if number is None else log.missing(number))


def view(result: Result) -> Answer:
    """Predicted against measured of every round, and what the open round lacks."""
    metric = result.project.goal_metric
    title, scale = GOALS[metric]
    told = [row for row in result.document["rounds"] if row["prediction"] is not None and row["value"] is not None]
    points = [
        {
            "name": f"round {row['number']}",
            "prediction": row["prediction"] / scale,
            "value": row["value"] / scale,
            "error": format_change(row["error_ratio"]),
        }
        for row in told
    ]
    charts: dict[str, Figure] = {}
    if points:
        ends = [bound(point[side] for point in points for side in ("prediction", "value")) for bound in (min, max)]
        rows = {"rounds": points, "line": [{"prediction": end, "value": end} for end in ends]}
        charts["predictions"] = Figure(
            chart=predicted_measured(rows, title=title),
            title="Predicted and measured, all rounds",
            sources=["the project's log: predictions and measurements"],
            wide=True,
        )
    tables = {}
    if result.open_round is not None:
        lacking = [{"state": state, "missing": ", ".join(missing) or "nothing"} for state, missing in result.missing.items()]
        tables["missing"] = Table(frame=pd.DataFrame(lacking), title=f"What round {result.open_round} has to show")
    return Answer(charts, tables, _sentence(result, told))


def _sentence(result: Result, told: list[dict[str, Any]]) -> str:
    errors = [format_change(row["error_ratio"]) for row in told[-4:]]
    past = f" The last predictions were off by {', '.join(errors)}." if errors else ""
    if result.open_round is None:
        return f"All {len(result.document['rounds'])} rounds are decided.{past}"
    row = next(row for row in result.document["rounds"] if row["number"] == result.open_round)
    value = written(result.project.goal_metric, row["value"], absent="not measured yet")
    real = {True: "a real change", False: "no measurable change", None: ""}[row["beyond_noise"]]
    against = "" if row["gain_ratio"] is None else f" ({format_change(row['gain_ratio'])} against its parent: {real})"
    return f"Round {row['number']} ({row['title']}) waits for its decision: {value}{against}.{past}"


def decide(state: State) -> str:
    """Close the open round; raises InputError with everything that stands against it."""
    project = context.current_project()
    if project is None:
        raise InputError("decide", ["no project is open; make one on page 00"])
    if state.verdict == NONE:
        raise InputError("decide", [f"choose a verdict: {', '.join(VERDICTS[1:])}"])
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("decide", ["all rounds are decided; start the next one"])
    log.decide(
        number,
        state.verdict,
        state.reason,
        next_step=state.next_step,
        confirmation=state.confirmation,
        memory_limit_bytes=project.usable_limit_bytes,
    )
    return f"Round {number} is decided: {state.verdict}."


PANEL = Panel(
    title="Decide the round",
    follows_log=True,
    start=State,
    compute=compute,
    view=view,
    controls=(
        Choice(path="verdict", options=VERDICTS, buttons=True, label="Verdict"),
        Text(path="reason", label="Reason", placeholder="at least 15 characters", help="helps whoever reads the log later"),
        Text(path="next_step", label="Next step"),
        Text(
            path="confirmation",
            label="If accuracy was not checked",
            placeholder=f"type {CONFIRMATION} to keep it all the same",
            visible=lambda state: state.verdict == "keep",
        ),
    ),
    actions=(
        Action(
            name="decide",
            label="Decide",
            run=decide,
            help="writes verdict and reason to the log; a decided round is never changed",
            visible=context.can_save,
        ),
    ),
)
