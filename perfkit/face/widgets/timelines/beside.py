"""Timeline beside another one: a second recording below the first, aligned with it at a step; both move together on the page.

It follows a picker of its own, and is empty until something is picked. Its view is no part of the page's address, which has that of
the first.
"""

from __future__ import annotations

from collections.abc import Mapping

import traitlets

from perfkit.core.resources import data_folder
from perfkit.core.texts import t
from perfkit.face.widgets import context
from perfkit.face.widgets.pickers import Picker
from perfkit.face.widgets.status import NothingYet, loading
from perfkit.face.widgets.timelines.data import Timeline
from perfkit.face.widgets.timelines.view import Message, TimelineView
from perfkit.face.widgets.view import waited


class BesideTimeline(TimelineView):
    """The timeline of a picker's recording, once one is picked."""

    beside = True
    name = traitlets.Unicode("timeline-beside").tag(sync=True)

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        super().__init__(own=True, picked=True)
        picker.place.listen(lambda: self._asking.put(self._look))

    def wait(self, timeout_s: float = 60.0) -> Timeline:
        """The timeline once it is open; NothingYet before a recording was picked."""
        if self._asking.wait(timeout_s) and not self._path:
            raise NothingYet("No recording was picked to stand beside the other.")
        return super().wait(timeout_s)

    def on_message(self, message: Message) -> None:
        """As of the first timeline; another recording is one for the picker."""
        if message.get("type") in ("run", "action"):
            self._picker.choose(message.get("path") or data_folder() / next(iter(context.SAMPLES.values())))
        elif message.get("type") != "view":
            super().on_message(message)

    def _begin(self) -> None:
        self._asking.put(self._look)

    def _look(self) -> None:
        """Show what the picker has now."""
        self._path = str(self._picker.place.wait())
        if self._path:
            with self.lock:
                self.status = loading()
            self._open()
            return
        self.timeline, self._opened = None, ""
        self._openings.cancel()
        text = t("It is drawn below this one, aligned at a step; both move together.")
        with self.lock:
            self.status = {"state": "empty", "title": t("No recording beside it yet"), "text": text}

    def _goto(self, timeline: Timeline) -> Message | None:
        return None

    def _on_address(self, values: Mapping[str, str], origin: object) -> None:
        """It follows its picker, which follows the address."""


def timeline_beside(picker: Picker) -> BesideTimeline:
    """The timeline of the recording that a `picker` has, below the first one of the page and aligned with it at a step."""
    return waited(BesideTimeline(picker))
