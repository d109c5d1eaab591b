"""Baseline: step time, throughput and MFU of a training log, each denominator with its origin.

A size that is not given is taken from the log, then from the plan; one that nothing states stays unknown, and so do the figures
that need it. Step time is the median after warm-up; throughput divides by all devices (erratum X02). MFU needs the model's FLOPs:
from a model, or from the rate that the log itself prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.figure import Figure, computed, figure, first_known
from perfkit.core.run import Run
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S, format_ns, format_ratio, format_si, significant
from perfkit.explain.training_log import StepStatistics, detect_divisor, step_statistics, timed
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import judge_utilization, mfu, samples_per_s_per_device, tokens_per_s_per_device

PRINTED = "printed by the log, median of the same steps; by the log's own count of devices"
NAMES = {"num_devices": "devices", "global_batch_size": "global batch", "seq_length": "sequence length"}
COMPILING = 2.0
"""A first step that is as many times the median holds compilation."""
FEWEST_STEPS = 3
"""A baseline of fewer says nothing about how steady the steps are."""
UNITS = {"num_devices": "", "global_batch_size": "sequences", "seq_length": "tokens"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What a log says of a training: figures, absent where a denominator is not known, which their source says.

    Rates are per device. A utilization over 1 is impossible, and is said to be.
    """

    log: pd.DataFrame
    statistics: StepStatistics
    suggested_warmup: int
    sizes: dict[str, Figure]
    step_time: Figure
    spread: Figure
    samples_per_s_per_device: Figure
    tokens_per_s_per_device: Figure
    flops_per_s_per_device: Figure
    peak: Figure
    mfu: Figure

    def told(self) -> tuple[str, ...]:
        """Throughput and MFU in a sentence, then what is impossible or unlikely about them."""
        rate, share, flops = self.tokens_per_s_per_device, self.mfu, self.flops_per_s_per_device
        said = [f"A device makes {rate.text()}."] if rate.known is not None else []
        if share.value is not None:
            own = ", by the log's own FLOP rate" if flops.state == "reported" else ""
            said.append(f"MFU is {share.text()} of {self.peak.text()}{own}.")
        if not said:
            said = [f"Neither throughput nor MFU is known. Throughput {rate.source}; the FLOP rate {flops.source}."]
        if share.value is None or judge_utilization(share.value) == "plausible":
            return (" ".join(said),)
        judged = f"An MFU of {format_ratio(share.value)} is {judge_utilization(share.value)}"
        return (" ".join(said), f"{judged}: check devices, batch, sequence length and peak.")

    def to_frame(self) -> pd.DataFrame:
        """Every figure and where it comes from; columns `quantity`, `value` (as text), `state`, `origin`."""
        low, high = (format_ns(amount, 4) for amount in (self.statistics.p10_ns, self.statistics.p90_ns))
        step, sizes = replace(self.step_time, name="step time, median"), self.sizes.values()
        rates = (self.samples_per_s_per_device, self.tokens_per_s_per_device, self.flops_per_s_per_device, self.mfu)
        rows = [
            *((each.name, each.text(), each.state, each.source) for each in (step, self.spread)),
            ("10th to 90th percentile", f"{low} to {high}", "measured", "same steps"),
            *((each.name, each.text(absent="not known"), each.state, each.source) for each in sizes),
            *((each.name, each.text(), each.state, each.source) for each in rates),
        ]
        frame = pd.DataFrame(rows, columns=["quantity", "value", "state", "origin"])
        frame.attrs |= {"title": "Figures and where they come from", "labels": {"value": "value", "origin": "where from"}}
        frame.attrs["first"] = ("quantity", "value", "origin")
        return frame


