"""Widgets: what the notebooks of the workbench are written with; docs/notebooks.md says how a page is written.

    widgets.header()                                  project, goal and cycle; first on a page, it also keeps the page's address
    open_run = widgets.choose_recording()             a picker; open_run.value is the Run (choose_log, choose_configuration alike)

    @widgets.step(run=open_run, unit=widgets.Choice("ms", "%"), choose="rank")
    def where_the_step_went(run, unit):               runs again when the recording or the unit becomes another one
        return chart, frame, "a sentence"

    where_the_step_went.value, .chosen                what it returned, and the row that was chosen last
    widgets.next_pages("10", p10="what was recorded") links

A control is Choice, Slider, Number, Text or Toggle; `timeline` shows what ran when, down to 1 ns. A view works without a browser:
made headless, it holds what would be drawn.
"""

from __future__ import annotations

from perfkit.face.widgets.entries import Choice, Number, Slider, Text, Toggle
from perfkit.face.widgets.header_view import header
from perfkit.face.widgets.navigation import next_pages
from perfkit.face.widgets.pickers import choose_configuration, choose_log, choose_recording
from perfkit.face.widgets.steps import step
from perfkit.face.widgets.timelines import timeline

__all__ = [
    "Choice",
    "Number",
    "Slider",
    "Text",
    "Toggle",
    "choose_configuration",
    "choose_log",
    "choose_recording",
    "header",
    "next_pages",
    "step",
    "timeline",
]
