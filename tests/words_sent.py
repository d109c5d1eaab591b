"""The words that pages send to a browser: every text of every trait and message as it goes, and how a visitor makes them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets import panel, step_view
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.timelines._selection import walked_to
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.face.widgets.view import View

UNSEEN = frozenset(
    [
        "asked",
        "code",
        "datasets",
        "goto",
        "headers",
        "heads",
        "kind",
        "name",
        "names",
        "params",
        "path",
        "project",
        "run",
        "spec",
        "value",
        "values",
        "words",
    ]
)
"""Parts of traits and messages that no visitor reads: keys, files, code to copy; charts are looked at by themselves."""
MOST_OPTIONS, MOST_ROWS = 4, 8
NO_NUMBERS = ("x", "", "1e9", "-1")


def record(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A mapping that gets every text that views made from now on send, with its place; nothing waits for a dragged slider.

    A view of a page that was left may still answer, in the language of its own page.
    """
    found: dict[str, str] = {}
    begin, notify, send = View.__init__, View.notify_change, View.send
    made: set[int] = set()

    def begun(view: View, *args: Any, **traits: Any) -> None:
        made.add(id(view))
        begin(view, *args, **traits)

    def notified(view: View, change: Any) -> None:
        if id(view) in made and change["name"] in view.keys:
            found.update((text, f"{view.kind}{place}") for text, place in texts({change["name"]: change["new"]}))
        notify(view, change)

    def sent(view: View, content: Any, buffers: Any = None) -> None:
        if id(view) in made:
            found.update((text, f"{view.kind}: {content.get('type')} {place}") for text, place in texts(content))
        send(view, content, buffers)

    monkeypatch.setattr(View, "__init__", begun)
    monkeypatch.setattr(View, "notify_change", notified)
    monkeypatch.setattr(View, "send", sent)
    monkeypatch.setattr(panel, "_NEXT_MOVE_S", 0.0)
    monkeypatch.setattr(step_view, "SETTLED_S", 0.0)
    return found


def texts(node: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a trait or message that are read, each with its place."""
    if isinstance(node, str):
        yield node, place
    elif isinstance(node, Mapping):
        for key, part in node.items():
            if key not in UNSEEN:
                yield from texts(part, f"{place}.{key}")
    elif isinstance(node, list | tuple):
        for part in node:
            yield from texts(part, place)


def on_page(objects: Mapping[str, Any]) -> dict[str, View]:
    """All views of a page that answer, by the names of its objects."""
    found = {name: getattr(thing, "view", thing) for name, thing in objects.items()}
    return {name: view for name, view in found.items() if isinstance(view, StepView | TimelineView)}


def settle(shown: Mapping[str, Any]) -> None:
    """Wait until everything has its answer, or says why there is none."""
    for view in shown.values():
        with suppress(PerfkitError):
            view.wait()


def choose_rows(shown: Mapping[str, Any], most: int = MOST_ROWS) -> None:
    """Choose up to `most` rows of every table that lets one choose."""
    settle(shown)
    for view in shown.values():
        for table in view.details.get("tables", ()) if isinstance(view, StepView) else ():
            for row in range(min(len(table["columns"][0]["text"]), most) if table["selectable"] else 0):
                with suppress(LookupError):  # the choice before has drawn another table
                    view.on_message({"type": "row", "table": table["name"], "row": row})
                settle(shown)


def use(shown: Mapping[str, Any]) -> None:
    """Set every control to all that it takes and to what it refuses, and press every button."""
    settle(shown)
    for view in (view for view in shown.values() if isinstance(view, StepView)):
        for control in [control for control in view.controls if not control["hidden"]]:
            for value in (*_settings(control), control["value"]):
                view.set({control["name"]: value})
                settle(shown)
        for action in list(view.actions):
            with suppress(PerfkitError):
                view.act(action["name"])
            settle(shown)


def _settings(control: Mapping[str, Any]) -> Iterator[Any]:
    if control["kind"] == "choice":
        others = [option["value"] for option in control["options"] if option["value"] != control["value"]]
        yield from ([other] if control["multiple"] else other for other in others[:MOST_OPTIONS])
    elif control["kind"] == "number":
        yield from NO_NUMBERS
    elif control["kind"] == "toggle":
        yield not control["value"]


def ask(view: TimelineView) -> None:
    """On every kind of lane click a slice or sample and several in one, walk to both ends and drag over all; then search."""
    timeline = view.wait()
    start, end = view.setup["start"], view.setup["end"]
    for unit in {unit["process"]: unit for unit in view.setup["units"]}.values():
        walk = {"type": "walk", "unit": unit["id"], "lane": 0, "name": ""}
        for mode, direction in product(("lane", "name", "longest"), (1, -1)):
            view.on_message({**walk, "mode": mode, "direction": direction, "start": end if direction > 0 else start})
        clicked = walked_to(timeline, {**walk, "mode": "nearest", "direction": 1, "start": start})["slice"]
        for count in (1, 3):
            view.on_message({"type": "detail", **clicked, "count": count})
        view.on_message({"type": "select", "units": [unit["id"]], "start": start, "end": end})
    view.on_message({"type": "flows", "start": start, "end": end})
    for text in ("(", "nosuchname"):
        view.on_message({"type": "search", "text": text, "at": start})
        view.wait()
    view.on_message({"type": "next", "at": start, "direction": 1})
    view.on_message({"type": "open", "ranks": timeline.run.ranks[:MOST_OPTIONS]})
    view.wait()
