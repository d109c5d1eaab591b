"""Keep: what a page or a notebook found, written to the open round of the project that it belongs to."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfkit.config.dialects import write_config
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.settings import find_project
from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_si, significant
from perfkit.predict.estimate import Estimate
from perfkit.project import Attention, Project, open_project, save
from perfkit.project.experiments import ExperimentLog


def own_project(subject: str) -> Project:
    """The project that may be written to; raises InputError in the name of `subject` if there is none."""
    folder = find_project()
    if folder is None:
        raise InputError(subject, ["no project is open; make one on page 00"])
    project = open_project(folder)
    if project.read_only:
        raise InputError(subject, ["the project is only read; nothing was written"])
    return project


def keep_event(action: str, detail: Mapping[str, Any], *, page: str = "") -> str:
    """Write an event to the round that waits for its decision, and say so. Raises InputError if there is no project or round."""
    project = own_project(action)
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError(action, [f"no round of {project.name} is open; start the next one first"])
    log.record_event(action, dict(detail), page=page, number=number)
    return f"Saved to round {number} of {project.name}."


def keep_prediction(metric: str, value: float, *, method: str) -> str:
    """Write what a page predicts for the project's open round, and say so; `value` is in the metric's own unit.

    Raises InputError if there is no project or no open round; the log refuses it once the round has a run.
    """
    project = own_project(metric)
    if project.open_round is None:
        raise InputError(metric, ["no round is open; start one on page 00"])
    ExperimentLog(project.folder).predict(project.open_round, metric, value, method=method)
    return f"Round {project.open_round} now predicts {metric.replace('_', ' ')} of {significant(value, 4)}."


def keep_plan(plan: Plan, found: Estimate, *, title: str, dialect: str, method: str) -> str:
    """Write a plan as configuration in a dialect, with its predicted throughput and memory, to the round that is not decided.

    Starts a round called `title` if all are decided, and says what was done. Raises InputError if there is no project to write to,
    or the dialect cannot say the plan.
    """
    project = own_project("plan")
    written = write_config(plan, dialect=dialect)
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        number = log.start(f"Strategy: {title}", title)
    with tempfile.TemporaryDirectory() as folder:
        file = written.save(Path(folder) / f"config{Path(written.name).suffix}")
        log.attach(number, file, "config", devices=plan.num_devices)
    rate, (low, high), step = found.tokens_per_s_per_device, found.interval_s, found.step_time_s
    log.predict(number, "tokens_per_s_per_device", rate, low=rate * step / high, high=rate * step / low, method=method)
    log.predict(number, "peak_memory_bytes", found.peak_memory_bytes or 0, method=method)
    return f"Saved to round {number} of {project.name}: {title}, with its predicted throughput and memory."


@dataclass(frozen=True, kw_only=True, slots=True)
class Counting:
    """How the figures of a project count FLOPs, and the peak that its MFU is a share of (None: that of its device)."""

    attention: Attention = "full"
    count_head: bool = True
    peak_flops_per_s: float | None = None


def counting() -> Counting:
    """As the project of the page counts; the usual way where there is none."""
    folder = find_project()
    if folder is None:
        return Counting()
    try:
        project = open_project(folder)
    except PerfkitError:
        return Counting()  # the header of the page says what is wrong with it
    return Counting(attention=project.attention, count_head=project.count_head, peak_flops_per_s=project.peak_flops_per_s)


def keep_counting(asked: Counting) -> str:
    """Let all MFU figures of the project count like this, and say so; raises InputError if there is no project to write to."""
    project = own_project("convention")
    peak = asked.peak_flops_per_s
    save(replace(project, attention=asked.attention, count_head=asked.count_head, peak_flops_per_s=peak))
    text = (
        f"All MFU figures of {project.name} now count {asked.attention} attention {'with' if asked.count_head else 'without'} head"
    )
    return f"{text}, of {format_si(peak, 'FLOP/s')}." if peak else f"{text}."
