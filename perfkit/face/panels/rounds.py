"""Rounds: where the tuning of this project stands: the ladder of rounds, the best one, the distance to the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.units import format_change
from perfkit.face.charts.rounds import ladder
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project import Project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS, written


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The log of the project: its document and the ladder, values in the unit of the goal metric."""

    project: Project
    document: dict[str, Any]
    ladder: pd.DataFrame


def compute(_state: object) -> Result:
    """Read the log; raises NothingYet without a project or without rounds."""
    project = context.current_project()
    if project is None:
        raise NothingYet("This folder is no tuning project yet. Make one below, or read a run at once on page 10.")
    log = ExperimentLog(project.folder, read_only=True)
    document = log.show("json")
    if not document["rounds"]:
        raise NothingYet("No rounds yet. Open a training log on page 01 and save it as round 0.")
    return Result(project=project, document=document, ladder=log.ladder())


def view(result: Result) -> Answer:
    """The ladder, the rounds as a table, and the best one in a sentence."""
    title, scale = GOALS[result.project.goal_metric]
    rows = result.ladder.copy()
    for column in ("value", "prediction", "prediction_low", "prediction_high"):
        rows[column] = rows[column] / scale
    goal = result.project.goal_value
    figure = Figure(
        chart=ladder(rows[list(_CHART_COLUMNS)], metric_title=title, goal=None if goal is None else goal / scale),
        title=f"Rounds of {result.project.name}",
        sources=["the experiment log of the project, table measurement"],
        table="rounds",
        wide=True,
    )
    return Answer({"ladder": figure}, {"rounds": Table(frame=_table(result), title="Rounds")}, _sentence(result), _notes(result))


_CHART_COLUMNS = ("number", "title", "value", "prediction", "prediction_low", "prediction_high", "verdict", "kind")


def _table(result: Result) -> pd.DataFrame:
    metric = result.project.goal_metric
    return pd.DataFrame(
        [
            {
                "round": row["number"],
                "title": row["title"],
                metric: row["value"],
                f"predicted_{metric}": row["prediction"],
                "error_ratio": row["error_ratio"],
                "gain_ratio": row["gain_ratio"],
                "verdict": row["verdict"] or "open",
                "kind": row["kind"],
            }
            for row in result.document["rounds"]
        ]
    )


def _sentence(result: Result) -> str:
    document, project = result.document, result.project
    best = next((row for row in document["rounds"] if row["number"] == document["best_round"]), None)
    if best is None:
        return f"{len(document['rounds'])} round{'s' if len(document['rounds']) > 1 else ''}, none kept yet."
    text = f"Best so far is round {best['number']} ({best['title']}): {written(project.goal_metric, best['value'])}"
    gain = document["total_gain_ratio"]
    text += f", {format_change(gain)} in total." if gain else "."
    if project.goal_value is not None:
        reached = "reached" if document["goal_met"] else "not reached yet"
        sign = {">=": "at least", "<=": "at most"}[project.goal_op]
        lacking = written(project.goal_metric, document["missing_to_goal"]) if document["missing_to_goal"] else None
        text += f" The goal of {sign} {written(project.goal_metric, project.goal_value)} is {reached}"
        text += f": {lacking} missing." if lacking else "."
    return text


def _notes(result: Result) -> tuple[str, ...]:
    advice = result.document["stop_advice"]
    notes: tuple[str, ...] = (advice,) if advice else ()
    if any(row["kind"] == "reported" for row in result.document["rounds"]):
        notes += ("Rounds marked reported are published figures, not measurements of this project.",)
    return notes


PANEL = Panel(title="Where this project stands", compute=compute, view=view, follows_log=True)
