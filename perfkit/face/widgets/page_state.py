"""Page state: the few values that restore a page, kept in the address after # (`#run=7&rank=3`).

In the app a page asks for itself with these values as its query before anything is computed (app/static/page.js), and the kernel
begins with them. Elsewhere they come once the header is drawn in the browser. Panels that share values follow every change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote

SERVERS_OWN = ("project", "token")
"""What a query says to the server alone, see app/static/page.js."""
OnChange = Callable[[Mapping[str, str], object], None]


class PageState:
    """Values by name, all text as in an address; empty text is a choice too: of none. It tells of changes, with no browser too."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values: dict[str, str] = dict(values or {})
        self._listeners: list[OnChange] = []
        self._savers: list[Callable[[object], None]] = []
        self._lock = threading.Lock()

    def get(self, name: str, default: str = "") -> str:
        """The value of `name`."""
        return self.values.get(name, default)

    def set(self, values: Mapping[str, Any], origin: object = None) -> None:
        """Change some values, None removes one; everybody but `origin` is told if anything is new."""
        with self._lock:
            merged = {name: value for name, value in self.values.items() if values.get(name, value) is not None}
            merged |= {name: address_text(value) for name, value in values.items() if value is not None}
            if merged == self.values:
                return
            self.values = merged
        for listener in list(self._listeners):
            listener(dict(merged), origin)

    def on_change(self, listener: OnChange) -> None:
        """Call `listener(values, origin)` after every change."""
        self._listeners.append(listener)

    def on_saved(self, listener: Callable[[object], None]) -> None:
        """Call `listener(origin)` after something on this page wrote to the project."""
        self._savers.append(listener)

    def saved(self, origin: object = None) -> None:
        """Tell the page that the project was written to."""
        for listener in list(self._savers):
            listener(origin)


def address_text(value: Any) -> str:
    """A value as it stands in an address; several are joined with commas, and their own are written as %2C."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(str(item).replace("%", "%25").replace(",", "%2C") for item in value)
    return str(value)


def several(text: str) -> tuple[str, ...]:
    """The values that `address_text` joined."""
    return tuple(unquote(item) for item in text.split(",")) if text else ()


@cache
def page_state() -> PageState:
    """The state of the page that this kernel serves."""
    query = parse_qsl(os.environ.get("QUERY_STRING", ""), keep_blank_values=True)
    return PageState({name: value for name, value in query if name not in SERVERS_OWN})
