"""Rounds: where the tuning of a project stands, the story of each round, and the next one: started, passed over or abandoned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.looks import brief
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import format_change
from perfkit.project import Project, project_here, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS, written
from perfkit.project.keep import own_project

LATEST = -1
"""Stands for the open round, else the last one; as the parent of a new one for the last that was kept."""
SOURCE = "the experiment log of the project, table measurement"
_DRAWN = ("number", "title", "value", "prediction", "prediction_low", "prediction_high", "verdict", "kind")
_IN_GOAL_UNITS = ("value", "prediction", "prediction_low", "prediction_high")
_NO_PROJECT = "This folder is no tuning project yet. Make one below, or read a run at once on page 10."
_FIRST = "No rounds yet. Name the first lever and start: round 0 is what you begin with."
_NOWHERE = "No project is open, so there are no rounds. Make one below."
_NO_ROUNDS = "No rounds yet. Open a training log on page 01 and save it as round 0."


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The rounds of a project, oldest first, and how far the best one is from the goal; `project` is None where there is none."""

    project: Project | None
    document: Mapping[str, Any]
    log: pd.DataFrame

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The rounds as `perfkit log show --json` prints them."""
        return list(self.document.get("rounds", ()))

    @property
    def metric_title(self) -> str:
        """The figure that the project is about, with its unit."""
        return "" if self.project is None else GOALS[self.project.goal_metric][0]

    @property
    def goal(self) -> float | None:
        """The goal in the unit of `metric_title`."""
        if self.project is None or self.project.goal_value is None:
            return None
        return self.project.goal_value / GOALS[self.project.goal_metric][1]

    def ladder(self) -> pd.DataFrame:
        """Every round with its figure, prediction and verdict; figures in the unit of `metric_title`."""
        if self.project is None:
            return pd.DataFrame(columns=_DRAWN)
        rows = self.log[list(_DRAWN)].copy()
        rows[list(_IN_GOAL_UNITS)] = rows[list(_IN_GOAL_UNITS)] / GOALS[self.project.goal_metric][1]
        return rows

    def to_frame(self) -> pd.DataFrame:
        """One row a round: its figure and prediction in the unit of the log, how far off that was, what it gained, its verdict."""
        metric = "value" if self.project is None else self.project.goal_metric
        frame = pd.DataFrame(
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
                for row in self.rounds
            ]
        )
        frame.attrs["title"] = "Rounds"
        return brief(frame, "round", "title", metric, "gain_ratio", "verdict")

    def told(self) -> tuple[str, ...]:
        """The best round with what it gained and what the goal lacks, whether to stop, and that reported rounds are reported."""
        if self.project is None:
            return (_NO_PROJECT,)
        if not self.rounds:
            return (_NO_ROUNDS,)
        reported = any(row["kind"] == "reported" for row in self.rounds)
        said = "Rounds marked reported are published figures, not measurements of this project."
        return self._best(self.project), self.document["stop_advice"] or "", said * reported

    def _best(self, project: Project) -> Said:
        best = next((row for row in self.rounds if row["number"] == self.document["best_round"]), None)
        if best is None:
            form = "{count} round, none kept yet." if len(self.rounds) == 1 else "{count} rounds, none kept yet."
            return say(form, count=str(len(self.rounds)))
        figure, gain = written(project.goal_metric, best["value"]), self.document["total_gain_ratio"]
        text = say(
            "Best so far is round {number} ({title}): {figure}{gained}.",
            number=str(best["number"]),
            title=best["title"],
            figure=figure,
            gained=say(", {change} in total", change=format_change(gain)) if gain else "",
        )
        return text if project.goal_value is None else joined((text, self._goal_told(project)))

    def _goal_told(self, project: Project) -> Said:
        missing = self.document["missing_to_goal"]
        return say(
            "The goal of {sign} {goal} is {reached}{lacking}.",
            sign={">=": "at least", "<=": "at most"}[project.goal_op],
            goal=written(project.goal_metric, project.goal_value),
            reached="reached" if self.document["goal_met"] else "not reached yet",
            lacking=say(": {figure} missing", figure=written(project.goal_metric, missing)) if missing else "",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """One round: what it is about, what it lacks by state of the cycle, and the keys that it changed of its parent's."""

    project: Project
    row: Mapping[str, Any]
    is_open: bool
    missing: Mapping[str, list[str]]
    changed: list[dict[str, Any]]

    def told(self) -> Said:
        """How it was decided, or what comes next."""
        row = self.row
        name = say("Round {number} ({title})", number=str(row["number"]), title=row["title"])
        if not self.is_open:
            reason = row["reason"] or ""
            return say("{name} was decided: {verdict}. {reason}", name=name, verdict=row["verdict"], reason=reason)
        lacking = next(((state, what) for state, what in self.missing.items() if what), None)
        if lacking is None:
            return say("{name} is open and has all its evidence; decide it on page 21.", name=name)
        return say(
            "{name} is open. Next, at the state {state}: {what}.", name=name, state=lacking[0], what=joined(lacking[1], by=", ")
        )

    def to_frame(self) -> pd.DataFrame:
        """The story, one part a row: `what` and `of_this_round`."""
        row, metric = self.row, self.project.goal_metric
        low, high = (written(metric, row[f"prediction_{side}"], absent="") for side in ("low", "high"))
        between = say(", between {low} and {high}", low=low, high=high) if low and high else ""
        error = row["error_ratio"]
        off = "" if error is None else say(" (prediction {change})", change=format_change(error))
        first, parent = "nothing: the first round", row["parent"]
        told = {
            "hypothesis": row["hypothesis"] or "none",
            "changed from": first if parent is None else say("round {number}", number=str(parent)),
            "predicted": joined((written(metric, row["prediction"], absent="not yet"), between), by=""),
            "measured": joined((written(metric, row["value"], absent="not yet"), off), by=""),
            "accuracy": (row["accuracy"] or "not recorded").replace("_", " "),
            "decision": row["verdict"] or "open",
            "author": row["author"],
        }
        told |= {say("skipped {state}", state=one["state"]): f"{one['reason']} ({one['author']})" for one in row["skipped"]}
        frame = pd.DataFrame([{"what": name, "of_this_round": text} for name, text in told.items()])
        frame.attrs["title"] = say("Round {number}", number=str(row["number"]))
        return frame

    def differing(self) -> pd.DataFrame:
        """Keys that it changed in its parent's configuration: `key`, `old`, `new`, as text; without rows where none is known."""
        rows = [{name: str(row[name]) for name in ("key", "old", "new")} for row in self.changed]
        frame = pd.DataFrame(rows, columns=["key", "old", "new"])
        frame.attrs["title"] = say("Configuration against round {number}", number=str(self.row["parent"]))
        return frame


