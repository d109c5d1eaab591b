"""Figures of a run that is attached to a round: those of page 01 for a log, the steady step with parts for a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit.core.errors import NotMeasuredError
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


def stated_peak(folder: Path) -> float | None:
    """The peak of one device that the project's own file states; None where there is no such file."""
    return open_project(folder).peak_flops_per_s if (folder / PROJECT_FILE).exists() else None


def figures_of_run(run: Run, peak_flops_per_s: float | None = None) -> list[Measurement]:
    """What a run says of its step; empty for one that holds no step times (a memory log, a graph)."""
    try:
        if run.has("log"):
            return figures_of_log(run.name, baseline(run, plan=run.plan, peak_flops_per_s=peak_flops_per_s))
        steady = measure(run)
    except NotMeasuredError:
        return []
    count, steps = len(steady.durations_ns), f"{run.name}: {len(steady.durations_ns)} steady steps"
    step = Measurement(metric="step_time_ns", value=steady.median_ns, n=count, median_abs_dev=steady.mad_ns, source=steps)
    known = {path.split("/")[0] for path in steady.breakdown.parts}
    found = {metric: float(steady.breakdown.amount(path)) for metric, path in PARTS.items() if path.split("/")[0] in known}
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
