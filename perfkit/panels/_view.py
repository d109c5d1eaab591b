"""View: the base of every widget on a page, drawn by the one bundle `_widgets.js`.

The kernel's side holds plain data in synchronised traits; the trait `kind` says which view of js/src/ draws them. Messages of
the page come as dicts with a `type`. The chart library is served by the app; elsewhere (JupyterLab) the page asks for it once
and gets it through the kernel.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from perfkit.charts._vega import module_source

_FOLDER = Path(__file__).parent
_keys = itertools.count(1)


class View(anywidget.AnyWidget):
    """A widget that works without a page: made headless, it holds what would be drawn."""

    _esm = _FOLDER / "_widgets.js"
    _css = _FOLDER / "_widgets.css"

    kind = traitlets.Unicode().tag(sync=True)
    key = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        # Panels compute in threads; traits are changed and sent under this lock only.
        self.lock = threading.RLock()
        super().__init__(key=f"view-{next(_keys)}", **traits)
        self.on_msg(self._dispatch)

    def _dispatch(self, _widget: Any, message: Any, buffers: Any) -> None:
        if not isinstance(message, dict):
            return
        if message.get("type") == "need-vega":
            self.send({"type": "vega", "source": module_source()})
        elif message.get("type") == "upload":
            self.on_upload(message, buffers)
        else:
            self.on_message(message)

    def on_message(self, message: dict[str, Any]) -> None:
        """What the visitor did; views that accept something override it."""

    def on_upload(self, message: dict[str, Any], parts: list[memoryview]) -> None:
        """A file that the visitor sends; views with a path picker take it."""


class Content(View):
    """A view that is drawn from one trait."""

    content = traitlets.Dict().tag(sync=True)
