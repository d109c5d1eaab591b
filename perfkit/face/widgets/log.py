"""Log: who else has changed the project since this page read it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from perfkit.core import settings
from perfkit.project.experiments import ExperimentLog


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
