"""Timelines: what ran when, drawn tile by tile; `view.py` is the widget, the other modules answer its questions."""

from __future__ import annotations

from perfkit.face.widgets.panel import waited
from perfkit.face.widgets.timelines.view import TimelineView


def timeline(run: str = "") -> TimelineView:
    """The timeline of the recording at `run`, else of the project's open one, else of the bundled two-rank profile."""
    return waited(TimelineView(run))
