"""Panels of tests: one that no page has, opened without a browser."""

from __future__ import annotations

from typing import Any

from perfkit.face.widgets.panel import Panel, PanelView
from perfkit.face.widgets.view import waited


def open_panel(panel: Panel, *, name: str = "panel", state: Any = None) -> PanelView:
    """A panel, from `state` or its own first one."""
    return waited(PanelView(panel, name=name, state=state))
