"""Figures of a run that is attached to a round: those of page 01 for a log, the steady step with parts for a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfkit.config.presets import read_plan
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.settings import PROJECT_FILE
from perfkit.explain.baseline import Baseline, baseline
from perfkit.explain.compare import measure
from perfkit.project import open_project
from perfkit.project.experiments.writer import Measurement

PARTS = {"exposed_communication_ns": "communication/exposed", "bubble_ns": "bubble", "free_ns": "free"}


def facts_of_run(run: Run) -> dict[str, Any]:
    """What the row of a run says of it beside its figures: format, ranks, first and last step, what was lost."""
    steps = run.frame("steps" if run.has("steps") else "log", columns=["step"])["step"].dropna()
    return {
        "format": run.format,
        "ranks_found": len(run.ranks),
        "first_step": None if steps.empty else int(steps.min()),
        "last_step": None if steps.empty else int(steps.max()),
        "dropped": [{"what": lost.what, "count": lost.count, "file": lost.file} for lost in run.dropped],
    }


def known_beside(folder: Path, peak_flops_per_s: float | None, configs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What is known beside a log, by the names of `baseline`: peak and convention of the project at `folder`, the round's plan.

    The plan is what was run, else what was planned, of the round's `configs`; none if that is no whole plan.
    """
    known: dict[str, Any] = {"peak_flops_per_s": peak_flops_per_s}
    if (folder / PROJECT_FILE).exists():
        stated = open_project(folder)
        peak = peak_flops_per_s or stated.peak_flops_per_s
        known = {"peak_flops_per_s": peak, "attention": stated.attention, "count_head": stated.count_head}
    by_role = {row["role"]: folder / row["path"] for row in configs}
    place = by_role.get("as_run") or by_role.get("plan")
    with suppress(InputError):  # kept for its keys alone
        if place is not None:
            known |= {"plan": read_plan(str(place)), "plan_name": place.name}
    return known


def figures_of_run(run: Run, **known: Any) -> list[Measurement]:
    """What a run says of its step; empty for one that holds no step times (a memory log, a graph).

    `known` is what `baseline` takes beside a log: peak, plan, convention.
    """
    try:
        if run.has("log"):
            return figures_of_log(run.name, baseline(run, **(known | ({} if run.plan is None else {"plan": run.plan}))))
        steady = measure(run)
    except NotMeasuredError:
        return []
    count, steps = len(steady.durations_ns), f"{run.name}: {len(steady.durations_ns)} steady steps"
    step = Measurement(metric="step_time_ns", value=steady.median_ns, n=count, median_abs_dev=steady.mad_ns, source=steps)
    told = {path.split("/")[0] for path in steady.breakdown.parts}
    found = {metric: float(steady.breakdown.amount(path)) for metric, path in PARTS.items() if path.split("/")[0] in told}
    return [step, *(Measurement(metric=name, value=value, n=count, source=f"{steps}, mean") for name, value in found.items())]


def figures_of_log(name: str, found: Baseline) -> list[Measurement]:
    """The figures of a training log as the log of experiments keeps them, without those that are not known."""
    statistics, step = found.statistics, found.step_time
    rates = {
        "tokens_per_s_per_device": found.tokens_per_s_per_device,
        "samples_per_s_per_device": found.samples_per_s_per_device,
        "mfu": found.mfu,
    }
    return [
        Measurement(
            metric="step_time_ns",
            value=step.value,
            n=statistics.num_steps,
            median_abs_dev=statistics.mad_ns,
            source=f"{name}: {step.source}",
        ),
        *(
            Measurement(metric=metric, value=rate.known, source=f"{name}: {rate.source}")
            for metric, rate in rates.items()
            if rate.known is not None
        ),
    ]
