"""Timelines: what ran when, drawn tile by tile; `view.py` is the widget, the other modules answer its questions."""

from __future__ import annotations

from pathlib import Path

from perfkit.core.run import Run
from perfkit.face.widgets.pickers import Picker
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.face.widgets.view import waited


def timeline(run: Run | str | Path | Picker = "") -> TimelineView:
    """The timeline of a `run`, of the recording at a path, or of a picker's; of "" the page's, else the project's, else the sample.

    `.selection` is what was picked on it, for a step to follow; `.select(0, start_ns=…, end_ns=…)` picks it in a script.
    """
    if isinstance(run, Picker):
        return waited(TimelineView(run.path, picked=True))
    return waited(TimelineView(run if isinstance(run, Run) else str(run), own=bool(run)))
