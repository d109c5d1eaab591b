"""Finding links: the pages that show the evidence of the chosen finding, with its recording and rank in their address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.core import settings
from perfkit.core.errors import PerfkitError
from perfkit.core.resources import pages
from perfkit.core.texts import t
from perfkit.explain.diagnose import Finding
from perfkit.face.panels._diagnosis import chosen_finding, diagnosis_of, pages_of
from perfkit.face.widgets import context
from perfkit.face.widgets.finding_place import first_rank, timeline_link
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.view import Content

TIMELINE = "14"


class FindingLinks(Content):
    """Links that follow the finding that is chosen on the page."""

    def __init__(self) -> None:
        state = page_state()
        super().__init__(kind="links", content=_content(state.values))
        state.on_change(lambda values, _origin: self.follow(values))

    def follow(self, values: Mapping[str, str]) -> None:
        """Show the pages of the finding that these values name."""
        with self.lock:
            self.content = _content(values)


def finding_links() -> FindingLinks:
    """Links to the pages that show the chosen finding's evidence."""
    return FindingLinks()


def _on_the_timeline(path: str, finding: Finding) -> list[dict[str, str]]:
    link = timeline_link(context.read_run(path), path, finding)
    title = next((page.title for page in pages(settings.pages_folder()) if page.number == TIMELINE), "")
    return [{"href": link, "title": t(title), "why": t("the place on the timeline")}] if link and title else []


def _content(values: Mapping[str, str]) -> dict[str, Any]:
    path = values.get("run") or context.first_run(context.SAMPLES)
    links: list[dict[str, str]] = []
    try:
        finding = chosen_finding(diagnosis_of(path)[1], values.get("finding", ""))
    except (PerfkitError, NothingYet):
        # The panel above says what is wrong with the recording.
        finding = None
    if finding is not None:
        rank = first_rank(finding)
        place = {"run": path} | ({} if rank is None else {"rank": rank})
        links = [
            {"href": page_link(page.name, **place), "title": t(page.title), "why": f"the evidence of {finding.rule}"}
            for page in pages_of(finding)
            if page.number != TIMELINE
        ]
        links += _on_the_timeline(path, finding)
    return {"label": t("Evidence"), "links": links}
