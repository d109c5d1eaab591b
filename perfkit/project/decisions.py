"""Decisions: what the open round of a project still has to show, how good its predictions were, and its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.settings import find_project
from perfkit.core.units import format_change
from perfkit.project import GoalMetric, open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS, written
from perfkit.project.keep import own_project

VERDICTS = ("keep", "revert", "repeat", "stop")
MOST_TOLD = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """The rounds of a project, the one that waits for its decision (None: all are decided), and what it lacks by state."""

    metric: GoalMetric
    rounds: list[dict[str, Any]]
    open_row: dict[str, Any] | None
    missing: dict[str, list[str]]

    @property
    def goal(self) -> str:
        """The figure that the project is about, with its unit."""
        return GOALS[self.metric][0]

    def told(self) -> str:
        """Which round waits, what it measured against its parent, and how far the last predictions were off."""
        errors = [format_change(row["error_ratio"]) for row in self._predicted()[-MOST_TOLD:]]
        past = ""
        if len(errors) == 1:
            past = f" The last prediction was off by {errors[0]}."
        elif errors:
            past = f" The last {('two', 'three', 'four')[len(errors) - 2]} predictions were off by {', '.join(errors)}."
        row = self.open_row
        if row is None:
            return f"All {len(self.rounds)} rounds are decided.{past}"
        value = written(self.metric, row["value"], absent="not measured yet")
        real = {True: "a real change", False: "no measurable change", None: ""}[row["beyond_noise"]]
        against = "" if row["gain_ratio"] is None else f" ({format_change(row['gain_ratio'])} against its parent: {real})"
        return f"Round {row['number']} ({row['title']}) waits for its decision: {value}{against}.{past}"

    def to_frame(self) -> pd.DataFrame:
        """What the open round lacks: `state` of the cycle and `missing`; without rows if all are decided."""
        rows = [{"state": state, "missing": ", ".join(what) or "nothing"} for state, what in self.missing.items()]
        frame = pd.DataFrame(rows, columns=["state", "missing"])
        number = None if self.open_row is None else self.open_row["number"]
        frame.attrs["title"] = f"What round {number} has to show"
        return frame

    def predictions(self) -> pd.DataFrame:
        """Every round that was predicted and measured: `name`, `prediction`, `value` (in the goal's unit), `error_ratio`."""
        scale = GOALS[self.metric][1]
        rows = [
            (f"round {row['number']}", row["prediction"] / scale, row["value"] / scale, row["error_ratio"])
            for row in self._predicted()
        ]
        return pd.DataFrame(rows, columns=["name", "prediction", "value", "error_ratio"])

    def _predicted(self) -> list[dict[str, Any]]:
        return [row for row in self.rounds if row["prediction"] is not None and row["value"] is not None]


def pending() -> Pending | None:
    """Where the decisions of the page's project stand; None where there is no project, or no round in it."""
    folder = find_project()
    if folder is None:
        return None
    log = ExperimentLog(folder, read_only=True)
    rounds = log.show("json")["rounds"]
    row = next((row for row in rounds if not row["verdict"]), None)
    missing = {} if row is None else log.missing(row["number"])
    metric = open_project(folder).goal_metric
    return Pending(metric=metric, rounds=rounds, open_row=row, missing=missing) if rounds else None


def nothing_to_decide() -> str:
    """Why no round can be decided now; "" where one is open."""
    found = pending()
    if found is None:
        return "There is no project with rounds, so there is nothing to decide. Make one on page 00."
    return "" if found.open_row is not None else "All rounds are decided; the next one begins on page 00."


def decide_round(verdict: str, reason: str, *, next_step: str = "", confirmation: str = "") -> str:
    """Close the open round, and say so; raises InputError with everything that stands against it."""
    project = own_project("decide")
    if verdict not in VERDICTS:
        raise InputError("decide", [f"choose a verdict: {', '.join(VERDICTS)}"])
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("decide", ["all rounds are decided; start the next one"])
    limit = project.usable_limit_bytes
    log.decide(number, verdict, reason, next_step=next_step, confirmation=confirmation, memory_limit_bytes=limit)
    return f"Round {number} is decided: {verdict}."
