"""Baseline: step time, throughput and MFU of a training log, each denominator with its origin.

A size that is not given is taken from the log, then from the plan; one that nothing states stays unknown, and so do the figures
that need it. Step time is the median after warm-up; throughput divides by all devices (erratum X02). MFU needs the model's FLOPs:
from a model, or from the rate that the log itself prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_si
from perfkit.explain.training_log import StepStatistics, step_statistics, timed
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import mfu, samples_per_s_per_device, tokens_per_s_per_device

PRINTED = "printed by the log, median of the same steps; by the log's own count of devices"
NAMES = {"num_devices": "devices", "global_batch_size": "global batch", "seq_length": "sequence length"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A denominator with its origin; `value` is None where nothing states it."""

    value: int | None
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What a log says of a training. Rates are per device and None where a denominator is not known, which their origin says."""

    log: pd.DataFrame
    statistics: StepStatistics
    suggested_warmup: int
    sizes: dict[str, Size]
    samples_per_s_per_device: float | None
    samples_origin: str
    tokens_per_s_per_device: float | None
    tokens_origin: str
    flops_per_s_per_device: float | None
    flops_origin: str
    mfu: float | None


def baseline(
    run: Run,
    *,
    plan: Plan | None = None,
    plan_name: str = "the configuration",
    model: ModelSpec | None = None,
    given: Mapping[str, int] | None = None,
    num_warmup: int | None = None,
    peak_flops_per_s: float | None = None,
    attention: Literal["full", "causal"] = "full",
    count_head: bool = True,
) -> Baseline:
    """Statistics and rates of a run that holds a training log.

    `given` sizes (`NAMES`) replace those of the log and the plan; `num_warmup` steps are left out (by default what a warm-up is).
    Raises NotMeasuredError for a run without a training log, or whose log prints no times.
    """
    if not run.has("log"):
        raise NotMeasuredError(
            f"step times of a whole training: {run.name} is a profile of a few steps",
            how_to_collect="choose the training log of MindFormers or Megatron; page 11 shows what the profiled steps are made of",
        )
    log = timed(run.frame("log"))
    suggested = len(robust.warm_up(log))
    statistics = step_statistics(log, suggested if num_warmup is None else min(num_warmup, len(log) - 1))
    sizes = _sizes(run, plan, plan_name, given or {}, log)
    devices, batch, seq = (sizes[name].value for name in NAMES)
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
        tokens_origin = f"needs {_missing(sizes, *NAMES)}"
    flops, flops_origin = statistics.flops_per_s_per_device, "needs a model and tokens/s, or a log that prints its FLOP rate"
    known = model or (plan.model if plan else None)
    if known is not None and tokens is not None and seq is not None:
        work = training_flops(known, seq, attention, head=count_head).total
        convention = f"{attention} attention, {'with' if count_head else 'without'} head"
        flops, flops_origin = (
            work * tokens,
            f"{format_si(work, 'FLOP/token')} of {known.name or 'the model'} ({convention}) x tokens/s",
        )
    elif flops is not None:
        flops_origin = "printed by the log, median of the same steps; the log's own convention"
    return Baseline(
        log=log,
        statistics=statistics,
        suggested_warmup=suggested,
        sizes=sizes,
        samples_per_s_per_device=samples,
        samples_origin=samples_origin,
        tokens_per_s_per_device=tokens,
        tokens_origin=tokens_origin,
        flops_per_s_per_device=flops,
        flops_origin=flops_origin,
        mfu=None if flops is None or not peak_flops_per_s else mfu(flops, 1.0, peak_flops_per_s),
    )


def _missing(sizes: Mapping[str, Size], *names: str) -> str:
    """Which of the sizes nothing states, in words."""
    return " and ".join(NAMES[name] for name in names if sizes[name].value is None)


def _sizes(run: Run, plan: Plan | None, plan_name: str, given: Mapping[str, int], log: pd.DataFrame) -> dict[str, Size]:
    planned = {
        "num_devices": plan.num_devices if plan else None,
        "global_batch_size": plan.workload.global_batch_size if plan else None,
        "seq_length": plan.workload.seq_length if plan else None,
    }
    printed = log["global_batch_size"].dropna()
    sizes: dict[str, Size] = {}
    for name in NAMES:
        if given.get(name):
            sizes[name] = Size(value=given[name], origin="entered on this page")
        elif name in run.facts:
            sizes[name] = Size(value=int(run.facts[name].value), origin=run.facts[name].source.where)
        elif name == "global_batch_size" and len(printed):
            sizes[name] = Size(value=int(printed.iloc[-1]), origin="printed with the steps of the log")
        elif planned[name] is not None:
            sizes[name] = Size(value=planned[name], origin=plan_name)
        else:
            sizes[name] = Size(value=None, origin="neither the log nor a configuration states it; enter it")
    return sizes
