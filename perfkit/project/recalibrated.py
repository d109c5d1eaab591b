"""Recalibrated: the prediction fitted to a measured run, kept in the project of the page."""

from __future__ import annotations

from dataclasses import replace

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.settings import find_project
from perfkit.core.spec.plan import Plan
from perfkit.explain.compare.recalibrate import recalibrate
from perfkit.explain.compare.sides import Side, described
from perfkit.project import open_project


def no_run_beside_plan(a: Side, b: Side) -> str:
    """Why nothing can be fitted to these two; "" where one is a run and the other a plan."""
    fits = {isinstance(side, Run) - isinstance(side, Plan) for side in (a, b)} == {1, -1}
    return "" if fits else "Choose a recording and its plan above: then the prediction can be fitted to what was measured."


def keep_recalibration(a: Side, b: Side, device: str | None = None) -> str:
    """Fit the calibration to the one of a and b that is a run, whose plan is the other, and say how the prediction changes.

    `device` is that of a plan which names none. The calibration is written to the project if there is one to write to. Raises
    InputError unless one side is a run and the other its plan.
    """
    run = next((side for side in (a, b) if isinstance(side, Run)), None)
    plan = next((side for side in (a, b) if isinstance(side, Plan)), None)
    if run is None or plan is None:
        raise InputError("recalibrate", [f"needs a run and its plan; chosen are {described(a)} and {described(b)}"])
    if plan.hardware is None and device is not None:
        plan = replace(plan, hardware=catalog.hardware_named(device))
    found, folder = recalibrate(run, plan), find_project()
    project = None if folder is None else open_project(folder)
    if project is None or project.read_only:
        return found.sentence
    target = project.folder / "calibration.toml"
    found.calibration.write(target)
    return f"{found.sentence} Written to {target.name} of the project: use it with --calibration {target}."
