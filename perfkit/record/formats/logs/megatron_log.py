"""Megatron training log: ` iteration  10/ 1000 | ... | elapsed time per iteration (ms): 5837.9 | ...` of Megatron and MindSpeed.

The elapsed time is the mean since the iteration printed before (the log interval); the first one contains the warm-up. Fields are
found by name inside the line, because ranks write into one file at once and lines are glued. Only one rank prints iterations
(the last one); its number is not in the line, so the log counts as the rank that its file name states, or 0.
"""

from __future__ import annotations

import re
from dataclasses import replace

from perfkit.core.units import NS_PER_MS, NS_PER_S, TERA
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs._log import Log, LogStep
from perfkit.record.formats.logs._log_steps import add_logs
from perfkit.record.formats.logs._megatron_facts import find_facts
from perfkit.record.formats.logs.log_text import (
    Line,
    find_float,
    find_int,
    find_logs,
    find_ns,
    number_after,
    read_lines,
    timestamp_ns,
)
from perfkit.record.listing import File, Listing

LOOKS_FOR = "a log with lines such as ' iteration  10/ 1000 | ... | elapsed time per iteration (ms): 5837.9 | ...'"
MARKER = re.compile(rb"(?<!\w)iteration:?\s+\d+\s*/\s*\d+\s*\||using world size: ?\d+|elapsed time per iteration \(")

_ITERATION = re.compile(r"(?<!\w)iteration:?\s+(\d{1,15})\s*/\s*(\d{1,15})\s*\|")
_ELAPSED_MS = number_after(r"elapsed time per iteration \(ms\):")
_ELAPSED_S = number_after(r"elapsed time per iteration \(s\):")
_TORN = re.compile(r"elapsed time per iteration \(")
_LOSS = number_after("lm[ -]loss:")
_LEARNING_RATE = number_after("learning rate:")
_GRADIENT_NORM = number_after("grad norm:")
_BATCH = re.compile(r"global batch size:\s*(\d+)")
_TFLOPS = number_after(r"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs):")
_TOKENS = number_after(r"(?:tokens/sec/GPU|tokens per GPU \(tokens/s/GPU\)):")
_SKIPPED = re.compile(r"number of skipped iterations:\s*(\d+)")
_NAN = re.compile(r"number of nan iterations:\s*(\d+)")


def detect(listing: Listing) -> Match | None:
    """Claim every log that prints Megatron iterations or the line about its world size."""
    files = find_logs(listing, MARKER)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read every log: rows of `log` and `steps`, and the arguments that it states as facts."""
    logs = [_read_log(file, sink) for file in match.files]
    if not any(log.steps for log in logs):
        sink.note(f"no iteration line with a time was found; looked for {LOOKS_FOR}")
    add_logs(sink, logs)


def _read_log(file: File, sink: Sink) -> Log:
    log, torn = Log(file), 0
    for line in read_lines(file, sink):
        found = list(_ITERATION.finditer(line.text))
        ends = [*(iteration.start() for iteration in found[1:]), len(line.text)]
        for iteration, end in zip(found, ends, strict=False):
            step = _read_step(line, iteration, line.text[iteration.end() : end])
            if step is None:
                torn += 1
            else:
                log.steps.append(step)
                log.last_step = int(iteration[2])
        if not found:
            torn += _TORN.search(line.text) is not None
            if not log.steps:
                find_facts(line.text, f"{file.label}:{line.number}", log)
    sink.drop("iteration line cut off or mixed with another, without a time", torn, file)
    _add_intervals(log, sink)
    return log


def _read_step(line: Line, found: re.Match[str], text: str) -> LogStep | None:
    duration_ns = find_ns(_ELAPSED_MS, text, NS_PER_MS)
    if duration_ns is None:
        duration_ns = find_ns(_ELAPSED_S, text, NS_PER_S)
    if duration_ns is None:
        return None
    tera, skipped = find_float(_TFLOPS, text), find_int(_SKIPPED, text)
    return LogStep(
        step=int(found[1]),
        line=line.number,
        duration_ns=duration_ns,
        timestamp_ns=timestamp_ns(line.text[: found.start()][-60:]),
        loss=find_float(_LOSS, text),
        learning_rate=find_float(_LEARNING_RATE, text),
        gradient_norm=find_float(_GRADIENT_NORM, text),
        global_batch_size=find_int(_BATCH, text),
        flops_per_s_per_device=None if tera is None else tera * TERA,
        tokens_per_s_per_device=find_float(_TOKENS, text),
        overflow=None if skipped is None else skipped > 0,
        num_skipped=skipped,
        num_nan=find_int(_NAN, text),
    )


def _add_intervals(log: Log, sink: Sink) -> None:
    """Say how many iterations each time is the mean of: those since the line before, or the log interval after a restart."""
    gaps = [after.step - before.step for before, after in zip(log.steps, log.steps[1:], strict=False) if after.step > before.step]
    stated, _ = log.facts.get("log_interval", (None, ""))
    interval = stated if isinstance(stated, int) and stated > 0 else min(gaps, default=0)
    if log.steps and not interval:
        sink.note(f"{log.file.label} prints one iteration and no log_interval: how many its time is the mean of is unknown")
    since = 0
    for index, step in enumerate(log.steps):
        num_steps = step.step - since if index and step.step > since else max(1, min(interval, step.step))
        log.steps[index], since = replace(step, num_steps=num_steps), step.step


FORMAT = Format(
    name="megatron-log",
    title="Megatron or MindSpeed training log",
    looks_for=LOOKS_FOR,
    detail=1,
    detect=detect,
    read=read,
)
