"""Messages: what a page may say to the kernel, decoded in one place: known types with known fields of known kinds, nothing else.

A page is a program of the visitor's machine and may send anything. What is refused here reaches no view; what a panel's control may
take is for the control (`_control.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perfkit.core.errors import InputError

_Scalar = str | int | float | bool | None
_Row = _Scalar | list[_Scalar] | dict[str, _Scalar]
_Data = _Scalar | list[_Row] | dict[str, _Row]
_Amount = int | float | str
"""Times are text where they have more digits than the page's numbers."""

_FIELDS: dict[str, Any] = {
    "at": _Amount,
    "busy": _Scalar,
    "bytes": int,
    "chart": str,
    "count": int,
    "datum": dict[str, _Data],
    "direction": Literal[-1, 1],
    "end": _Amount,
    "file": str,
    "filter": str,
    "first": int,
    "folder": str,
    "lane": int,
    "last": int,
    "mode": str,
    "name": str,
    "note": str,
    "path": str,
    "pins": _Data,
    "pixels": int | float,
    "rank": int | str | None,
    "ranks": list[int],
    "row": int,
    "search": str,
    "seq": int,
    "slice": _Data,
    "start": _Amount,
    "step": Literal["begin", "part", "cancel"],
    "table": str,
    "text": str,
    "unit": int | str,
    "units": list[int | str],
    "values": dict[str, _Data],
    "version": int,
    "width": int | float,
}
TYPES: dict[str, tuple[str, ...]] = {
    # panels, tables and charts
    "set": ("seq", "values"),
    "act": ("name", "values"),
    "action": (),
    "retry": (),
    "undo": (),
    "cancel": ("rank",),
    "select": ("chart", "datum", "start", "end", "units"),
    "row": ("table", "row", "version"),
    "browse": ("name", "folder"),
    "upload": ("name", "step", "file", "bytes"),
    # the header and the loader
    "class": (),
    "explain": ("text",),
    "find": ("text",),
    "hash": ("values",),
    "notebook": (),
    "catch-up": (),
    "need-module": ("name",),
    "open-path": ("path",),
    "switch": ("name", "path"),
    # the timeline
    "tiles": ("seq", "width", "first", "last", "units"),
    "counters": ("seq", "width", "first", "last", "units"),
    "csv": ("start", "end", "units", "unit", "lane", "name", "count", "busy", "text"),
    "detail": ("unit", "lane", "start", "end", "count", "busy"),
    "flows": ("start", "end"),
    "hits": ("start", "end", "pixels"),
    "mark": ("at", "note"),
    "next": ("direction", "at", "unit"),
    "open": ("ranks",),
    "run": ("path",),
    "search": ("text", "at"),
    "unmark": ("at",),
    "view": ("path", "start", "end", "slice", "pins", "filter", "search"),
    "walk": ("mode", "direction", "unit", "lane", "start", "end", "name"),
}
"""The fields that a message of each type may have."""


def decode(message: object) -> dict[str, Any]:
    """The message, if it is one. Raises InputError with all that is wrong with it."""
    kind = message.get("type") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(kind, str) or kind not in TYPES:
        raise InputError("message of the page", ["has no type that a view knows"])
    problems = [problem for name, value in message.items() if name != "type" and (problem := _problem(kind, name, value))]
    if problems:
        raise InputError(f"message {kind!r} of the page", problems)
    return dict(message)


def _problem(kind: str, name: object, value: object) -> str:
    if name not in TYPES[kind]:
        return f"has no field {str(name)[:40]!r}"
    try:
        msgspec.convert(value, _FIELDS[str(name)], strict=True)
    except msgspec.ValidationError as error:
        return f"{name}: {error}"
    return ""
