"""Predictions: what the open round of a project is expected to bring, written down before it is measured.

A prediction is locked as soon as the round has a run; until then a new one takes its place and both stay in the log. Here figures
are in the unit in which the goal is set, as people type them.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.settings import find_project
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S, format_entry, rounded
from perfkit.predict.estimate import Estimate
from perfkit.project import GoalMetric, Project, open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS, written
from perfkit.project.keep import own_project

METHOD = "perfkit estimate"


def expected(found: Estimate, metric: GoalMetric) -> tuple[float, float, float]:
    """A goal metric as predicted and the bounds of its 80 % interval, in the goal's unit, with four digits."""
    fast_s, slow_s = found.interval_s
    if metric == "step_time_ns":
        amounts = tuple(amount * NS_PER_S for amount in (found.step_time_s, fast_s, slow_s))
    else:
        value = found.mfu if metric == "mfu" else found.tokens_per_s_per_device
        amounts = (value, value * found.step_time_s / slow_s, value * found.step_time_s / fast_s)
    value, low, high = (rounded(amount / GOALS[metric][1], 4) for amount in amounts)
    return value, low, high


def predict_goal(value: float, low: float = 0.0, high: float = 0.0, method: str = METHOD) -> str:
    """Write what the open round is expected to bring of the project's goal, in its unit, and say so; 0 is a bound not said.

    Raises InputError with everything that is wrong with it; the log refuses it once the round has a run.
    """
    project = own_project("predict")
    row = _open_row(project)
    problems = [] if row else ["no round is open; start one on page 00"]
    problems += [] if value > 0 else [f"value = {format_entry(value)} must be more than 0"]
    problems += [] if method.strip() else ["method is empty; say how the figure was found"]
    if low and high and not low <= value <= high:
        problems.append(f"the range {format_entry(low)} to {format_entry(high)} does not hold the value {format_entry(value)}")
    if problems or row is None:
        raise InputError("predict", problems)
    metric, scale = project.goal_metric, GOALS[project.goal_metric][1]
    ExperimentLog(project.folder).predict(
        row["number"], metric, value * scale, low=low * scale or None, high=high * scale or None, method=method.strip()
    )
    return f"Round {row['number']} now predicts {written(metric, value * scale)}. It is locked once a run is attached."


def nothing_to_predict() -> str:
    """Why no prediction can be written down now; "" where a round waits for one."""
    folder = find_project()
    if folder is None:
        return "There is no project whose rounds one could predict. Make one on page 00."
    try:
        project = open_project(folder)
        row = _open_row(project)
    except PerfkitError:
        return ""  # what is wrong with it is said where it is pressed
    if project.read_only:
        return "The project is only read: nothing is written to it."
    if row is None:
        return "No round is open; the next one begins on page 00."
    if row["runs"]:
        return say("Round {number} has a run, so what it predicts is locked.", number=str(row["number"]))
    return ""


def predictions_table() -> pd.DataFrame:
    """What the open round predicts so far, the last one counts: columns `metric`, `value`, `between`, `method`."""
    row = _open_row(own_project("predict"))
    return pd.DataFrame(
        [
            {
                "metric": item["metric"].replace("_", " "),
                "value": written(item["metric"], item["value"], item["unit"]),
                "between": "" if item["low"] is None else " and ".join(_bounds(item)),
                "method": item["method"],
            }
            for item in (row["predictions"] if row else ())
        ],
        columns=["metric", "value", "between", "method"],
    )


def _bounds(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(written(item["metric"], item[side], item["unit"]) for side in ("low", "high"))


def _open_row(project: Project) -> dict[str, Any] | None:
    """The round that waits for its decision."""
    rounds = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    return next((row for row in rounds if not row["verdict"]), None)