def steps_table(found: Baseline) -> pd.DataFrame:
    """The statistics of a log's steps in one row: how many, their median, 10th and 90th percentile, and the median deviation."""
    steps = found.statistics
    frame = pd.DataFrame(
        [
            {
                "steps": steps.num_steps,
                "left_out": steps.num_warmup,
                "median_step_time_ns": steps.median_ns,
                "p10_step_time_ns": steps.p10_ns,
                "p90_step_time_ns": steps.p90_ns,
                "deviation_ratio": steps.mad_ns / steps.median_ns if steps.median_ns else None,
            }
        ]
    )
    frame.attrs = {"title": "Step time by statistic", "look": "folded", "labels": {"deviation_ratio": "median deviation"}}
    return frame


def steps_told(found: Baseline) -> tuple[str, ...]:
    """The step of a log in a sentence; then what speaks against it: warm-up that is left in, too few steps, outliers."""
    statistics, warmup = found.statistics, found.statistics.num_warmup
    one, more = say("{num} warm-up step left out", num=str(warmup)), say("{num} warm-up steps left out", num=str(warmup))
    step = say(
        "A step takes {step} (median of {num}, {left_out}; typical deviation {deviation_ratio}).",
        step=found.step_time.text(),
        num=str(statistics.num_steps),
        left_out=(more if warmup > 1 else one) if warmup else "nothing left out",
        deviation_ratio=statistics.mad_ns / statistics.median_ns if statistics.median_ns else 0.0,
    )
    notes: list[str] = []
    ratio = statistics.first_to_median
    if ratio is not None and ratio >= COMPILING and not warmup:
        notes.append(f"The first step is {significant(ratio, 2)} times the median: it holds compilation. Leave it out.")
    if warmup != found.suggested_warmup:
        notes.append(f"Suggested warm-up: {found.suggested_warmup} steps.")
    if statistics.num_steps < FEWEST_STEPS:
        notes.append(f"Only {statistics.num_steps} steps are left: too few for a baseline, {FEWEST_STEPS} or more are needed.")
    if outside := statistics.outlier_steps:
        shown = ", ".join(map(str, outside[:8])) + " …" * (len(outside) > 8)
        notes.append(f"{len(outside)} of {statistics.num_steps} steps lie more than 3 MAD from the median: {shown}.")
    return (step, *notes)


def divisor_told(found: Baseline, plan: Plan | None = None) -> str:
    """By what a log divides the samples per second that it prints: all devices, or the data-parallel size of `plan` (X03)."""
    logged = found.statistics.samples_per_s_per_device
    devices, batch = (found.sizes[name].known for name in ("num_devices", "global_batch_size"))
    if logged is None:
        return "The log prints no samples/s/p."
    if not devices or not batch:
        return f"The log prints {significant(logged, 4)} samples/s/p; devices and global batch say by what it divides."
    candidates = {"all devices": int(devices)} | (
        {} if plan is None else {"the data-parallel size": plan.parallel.data_parallel_size}
    )
    step_ns = found.statistics.median_ns
    divisor = detect_divisor(logged, global_batch_size=int(batch), duration_ns=step_ns, candidates=candidates)
    if divisor is None:
        fits = f"which does not fit {' or '.join(candidates)}: check batch and devices"
        return f"The log prints {significant(logged, 4)} samples/s/p, {fits}."
    return f"The log's {significant(logged, 4)} samples/s/p is divided by {divisor.name} ({divisor.size})."


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
    after = "1 warm-up step" if statistics.num_warmup == 1 else f"{statistics.num_warmup} warm-up steps"
    left_out = f"median of {statistics.num_steps} steps after {after}"
    step = figure("step time", statistics.median_ns, "ns", "measured", left_out, digits=4)
    samples, tokens = _throughput(statistics, step, sizes)
    flops = _flop_rate(statistics, tokens, sizes, model or (plan.model if plan else None), attention, count_head=count_head)
    peak = figure("peak of one device", peak_flops_per_s or None, "FLOP/s", "reported", "neither device nor project states it")
    utilization = computed("MFU", "ratio", f"FLOP rate / {peak.text()}", _share, rate=flops, peak=peak).within(0.0, 1.0)
    return Baseline(
        log=log,
        statistics=statistics,
        suggested_warmup=suggested,
        sizes=sizes,
        step_time=step,
        spread=figure("spread, median absolute deviation", statistics.mad_ns, "ns", "measured", "same steps, not scaled"),
        samples_per_s_per_device=samples,
        tokens_per_s_per_device=tokens,
        flops_per_s_per_device=flops,
        peak=peak,
        mfu=utilization,
    )


