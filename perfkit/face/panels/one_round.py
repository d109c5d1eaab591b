"""Round: start the next round, look at any of them, or abandon the open one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_change
from perfkit.face.widgets import context
from perfkit.face.widgets.control import Choice, PathPicker, Text
from perfkit.face.widgets.log import open_round, open_row, rounds_of, writable_project
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project import Project, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import written

LATEST = -1
"""Stands for the open round, else the last one."""
LAST_KEPT = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Which round is looked at, and the next one as it is typed."""

    round: int = LATEST
    title: str = ""
    hypothesis: str = ""
    parent: int = LAST_KEPT
    config: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The chosen round, what it changed, and what it lacks."""

    project: Project
    row: dict[str, Any]
    is_open: bool
    missing: dict[str, list[str]]
    changed: list[dict[str, Any]]


def compute(state: State) -> Result:
    """Read one round; raises NothingYet without a project or a round."""
    project = context.current_project()
    if project is None:
        raise NothingYet("No project is open, so there are no rounds. Make one below.")
    rounds = rounds_of(project)
    if not rounds:
        raise NothingYet("No rounds yet. Name the first lever below and start: round 0 is what you begin with.")
    opened = open_row(rounds)
    row = next((row for row in rounds if row["number"] == state.round), opened or rounds[-1])
    log = ExperimentLog(project.folder, read_only=True)
    changed = log.diff(row["parent"], row["number"]) if row["parent"] is not None and row["configs"] else []
    return Result(project=project, row=row, is_open=row is opened, missing=log.missing(row["number"]), changed=changed)


def view(result: Result) -> Answer:
    """The story of the round and its configuration against the parent's."""
    tables = {"story": Table(frame=pd.DataFrame(_story(result)), title=f"Round {result.row['number']}")}
    if result.changed:
        frame = pd.DataFrame([{name: str(row[name]) for name in ("key", "old", "new")} for row in result.changed])
        tables["changed"] = Table(frame=frame, title=f"Configuration against round {result.row['parent']}")
    return Answer({}, tables, _sentence(result))


def _sentence(result: Result) -> str:
    row = result.row
    name = f"Round {row['number']} ({row['title']})"
    if not result.is_open:
        return f"{name} was decided: {row['verdict']}. {row['reason'] or ''}".strip()
    lacking = next(((state, what) for state, what in result.missing.items() if what), None)
    if lacking is None:
        return f"{name} is open and has all its evidence; decide it on page 21."
    return f"{name} is open. Next, at the state {lacking[0]}: {', '.join(lacking[1])}."


def _story(result: Result) -> list[dict[str, str]]:
    row, metric = result.row, result.project.goal_metric
    low, high = (written(metric, row[f"prediction_{side}"], absent="") for side in ("low", "high"))
    predicted = written(metric, row["prediction"], absent="not yet")
    error = "" if row["error_ratio"] is None else f" (prediction {format_change(row['error_ratio'])})"
    told = {
        "hypothesis": row["hypothesis"] or "none",
        "changed from": "nothing: the first round" if row["parent"] is None else f"round {row['parent']}",
        "predicted": predicted + (f", between {low} and {high}" if low and high else ""),
        "measured": written(metric, row["value"], absent="not yet") + error,
        "accuracy": (row["accuracy"] or "not recorded").replace("_", " "),
        "decision": row["verdict"] or "open",
        "author": row["author"],
    }
    told.update({f"skipped {item['state']}": f"{item['reason']} ({item['author']})" for item in row["skipped"]})
    return [{"what": name, "of this round": text} for name, text in told.items()]


def start_round(state: State) -> str:
    """Open the next round, with its planned configuration if one is named; gives what was done."""
    project = writable_project("start")
    log = ExperimentLog(project.folder)
    number = log.start(state.title, state.hypothesis, parent=None if state.parent == LAST_KEPT else state.parent)
    save(replace(project, open_round=number))
    if state.config:
        log.attach(number, state.config, "config")
    return f"Round {number} is open: {state.title}. Next: check that the plan fits (page 04), then predict (page 02)."


def abandon_round(state: State) -> str:
    """Close the open round as reverted, with the reason why it was left."""
    project = writable_project("abandon")
    row = open_round(project, "abandon")
    ExperimentLog(project.folder).decide(row["number"], "revert", state.reason)
    return f"Round {row['number']} is abandoned; it stays in the table."


def skip_state(state: State) -> str:
    """Pass over the next state of the open round; the reason stays with the round."""
    project = writable_project("skip")
    row = open_round(project, "skip")
    log = ExperimentLog(project.folder)
    skipped = _next_skippable(log.missing(row["number"]))
    if skipped is None:
        raise InputError("skip", [f"round {row['number']} lacks nothing that can be skipped"])
    log.skip(row["number"], skipped, state.reason)
    return f"Round {row['number']}: {skipped} is skipped; the reason is kept."


def _next_skippable(missing: dict[str, list[str]]) -> str | None:
    """The first state that lacks evidence and that a round can do without; goal and decision it cannot."""
    return next((name for name, what in missing.items() if what and name not in ("goal", "decide")), None)


def _is_open(_state: object = None) -> bool:
    project = context.current_project()
    return project is not None and not project.read_only and open_row(rounds_of(project)) is not None


def _can_start(_state: object = None) -> bool:
    return context.can_save() and not _is_open()


def _options(_state: object = None) -> list[tuple[str, int]]:
    project = context.current_project()
    rounds = [] if project is None else rounds_of(project)
    return [("the open one, else the last", LATEST), *((f"{row['number']}: {row['title']}", row["number"]) for row in rounds)]


def _parents(state: object = None) -> list[tuple[str, int]]:
    return [("the last kept round", LAST_KEPT), *_options(state)[1:]]


PANEL = Panel(
    title="The round",
    follows_log=True,
    start=State,
    compute=compute,
    view=view,
    shared=("round",),
    controls=(
        Choice(path="round", options=_options, label="Look at"),
        Text(path="title", label="Title of the next round", placeholder="its one lever", visible=_can_start),
        Text(
            path="hypothesis",
            label="Hypothesis",
            placeholder="what you expect and why, at least 15 characters",
            visible=_can_start,
        ),
        Choice(path="parent", options=_parents, label="Changes", visible=_can_start),
        PathPicker(
            path="config",
            options=context.config_options,
            label="Planned configuration",
            help="kept with the round; optional here, page 03 saves one too",
            visible=_can_start,
        ),
        Text(
            path="reason", label="Reason to abandon it or to skip a state", placeholder="at least 15 characters", visible=_is_open
        ),
    ),
    actions=(
        Action(name="start", label="Start the round", run=start_round, help="writes a new round to the log", visible=_can_start),
        Action(
            name="skip",
            label="Skip the next state",
            run=skip_state,
            help="goes on without the evidence named above; the reason is kept",
            visible=_is_open,
        ),
        Action(
            name="abandon",
            label="Abandon the open round",
            run=abandon_round,
            help="closes it as reverted; nothing is deleted",
            visible=_is_open,
        ),
    ),
)
