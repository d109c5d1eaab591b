"""Panels: controls, a pure function, figures, tables and a sentence; what pages show that are no notebooks with steps yet.

A page (a notebook) calls; a panel is a module here with the constant `PANEL`:

    panels.header()                  project, goal, cycle; first on every page, it also keeps the address (#run=7&rank=3)
    panels.show("step-breakdown")    the panel of perfkit/face/panels/step_breakdown.py; the last expression of its cell
    panels.next_pages("10", p10="load a run to see where the step goes")

A panel is two pure functions and what the visitor can change (see `widgets/panel.py` for the six states and how to reach them):

    def compute(state, progress): ...                       # state: dict or frozen dataclass; progress(what, done, total) optional
    def view(result): return {"bars": Figure(chart, title=..., alt=..., sources=[...])}, {"ranks": Table(frame)}, "sentence"
    PANEL = Panel(
        title="Where the step went",
        start={"run": "", "rank": 0},                        # or a function
        controls=(PathPicker("run", options=samples), Choice("rank", options=ranks_of)),
        compute=compute, view=view,
        empty=Empty(action="Use the sample run", fill=lambda state: {**state, "run": SAMPLE}),
        on_select=lambda state, chart, datum: {**state, "rank": datum["rank"]},
        shared=("run", "rank"),
    )

`compute` raises NothingYet (empty), NotMeasuredError, InputError (all problems are listed); anything else is shown as a bug.
Charts come from perfkit.face.charts with named data sets (`_theme.with_rows`): while only rows differ, the live view is patched.
Controls: Slider, Number, Choice, Text, Toggle, PathPicker, each bound to a path of the state ("parallel.pipeline_parallel_size").
In a test: `PANEL.view(PANEL.compute(state))` for the functions, `open_panel(PANEL).wait()` for the whole without a browser.
Beside panels: `text`, `html_table`, `ChartHost`, `page_state`, `page_link`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from perfkit.core.errors import InputError
from perfkit.face.widgets.chart import ChartHost, Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider, Text, Toggle
from perfkit.face.widgets.header_view import header
from perfkit.face.widgets.navigation import next_pages, page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.panel import Answer, Empty, Panel, PanelView, waited
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table, html_table
from perfkit.face.widgets.text_view import text
from perfkit.face.widgets.worker import Progress

__all__ = [
    "Answer",
    "ChartHost",
    "Choice",
    "Empty",
    "Figure",
    "NothingYet",
    "Number",
    "Panel",
    "PanelView",
    "PathPicker",
    "Progress",
    "Slider",
    "Table",
    "Text",
    "Toggle",
    "header",
    "html_table",
    "names",
    "next_pages",
    "open_panel",
    "page_link",
    "page_state",
    "show",
    "text",
]


def show(name: str, state: Any = None) -> Any:
    """The panel of the module `name` ("step-breakdown" is step_breakdown.py), from `state` or its own first state."""
    if name not in names():
        raise InputError(f"panel {name!r}", [f"does not exist; there are {', '.join(names()) or 'none'}"])
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    if hasattr(module, "open_view"):  # a view of its own kind, such as a finding's timeline
        return waited(module.open_view(state))
    return open_panel(module.PANEL, name=name, state=state)


def open_panel(panel: Panel, *, name: str = "panel", state: Any = None) -> PanelView:
    """A panel that no module holds, for example in a test or a notebook of one's own."""
    return waited(PanelView(panel, name=name, state=state))


def names() -> tuple[str, ...]:
    """The panels that there are."""
    return tuple(sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))