def standing() -> Standing:
    """Where the project of the page stands; raises InputError for a log that cannot be read."""
    project = project_here()
    if project is None:
        return Standing(project=None, document={}, log=pd.DataFrame())
    log = ExperimentLog(project.folder, read_only=True)
    return Standing(project=project, document=log.show("json"), log=log.ladder())


def story(number: int = LATEST) -> Story | None:
    """The story of a round of the page's project; None where there is no project, or no round in it."""
    project = project_here()
    rounds = [] if project is None else _rounds(project)
    if project is None or not rounds:
        return None
    opened = _waiting(rounds)
    row = next((row for row in rounds if row["number"] == number), opened or rounds[-1])
    log = ExperimentLog(project.folder, read_only=True)
    changed = log.diff(row["parent"], row["number"]) if row["parent"] is not None and row["configs"] else []
    return Story(project=project, row=row, is_open=row is opened, missing=log.missing(row["number"]), changed=changed)


def why_no_round() -> str:
    """Why there is no story of a round to tell, and what to do."""
    return _NOWHERE if project_here() is None else _FIRST


def start_round(lever: str, hypothesis: str, parent: int = LATEST, planned: str = "") -> str:
    """Open the next round, called after its one lever, with its `planned` configuration if one is named, and say so."""
    project = own_project("start")
    log = ExperimentLog(project.folder)
    number = log.start(lever, hypothesis, parent=None if parent == LATEST else parent)
    save(replace(project, open_round=number))
    if planned:
        log.attach(number, planned, "config")
    after = "Round {number} is open: {title}. Next: check that the plan fits (page 04), then predict (page 02)."
    return say(after, number=str(number), title=lever)


def abandon_round(reason: str) -> str:
    """Close the open round as reverted, with the reason why it was left, and say so."""
    project, row = _own_open_round("abandon")
    ExperimentLog(project.folder).decide(row["number"], "revert", reason)
    return say("Round {number} is abandoned; it stays in the table.", number=str(row["number"]))


def skip_state(reason: str) -> str:
    """Pass over the next state of the open round; the reason stays with the round. Goal and decision cannot be passed over."""
    project, row = _own_open_round("skip")
    log = ExperimentLog(project.folder)
    missing = log.missing(row["number"])
    skipped = next((name for name, what in missing.items() if what and name not in ("goal", "decide")), None)
    if skipped is None:
        raise InputError("skip", [say("round {number} lacks nothing that can be skipped", number=str(row["number"]))])
    log.skip(row["number"], skipped, reason)
    return say("Round {number}: {state} is skipped; the reason is kept.", number=str(row["number"]), state=skipped)


def is_open() -> bool:
    """Whether a round waits that this page may write to."""
    project = project_here()
    return project is not None and not project.read_only and _waiting(_rounds(project)) is not None


def can_start() -> bool:
    """Whether this page may start a round."""
    project = project_here()
    return project is not None and not project.read_only and _waiting(_rounds(project)) is None


def rounds_to_choose(latest: str) -> list[tuple[str, int]]:
    """The rounds of the page's project as options; the first, `LATEST`, is called `latest`."""
    project = project_here()
    rounds = [] if project is None else _rounds(project)
    return [
        (latest, LATEST),
        *((say("{number}: {title}", number=str(row["number"]), title=row["title"]), row["number"]) for row in rounds),
    ]


def _rounds(project: Project) -> list[dict[str, Any]]:
    """The rounds, oldest first; none where the log cannot be read: where the project stands says why."""
    try:
        found: list[dict[str, Any]] = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    except PerfkitError:
        return []
    return found


def _waiting(rounds: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((row for row in rounds if not row["verdict"]), None)


def _own_open_round(subject: str) -> tuple[Project, dict[str, Any]]:
    project = own_project(subject)
    row = _waiting(_rounds(project))
    if row is None:
        raise InputError(subject, ["no round is open; start one on page 00"])
    return project, row
