"""Judged: the verdict on a recording of a page, with the configuration that it ran with and the goal of the project."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Lock, Thread

from perfkit.config.presets import config_beside, read_plan
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import MIB
from perfkit.explain.diagnose import Diagnosis, diagnose
from perfkit.face.widgets import context
from perfkit.project import Project
from perfkit.project.findings import answers
from perfkit.project.verdict import NO_PLAN, OTHER_PLAN, Verdict, verdict
from perfkit.record.load import bytes_to_convert

AHEAD_BYTES = 16 * MIB
"""What is read in a few seconds; for more a page shows how far it has come."""


def judged(run: Run, path: str) -> Verdict:
    """The verdict on the run that was read from `path`, against goal and limit of its project."""
    plan, project = plan_of(path), context.current_project()
    missing = OTHER_PLAN if plan is None and project is not None and project.open_config is not None else NO_PLAN
    project, made = _project_of(path), answers(run, path)
    return verdict(run, plan, project, diagnosis=diagnosed(run), made=made, without_plan=missing)


def _project_of(path: str) -> Project | None:
    """The page's project where it is that of a recording: a sample is of another job, and the sample project of no own one."""
    project = context.current_project()
    return None if project is None or project.sample_case or context.is_sample(Path(path)) else project


_lock = Lock()
_known: list[tuple[Run, Diagnosis]] = []
"""The last runs that were asked about: a diagnosis takes a second, and goal and plan change while the recording stays."""


def diagnosed(run: Run) -> Diagnosis:
    """The diagnosis of a run, made once as long as a page asks about it."""
    with _lock:
        found = next((diagnosis for known, diagnosis in _known if known is run), None)
        if found is None:
            found = diagnose(run)
            _known[:] = [(run, found), *_known[:1]]
        return found


def begin() -> None:
    """Read and diagnose what the first page will show before somebody asks; what is large or missing is left to it."""

    def look() -> None:
        path = context.first_run(context.SAMPLES)
        try:
            if bytes_to_convert(Path(path)) <= AHEAD_BYTES:
                diagnosed(context.read_run(path))
        except (PerfkitError, OSError) as error:
            logging.getLogger(__name__).info("%s was not read ahead: %s", path, error)  # the page says it where it is asked for

    Thread(target=look, daemon=True).start()


def plan_of(path: str) -> Plan | None:
    """The configuration of a recording: the one beside it, else what the project has open; None where one of them is a sample."""
    project = context.current_project()
    own = project.open_config if project is not None and not context.is_sample(Path(path)) else None
    if project is not None and project.sample_case and own is not None and own.is_relative_to(project.folder):
        own = None  # the sample's rounds are of another job
    try:
        found = config_beside(path) or (str(own) if own else "")
        return read_plan(found) if found else None
    except InputError:  # the pages of the configuration say what is wrong with it
        return None
