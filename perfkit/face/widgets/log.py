"""Log: the open round of the page's project, and who else has changed the project since this page read it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.core import settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.face.widgets import context
from perfkit.project import Project
from perfkit.project.experiments import ExperimentLog

Row = dict[str, Any]


def rounds_of(project: Project) -> list[Row]:
    """The rounds of a project, oldest first; none if its log cannot be read (the panel of the rounds says why)."""
    try:
        found: list[Row] = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    except PerfkitError:
        return []
    return found


def open_row(rounds: list[Row]) -> Row | None:
    """The round that waits for its decision."""
    return next((row for row in rounds if not row["verdict"]), None)


def open_round(project: Project, subject: str) -> Row:
    """The round that waits for its decision; raises InputError if there is none."""
    row = open_row(rounds_of(project))
    if row is None:
        raise InputError(subject, ["no round is open; start one on page 00"])
    return row


def writable_project(subject: str) -> Project:
    """The project of the page; raises InputError if there is none to write to."""
    project = context.current_project()
    if project is None:
        raise InputError(subject, ["no project is open; make one on page 00"])
    if project.read_only:
        raise InputError(subject, ["the project is only read; nothing was written"])
    return project


@dataclass(frozen=True, slots=True)
class Seen:
    """What a page has seen of its project: the last entry of the log, and when the settings were written."""

    event: int
    settings_ns: int


def seen(folder: Path) -> Seen:
    """The project as it is now."""
    toml = folder / settings.PROJECT_FILE
    events = ExperimentLog(folder, read_only=True).events()
    return Seen(events[-1]["id"] if events else 0, toml.stat().st_mtime_ns if toml.exists() else 0)


def changed_since(folder: Path, before: Seen) -> str:
    """Who changed what since `before`, as a sentence; empty if nobody did."""
    events = ExperimentLog(folder, read_only=True).events(before.event)
    if events:
        last = events[-1]
        ago = max(0, round((time.time_ns() - last["at_ns"]) / 1e9))
        where = f", round {last['number']}" if last["number"] is not None else ""
        return f"Changed by {last['author']} {ago} s ago: {last['action'].replace('_', ' ')}{where}"
    toml = folder / settings.PROJECT_FILE
    if toml.exists() and toml.stat().st_mtime_ns != before.settings_ns:
        return "The settings of the project were changed elsewhere"
    return ""
