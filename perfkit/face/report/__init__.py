"""Report: a run or a tuning project as one HTML page that requests nothing, to be kept, sent and read years later.

The page holds its charts, the library that draws them, every number as a table and a sentence for each chart. It has no "now" in
it: equal input gives equal bytes. Everything that a file says (names, notes, paths) is on the page as text.
"""

from __future__ import annotations

from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.settings import PROJECT_FILE
from perfkit.face.report._class import class_results as class_results
from perfkit.face.report._lesson import lesson_notes as lesson_notes
from perfkit.face.report._page import html_page
from perfkit.face.report._paper import paper_game as paper_game
from perfkit.face.report._parts import Part
from perfkit.face.report._project import project_parts
from perfkit.face.report._run import run_parts
from perfkit.project import find_project
from perfkit.project.experiments.artefacts import write_text
from perfkit.record.format import Progress
from perfkit.record.load import load


def report(source: Run | Path | str, out: Path | str | None = None, *, progress: Progress | None = None) -> str:
    """The report of a run (loaded, or its path) or of the tuning project in a folder, as HTML; also written to `out`.

    Raises InputError if the source cannot be read or `out` cannot be written.
    """
    page = html_page(parts_of(source, progress))
    if out is not None:
        save_page(page, out)
    return page


def save_page(page: str, out: Path | str) -> None:
    """Write a page to a file, whole or not at all. Raises InputError if it cannot be written."""
    target = Path(out)
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(str(out), ["is a folder; name a file in it" if target.is_dir() else "the folder does not exist"])
    write_text(target, page)


def parts_of(source: Run | Path | str, progress: Progress | None = None) -> tuple[Part, ...]:
    """The sections of the report with their charts."""
    if isinstance(source, Run):
        return run_parts(source)
    place = Path(source).expanduser()
    if (place / PROJECT_FILE).is_file():
        return project_parts(find_project(place) or place.resolve(), progress)
    return run_parts(load(place, progress=progress))
