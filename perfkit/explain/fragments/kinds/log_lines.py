"""Lines of a training log: step times, samples a second, and what they make of the project's plan."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from perfkit.config.lint.check import Problem
from perfkit.core.figure import Figure, figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S, format_entry, significant
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.pasted_run import pasted_run
from perfkit.explain.training_log import StepStatistics, detect_divisor, step_statistics
from perfkit.predict.cost.flops import training_flops
from perfkit.predict.cost.utilization import mfu
from perfkit.record.formats.logs import megatron_log, mindformers_log, torchtitan_log

MARKERS = (mindformers_log.MARKER, megatron_log.MARKER, torchtitan_log.MARKER)


def _claims(line: str) -> bool:
    raw = line.encode("utf-8", "replace")
    return any(marker.search(raw) for marker in MARKERS) or "samples/s/p" in line


def _read(piece: Piece) -> Part:
    log = pasted_run(piece.text, "fragment.log").frame("log")
    statistics = step_statistics(log, 0)
    figures = [
        figure("steps", statistics.num_steps, "", "reported", "lines with a time"),
        figure("step time, median", statistics.median_ns, "ns", "reported", "the log's own times"),
        *_rates(statistics),
    ]
    says, problems = [], []
    if piece.plan is not None:
        figures += _of_plan(statistics, piece.plan)
        text, doubt = _divisor(statistics, piece.plan, piece)
        says += [text] if text else []
        problems += [doubt] if doubt else []
    if (drop := _loss(log)) is not None:
        says.append(drop)
    return Part(
        kind=FRAGMENT.name,
        title=say("training log, steps: {number}", number=statistics.num_steps),
        says=tuple(says),
        figures=tuple(figures),
        problems=tuple(problems),
    )


def _rates(statistics: StepStatistics) -> Iterator[Figure]:
    rows = (
        ("samples a device", statistics.samples_per_s_per_device, "samples/s"),
        ("tokens a device", statistics.tokens_per_s_per_device, "tokens/s"),
        ("FLOP a device", statistics.flops_per_s_per_device, "FLOP/s"),
    )
    yield from (figure(name, value, unit, "reported", "as printed") for name, value, unit in rows if value is not None)


def _of_plan(statistics: StepStatistics, plan: Plan) -> Iterator[Figure]:
    tokens = plan.tokens_per_step * NS_PER_S / statistics.median_ns / plan.num_devices
    yield figure("tokens a device, computed", tokens, "tokens/s", "computed", "global batch x sequence / (step time x all devices)")
    if plan.hardware is not None and (peak := plan.hardware.peak_flops_per_s.get(plan.workload.dtype)):
        work = training_flops(plan.model, plan.workload.seq_length)
        found = figure("MFU", mfu(work, tokens, peak), "ratio", "computed", "training FLOP a token x tokens/s / peak of the device")
        yield found.within(0, 1)


def _divisor(statistics: StepStatistics, plan: Plan, piece: Piece) -> tuple[str, Problem | None]:
    """What the printed samples/s/p was divided by; a problem where no size of the plan fits."""
    printed = statistics.samples_per_s_per_device
    if printed is None:
        return "", None
    sizes = {"all devices": plan.num_devices, "the replicas": plan.parallel.data_parallel_size, "nothing": 1}
    found = detect_divisor(
        printed,
        global_batch_size=plan.workload.global_batch_size,
        duration_ns=statistics.median_ns,
        candidates=sizes,
        tolerance=0.02,
    )
    if found is None:
        replicas = plan.parallel.data_parallel_size
        form = "{printed} samples/s/p fits neither the plan's {number} devices nor its {replicas} replicas"
        message = say(form, printed=format_entry(printed), number=plan.num_devices, replicas=replicas)
        return "", piece.problem("not-this-plan", "warning", message, fix="check that log and plan are of the same run")
    form = "samples/s/p is divided by {whom} ({size}); the guides write data parallel, the program takes all devices (X03)"
    return say(form, whom=found.name, size=str(found.size)), None


def _loss(log: pd.DataFrame) -> str | None:
    known = log["loss"].dropna()
    if len(known) < 2:
        return None
    return say("loss {first} to {last}", first=significant(known.iloc[0], 4), last=significant(known.iloc[-1], 4))


FRAGMENT = FragmentKind(
    name="log_lines",
    title="lines of a training log",
    looks_for="lines with `per_step_time:`, `samples/s/p`, or `elapsed time per iteration`",
    order=13,
    claims=_claims,
    read=_read,
)