def _throughput(statistics: StepStatistics, step: Figure, sizes: Mapping[str, Figure]) -> tuple[Figure, Figure]:
    """Samples and tokens per second and device: of the sizes where they are known, else as the log prints them."""
    devices, batch, seq = (sizes[name] for name in NAMES)
    by_sizes = computed(
        "throughput in samples",
        "samples/s/device",
        "global batch / (step x all devices)",
        lambda batch, step, devices: samples_per_s_per_device(batch, step / NS_PER_S, devices),
        devices=devices,
        batch=batch,
        step=step,
    )
    printed = figure("throughput in samples", statistics.samples_per_s_per_device, "samples/s/device", "reported", PRINTED)
    samples = first_known(by_sizes, printed)
    tokens = first_known(
        computed(
            "throughput in tokens",
            "tokens/s/device",
            "sequence length x global batch / (step x all devices)",
            lambda batch, seq, step, devices: tokens_per_s_per_device(batch, seq, step / NS_PER_S, devices),
            devices=devices,
            batch=batch,
            seq=seq,
            step=step,
        ),
        computed(
            "throughput in tokens",
            "tokens/s/device",
            "sequence length x the samples/s/device that the log prints",
            lambda samples, seq: samples * seq,
            samples=samples,
            seq=seq,
        ),
        figure("throughput in tokens", statistics.tokens_per_s_per_device, "tokens/s/device", "reported", PRINTED),
    )
    return samples, replace(tokens, digits=4)


def _flop_rate(
    statistics: StepStatistics,
    tokens: Figure,
    sizes: Mapping[str, Figure],
    model: ModelSpec | None,
    attention: Literal["full", "causal"],
    *,
    count_head: bool,
) -> Figure:
    """FLOP per second and device: of the model where there is one, else as the log prints it."""
    name, unit = "model FLOP rate", "FLOP/s per device"
    printed = figure(
        name,
        statistics.flops_per_s_per_device,
        unit,
        "reported",
        "printed by the log, median of the same steps; the log's own convention",
    )
    seq = sizes["seq_length"]
    if model is not None and seq.known is not None and tokens.known is not None:
        work = training_flops(model, int(seq.known), attention, head=count_head).total
        convention = f"{attention} attention, {'with' if count_head else 'without'} head"
        formula = f"{format_si(work, 'FLOP/token')} of {model.name or 'the model'} ({convention}) x tokens/s"
        return computed(name, unit, formula, lambda tokens, seq: work * tokens, tokens=tokens, seq=seq)
    if printed.known is not None:
        return printed
    return replace(printed, source="needs a model and tokens/s, or a log that prints its FLOP rate")


def _share(rate: float, peak: float) -> float:
    return mfu(rate, 1.0, peak)


def _sizes(run: Run, plan: Plan | None, plan_name: str, given: Mapping[str, int], log: pd.DataFrame) -> dict[str, Figure]:
    planned = {
        "num_devices": plan.num_devices if plan else None,
        "global_batch_size": plan.workload.global_batch_size if plan else None,
        "seq_length": plan.workload.seq_length if plan else None,
    }
    printed = log["global_batch_size"].dropna()
    sizes: dict[str, Figure] = {}
    for name, words in NAMES.items():
        value, origin = planned[name], plan_name
        if given.get(name):
            value, origin = given[name], "entered on this page"
        elif name in run.facts:
            value, origin = int(run.facts[name].value), run.facts[name].source.where
        elif name == "global_batch_size" and len(printed):
            value, origin = int(printed.iloc[-1]), "printed with the steps of the log"
        elif value is None:
            origin = "neither the log nor a configuration states it; enter it"
        sizes[name] = figure(words, value, UNITS[name], "reported", origin, digits=None)
    return sizes
