"""Baseline figures: step time, throughput and MFU of a training log, each denominator with its origin.

A size that is 0 in the state is taken from the log, then from the configuration; one that nothing states stays unknown, and so do
the figures that need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfkit.core import catalog, robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, TERA, format_si
from perfkit.explain.training_log import StepStatistics, step_statistics, timed
from perfkit.face.panels import _context as context
from perfkit.face.panels._plan_state import preset_plan
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import mfu, samples_per_s_per_device, tokens_per_s_per_device

PRINTED = "printed by the log, median of the same steps; by the log's own count of devices"
NAMES = {"num_devices": "devices", "global_batch_size": "global batch", "seq_length": "sequence length"}


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
class Size:
    """A denominator with its origin; `value` is None where nothing states it."""

    value: int | None
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; rates are None where a denominator is not known."""

    state: State
    run: Run
    log: pd.DataFrame
    statistics: StepStatistics
    suggested_warmup: int
    sizes: dict[str, Size]
    model: ModelSpec | None
    plan: Plan | None
    samples_per_s_per_device: float | None
    samples_origin: str
    tokens_per_s_per_device: float | None
    tokens_origin: str
    flops_per_s_per_device: float | None
    flops_origin: str
    mfu: float | None


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
    run = context.read_run(state.log, progress)
    if not run.has("log"):
        raise NotMeasuredError(
            f"step times of a whole training: {run.name} is a profile of a few steps",
            how_to_collect="choose the training log of MindFormers or Megatron; page 11 shows what the profiled steps are made of",
        )
    log = timed(run.frame("log"))
    suggested = len(robust.warm_up(log))
    statistics = step_statistics(log, suggested if state.suggest else min(state.num_warmup, len(log) - 1))
    plan = preset_plan(state.config) if state.config else None
    model = catalog.model(state.model) if state.model else plan.model if plan else None
    sizes = _sizes(state, run, plan, log)
    devices, batch, seq = (sizes[name].value for name in ("num_devices", "global_batch_size", "seq_length"))
    step_s = statistics.median_ns / NS_PER_S
    samples, samples_origin = statistics.samples_per_s_per_device, PRINTED
    if batch and devices:
        samples, samples_origin = samples_per_s_per_device(batch, step_s, devices), "global batch / (step x all devices)"
    elif samples is None:
        samples_origin = f"needs {_missing(sizes, 'num_devices', 'global_batch_size')}"
    tokens, tokens_origin = statistics.tokens_per_s_per_device, PRINTED
    if batch and devices and seq:
        tokens = tokens_per_s_per_device(batch, seq, step_s, devices)
        tokens_origin = "sequence length x global batch / (step x all devices)"
    elif samples and seq:
        tokens, tokens_origin = samples * seq, "sequence length x the samples/s per device that the log prints"
    elif tokens is None:
        tokens_origin = f"needs {_missing(sizes, 'num_devices', 'global_batch_size', 'seq_length')}"
    flops, origin = _flops_rate(model, tokens, seq, statistics)
    return Result(
        state=state,
        run=run,
        log=log,
        statistics=statistics,
        suggested_warmup=suggested,
        sizes=sizes,
        model=model,
        plan=plan,
        samples_per_s_per_device=samples,
        samples_origin=samples_origin,
        tokens_per_s_per_device=tokens,
        tokens_origin=tokens_origin,
        flops_per_s_per_device=flops,
        flops_origin=origin,
        mfu=None if flops is None else mfu(flops, 1.0, state.peak_tflops_per_s * TERA),
    )


def _missing(sizes: Mapping[str, Size], *names: str) -> str:
    """Which of the sizes nothing states, in words."""
    return " and ".join(NAMES[name] for name in names if sizes[name].value is None)


def _sizes(state: State, run: Run, plan: Plan | None, log: pd.DataFrame) -> dict[str, Size]:
    from_plan = {
        "num_devices": plan.num_devices if plan else None,
        "global_batch_size": plan.workload.global_batch_size if plan else None,
        "seq_length": plan.workload.seq_length if plan else None,
    }
    printed = log["global_batch_size"].dropna()
    sizes: dict[str, Size] = {}
    for name, planned in from_plan.items():
        entered = getattr(state, name)
        if entered:
            sizes[name] = Size(value=entered, origin="entered on this page")
        elif name in run.facts:
            sizes[name] = Size(value=int(run.facts[name].value), origin=run.facts[name].source.where)
        elif name == "global_batch_size" and len(printed):
            sizes[name] = Size(value=int(printed.iloc[-1]), origin="printed with the steps of the log")
        elif planned is not None:
            sizes[name] = Size(value=planned, origin=Path(state.config).name)
        else:
            sizes[name] = Size(value=None, origin="neither the log nor a configuration states it; enter it")
    return sizes


def _flops_rate(
    model: ModelSpec | None, tokens: float | None, seq: int | None, statistics: StepStatistics
) -> tuple[float | None, str]:
    project = context.current_project()
    if model is not None and tokens is not None and seq is not None:
        attention, head = (project.attention, project.count_head) if project else ("full", True)
        work = training_flops(model, seq, attention, head=head)
        convention = f"{attention} attention, {'with' if head else 'without'} head"
        return (
            work.total * tokens,
            f"{format_si(work.total, 'FLOP/token')} of {model.name or 'the model'} ({convention}) x tokens/s",
        )
    if statistics.flops_per_s_per_device is not None:
        return statistics.flops_per_s_per_device, "printed by the log, median of the same steps; the log's own convention"
    return None, "needs a model and tokens/s, or a log that prints its FLOP rate"
