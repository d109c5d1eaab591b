"""Marks of a timeline: moments with notes, kept in the project by recording."""

from __future__ import annotations

import json
from typing import Any

from perfkit.face.widgets import context
from perfkit.project import remember

KEY = "timeline_marks"
MAX_NOTE = 200
MAX_MARKS = 500
_LARGEST = 2**63


def read_marks(run: str) -> list[dict[str, str]]:
    """The marks of a recording, `at` in ns on the common clock as text; what somebody else wrote into the file is left out."""
    marks = _all().get(run, [])
    found = [mark for mark in marks if isinstance(mark, dict) and _moment(mark.get("at")) and isinstance(mark.get("note"), str)]
    return sorted(found, key=lambda mark: int(mark["at"]))


def keep(run: str, at: object, note: str) -> str:
    """Set a mark, or change its note; without a note remove it. The sentence that says why it was not kept, or nothing."""
    project = context.current_project()
    if not _moment(at):
        return f"{at!r} is no moment in ns"
    if project is None or project.read_only:
        return "The mark is not kept: " + ("this folder is no tuning project" if project is None else "the project is read-only")
    marks = [mark for mark in read_marks(run) if mark["at"] != at]
    if note.strip():
        marks.append({"at": str(at), "note": note.strip()[:MAX_NOTE]})
    if len(marks) > MAX_MARKS:
        return f"There are {MAX_MARKS} marks already; remove one first"
    remember(project, KEY, json.dumps({**_all(), run: marks}, ensure_ascii=False))
    return ""


def _all() -> dict[str, Any]:
    project = context.current_project()
    try:
        known = json.loads(str(project.pages.get(KEY, "{}"))) if project is not None else {}
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


def _moment(text: object) -> bool:
    return isinstance(text, str) and text.lstrip("-").isdecimal() and abs(int(text)) < _LARGEST
