"""Baseline: the training log that a project starts from, written to its open round; and its rounds by devices."""

from __future__ import annotations

from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.settings import find_project
from perfkit.explain.baseline import FEWEST_STEPS, Baseline
from perfkit.project.experiments import ExperimentLog, figures_of_log
from perfkit.project.keep import own_project


def keep_baseline(run: Run, found: Baseline, place: str | Path) -> str:
    """Attach the log at `place`, read as `run`, with its figures to the round that waits for its decision, and say so.

    A project without rounds gets its first one. Raises InputError if there
    is no project to write to, if all rounds are decided, or if too few steps are left for a baseline.
    """
    project = own_project("baseline")
    if found.statistics.num_steps < FEWEST_STEPS:
        few = f"{found.statistics.num_steps} steps after warm-up; a baseline needs {FEWEST_STEPS} or more"
        raise InputError("baseline", [few])
    log = ExperimentLog(project.folder)
    rounds = log.show("json")["rounds"]
    number = next((row["number"] for row in rounds if not row["verdict"]), None)
    if number is None and rounds:
        raise InputError("baseline", [f"all {len(rounds)} rounds of {project.name} are decided; start the next one first"])
    if number is None:
        number = log.start("Baseline", "what the training does before anything is changed")
    log.attach(number, place, "run", run=run, figures=figures_of_log(run.name, found))
    return f"Saved to round {number} of {project.name}: step time, throughput and MFU of {run.name}."


def measured_runs() -> list[tuple[str, int, float]]:
    """Runs `(name, num_devices, tokens_per_s)` of the project's rounds that have both; none without a project."""
    folder = find_project()
    found = []
    for row in [] if folder is None else ExperimentLog(folder, read_only=True).show("json")["rounds"]:
        devices = next((config["devices"] for config in row["configs"] if config["devices"]), None)
        if devices and row["metric"] == "tokens_per_s_per_device" and row["value"]:
            found.append((f"round {row['number']}", int(devices), float(row["value"]) * int(devices)))
    return found
