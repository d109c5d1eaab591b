"""Widgets: what the pages of the workbench are made of, and what a notebook of one's own can use.

    widgets.header()         project, goal and cycle; first on every page, it also keeps the address (#run=7&rank=3)
    widgets.timeline()       what ran when, down to 1 ns
    widgets.next_pages("10", p10="load a run to see where the step goes")

Beneath them is the panel: controls, a pure function, figures, tables and a sentence, in one of six states (`panel.py`). A view
works without a browser: made headless, it holds what would be drawn.
"""

from __future__ import annotations

from perfkit.face.widgets.header_view import header
from perfkit.face.widgets.navigation import next_pages
from perfkit.face.widgets.timelines import timeline

__all__ = ["header", "next_pages", "timeline"]
