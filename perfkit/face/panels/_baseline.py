"""State of page 01: which log and which of its denominators are entered, and the baseline that follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.run import Run
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.units import TERA
from perfkit.explain.baseline import NAMES, Baseline, baseline
from perfkit.face.widgets import context


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the page knows. A size of 0 means: take it from the log or the configuration."""

    log: str
    config: str = ""
    suggest: bool = True
    num_warmup: int = 1
    num_devices: int = 0
    global_batch_size: int = 0
    seq_length: int = 0
    model: str = ""
    peak_tflops_per_s: float = 376.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    run: Run
    found: Baseline
    model: ModelSpec | None
    plan: Plan | None


def start() -> State:
    """The project's log if it has one open, else the bundled one."""
    project = context.current_project()
    first = context.first_run(context.SAMPLE_LOGS)
    if not Path(first).is_file():
        first = next((path for _, path, _ in context.log_options()), "")
    peak = project.peak_flops_per_s / TERA if project is not None and project.peak_flops_per_s else 376.0
    return State(log=first, peak_tflops_per_s=peak)


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Statistics, throughput and MFU of the log; raises NotMeasuredError for a recording that is no training log."""
    run, project = context.read_run(state.log, progress), context.current_project()
    plan = read_plan(state.config) if state.config else None
    model = catalog.model(state.model) if state.model else plan.model if plan else None
    found = baseline(
        run,
        plan=plan,
        plan_name=Path(state.config).name,
        model=model,
        given={name: getattr(state, name) for name in NAMES},
        num_warmup=None if state.suggest else state.num_warmup,
        peak_flops_per_s=state.peak_tflops_per_s * TERA,
        attention=project.attention if project else "full",
        count_head=project.count_head if project else True,
    )
    return Result(state=state, run=run, found=found, model=model, plan=plan)
