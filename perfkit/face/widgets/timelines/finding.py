"""Finding timeline: the evidence of the chosen finding where it ran, on the page of the finding itself.

Nothing is read before the visitor asks for it. From then on it follows the finding: the ranks that it is about beside others, and
the slice that shows it. Its view is no part of the page's address, which names the finding.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.core import settings
from perfkit.core.resources import pages
from perfkit.core.run import Run
from perfkit.core.texts import t
from perfkit.explain.diagnose import Finding
from perfkit.explain.diagnose.told import finding_of
from perfkit.face.widgets import context
from perfkit.face.widgets.finding_place import Place, place_of
from perfkit.face.widgets.judged import diagnosed
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.timelines.data import Timeline
from perfkit.face.widgets.timelines.events import WORK, slice_called
from perfkit.face.widgets.timelines.view import Message, TimelineView
from perfkit.face.widgets.view import waited

_PAGE = "14"


class FindingTimeline(TimelineView):
    """A timeline that shows the chosen finding, once it was asked for."""

    def __init__(self, *, docked: bool = False) -> None:
        self._docked = docked
        page = next((page for page in pages(settings.pages_folder()) if page.number == _PAGE), None)
        self.link = "" if page is None else page_link(page.name)
        self._asked = False
        self._finding = page_state().get("finding")
        super().__init__()

    def wait(self, timeout_s: float = 60.0) -> Timeline:
        """The timeline once it is open; NothingYet before somebody asked for it."""
        if not self._asked:
            raise NothingYet("The timeline of the finding was not asked for.")
        return super().wait(timeout_s)

    def on_message(self, message: Message) -> None:
        """As on the page of the timeline; the button of the empty state opens the recording of the finding."""
        if message.get("type") in ("action", "retry"):
            self._asked = True
            self._asking.put(self._open)
        elif message.get("type") not in ("run", "view"):
            super().on_message(message)

    def _begin(self) -> None:
        text = t("Where the chosen finding shows, on the lanes of its ranks and of others beside them.")
        with self.lock:
            title, action = t("The evidence on the timeline"), t("Show it here")
            self.status = {"state": "empty", "title": title, "text": text, "action": action, "docked": self._docked}

    def _chosen(self) -> Finding | None:
        found = diagnosed(context.read_run(self._path))
        return finding_of(found, {"finding": self._finding}) or next(iter(found.findings), None)

    def _place(self, run: Run) -> Place | None:
        finding = self._chosen()
        return None if finding is None else place_of(run, finding)

    def _ranks(self, run: Run) -> tuple[int, ...]:
        place = self._place(run)
        return () if place is None else place.ranks

    def _goto(self, timeline: Timeline) -> Message | None:
        place = self._place(timeline.run)
        if place is None:
            return None
        found = {"id": f"{self._finding}-{place.start_ns}", "start": str(place.start_ns), "end": str(place.end_ns)}
        chosen = slice_called(timeline, place.ranks[0], place.stream, place.at_ns, place.name)
        lanes = [unit.id for unit in timeline.units if chosen is None and unit.rank == place.ranks[0] and unit.process in WORK]
        return {**found, "slice": chosen, "pins": lanes, "filter": ""}

    def _on_address(self, values: Mapping[str, str], origin: object) -> None:
        if origin is self:
            return
        path, finding = values.get("run") or self._path, values.get("finding", "")
        if (path, finding) == (self._path, self._finding):
            return
        same, self._path, self._finding = path == self._path, path, finding
        self._asked |= self._docked and bool(finding) and same
        if not self._asked:
            self._begin()
        elif same and self.timeline is not None:
            self._asking.put(self._follow)
        else:
            self._asking.put(self._open)

    def _follow(self) -> None:
        """Show another finding of the recording that is open."""
        timeline = self.timeline
        if timeline is not None:
            self._open_missing(timeline, self._ranks(timeline.run))
            self._show(timeline)


def finding_timeline(*, docked: bool = False) -> FindingTimeline:
    """The timeline of the finding that is chosen on the page; a `docked` one opens when it comes into sight, or one is chosen."""
    return waited(FindingTimeline(docked=docked))
