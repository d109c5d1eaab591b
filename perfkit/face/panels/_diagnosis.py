"""Diagnosis of the open run: made once as long as the run does not change, with a name for each finding and its pages."""

from __future__ import annotations

from perfkit.core import settings
from perfkit.core.resources import Page, pages
from perfkit.core.run import Run
from perfkit.explain.diagnose import Diagnosis, Finding, diagnose
from perfkit.face.widgets import context
from perfkit.face.widgets.finding_place import finding_names

_last: list[tuple[Run, Diagnosis]] = []

PAGE_OF_SUBJECT = {"links": "13", "groups": "13", "stages": "06", "operators": "12", "kernels": "12", "ranks": "17"}
"""The page that shows a subject, for findings that name no page themselves."""
STEP_PAGE = "11"


def diagnosis_of(path: str, progress: context.Progress | None = None) -> tuple[Run, Diagnosis]:
    """The run at `path` and its diagnosis. Raises NothingYet for an empty path."""
    run = context.read_run(path, progress)
    if not _last or _last[0][0] is not run:
        if progress is not None:
            progress("rules", 0, 1)
        _last[:] = [(run, diagnose(run))]
    return _last[0]


def chosen_finding(diagnosis: Diagnosis, name: str) -> Finding | None:
    """The finding called `name`, else the costliest; None if there is none."""
    named = dict(zip(finding_names(diagnosis.findings), diagnosis.findings, strict=True))
    return named.get(name) or next(iter(diagnosis.findings), None)


def pages_of(finding: Finding) -> tuple[Page, ...]:
    """The pages that show a finding's evidence: those that it names and that exist, else the one of its subject."""
    known = {page.number: page for page in pages(settings.pages_folder())}
    named = [known[name[:2]] for name in finding.next if name[:2] in known]
    by_subject = [known[number] for name, number in PAGE_OF_SUBJECT.items() if name in finding.subject and number in known]
    found = dict.fromkeys([*named, *by_subject] or [known[number] for number in (STEP_PAGE,) if number in known])
    return tuple(found)
