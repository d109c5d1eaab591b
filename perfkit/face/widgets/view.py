"""View: the base of every widget on a page, drawn by the one module `_widgets.js`, which a page loads once.

The kernel's side holds plain data in synchronised traits; the trait `kind` says which view of js/src/ draws them. Messages of
the page come as dicts with a `type`. That module and the chart library are served by the app; elsewhere (JupyterLab) the page
asks for each once and gets it through the kernel.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import anywidget
import traitlets

from perfkit.core import settings
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.face.charts.vega import module_source
from perfkit.face.widgets._messages import decode
from perfkit.face.widgets.status import NothingYet

_FOLDER = Path(__file__).parent
_keys = itertools.count(1)


class View(anywidget.AnyWidget):
    """A widget that works without a page: made headless, it holds what would be drawn."""

    _esm = _FOLDER / "_load.js"

    kind = traitlets.Unicode().tag(sync=True)
    key = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        # Panels compute in threads; traits are changed and sent under this lock only.
        self.lock = threading.RLock()
        self._changed: set[str] = set()  # traits that were sent since somebody got all of them
        super().__init__(key=f"view-{next(_keys)}", **traits)
        self.on_msg(self._dispatch)

    def _dispatch(self, _widget: Any, message: Any, buffers: Any) -> None:
        try:
            self._answer_page(decode(message), buffers)
        except (InputError, LookupError, TypeError, ValueError) as error:
            refuse(f"{type(error).__name__}: {error}")

    def _answer_page(self, message: dict[str, Any], buffers: Any) -> None:
        if message["type"] == "catch-up":
            self._send_changed()
        elif message["type"] == "need-module":
            self.send({"type": "module", "name": message["name"], **_MODULES[message["name"]]()})
        elif message["type"] == "upload":
            self.on_upload(message, buffers)
        else:
            self.on_message(message)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """All traits as a page gets them at its start (`key` None), or some of them."""
        with self.lock:
            if key is None:
                self._changed.clear()
            return super().get_state(key, drop_defaults)

    def _send_changed(self) -> None:
        """A page takes messages of a view only once it has made its model; what changed since the page got its state was lost."""
        with self.lock:
            if self._changed:
                self.send_state(self._changed)

    def send_state(self, key: Any = None) -> None:
        """Send traits as they are: plain data. ipywidgets would look for bytes in every single value of a chart."""
        state: dict[str, Any] = self.get_state(key)
        self._changed.update(state)
        # Outside of a kernel there is no comm, or one without a kernel.
        if state and self.comm is not None and getattr(self.comm, "kernel", self) is not None:
            self.comm.send(data={"method": "update", "state": state, "buffer_paths": []})

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Pages say what they want in messages; no trait is theirs to write."""
        refuse(f"a page wrote {', '.join(map(str, list(sync_data)[:5]))} of a view")

    def on_message(self, message: dict[str, Any]) -> None:
        """What the visitor did; views that accept something override it."""

    def on_upload(self, message: dict[str, Any], parts: list[memoryview]) -> None:
        """A file that the visitor sends; views with a path picker take it."""


def refuse(what: str) -> None:
    """Log what a page tried; where the kernel runs in the app, the server's own output takes it."""
    stream = sys.__stderr__
    if stream is not None:
        print(f"perfkit refused: {what[:400]}", file=stream, flush=True)


def _widgets() -> dict[str, str]:
    files = {"source": "_widgets.js", "style": "_widgets.css"}
    return {name: (_FOLDER / file).read_text(encoding="utf-8") for name, file in files.items()}


_MODULES: dict[str, Callable[[], dict[str, str]]] = {"widgets": _widgets, "vega": lambda: {"source": module_source()}}
"""What a page can ask for, by the names of js/src/load_module.js."""


_Awaited = TypeVar("_Awaited", bound=View)


def waited(view: _Awaited) -> _Awaited:
    """The view; where pages are run without a browser, once it has its answer. What went wrong is raised there."""
    if settings.wait_for_panels():
        with suppress(NothingYet, NotMeasuredError):
            view.wait()
    return view


class Content(View):
    """A view that is drawn from one trait."""

    content = traitlets.Dict().tag(sync=True)
