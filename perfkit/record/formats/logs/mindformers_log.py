"""MindFormers training log: one line a step with `step:[` and a time, in the layouts of v0.3 to v1.7 and the pynative branch.

`per_step_time` is a whole number of ms, cut, not rounded. v0.3 prints `time:` of a whole sink (several steps sent to the device
at once) and then `Per sink_size step time: X ms, per step time: Y ms`; Y is used, and X / Y steps are what it is the mean of.
`samples/s/p` stands on a line of its own and belongs to the step above it; it is divided by the number of all devices.
Steps count within an epoch; here they go on counting over epochs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from perfkit.core.units import NS_PER_MS, TERA
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs._log import Log, LogStep
from perfkit.record.formats.logs._log_steps import add_logs
from perfkit.record.formats.logs._mindformers_facts import find_facts
from perfkit.record.formats.logs.log_text import (
    NUMBER,
    Line,
    exact_ns,
    find_float,
    find_logs,
    find_ns,
    number_after,
    read_lines,
    timestamp_ns,
)
from perfkit.record.listing import File, Listing

LOOKS_FOR = "a log with lines such as '{ Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms, ...'"
MARKER = re.compile(rb"(?<![A-Za-z_])step:\s*\[\s*\d+\s*/\s*\d+\s*\]|per_step_time:|Epoch:\s*\[\s*\d+\s*/")

_STEP = re.compile(
    r"(?:Epoch:\s*\[\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\],?\s*)?(?<![A-Za-z_])step:\s*\[\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\]"
)
_STEP_TIME = number_after("per_step_time:", "ms")
_SINK_TIME = number_after("time:", "ms")
_SINK_LINE = re.compile(r"per sink_size step time:\s*([\d.]+)\s*ms,\s*per step time:\s*([\d.]+)\s*ms", re.IGNORECASE)
_TORN = re.compile(r"per_step_time:|Epoch:\s*\[\s*\d+\s*/")
_LOSS = number_after("loss:")
_LEARNING_RATE = number_after("lr:")
_GRADIENT_NORM = re.compile(r"(?:global_norm|grad_norm):?\s*\[?\s*([^\],}]*)")
_ONE_NUMBER = re.compile(rf"^({NUMBER})$")
_OVERFLOW = re.compile(r"overflow cond:\s*\[?\s*(True|False)")
_SAMPLES = re.compile(r"(?<![\d.])(\d{1,12}(?:\.\d{1,12})?)\s*samples/s/p")
_FLOPS = re.compile(r"(?<![A-Za-z])(?:train_throughput_per_npu|throughput):\s*(\d+(?:\.\d+)?)\s*T")


@dataclass
class _MindFormersLog(Log):
    """A log while it is read: also the steps (by index) whose time of a whole sink is not yet divided, and the lines torn."""

    undivided: set[int] = field(default_factory=set)
    torn: int = 0


def detect(listing: Listing) -> Match | None:
    """Claim every log that prints MindFormers steps."""
    files = find_logs(listing, MARKER)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read every log: rows of `log` and `steps`, and the settings that it states as facts."""
    logs = [_read_log(file, sink) for file in match.files]
    if not any(log.steps for log in logs):
        sink.note(f"no step line with a time was found; looked for {LOOKS_FOR}")
    add_logs(sink, logs)


def _read_log(file: File, sink: Sink) -> Log:
    log = _MindFormersLog(file)
    for line in read_lines(file, sink):
        found = list(_STEP.finditer(line.text)) if "step:" in line.text else []
        ends = [*(step.start() for step in found[1:]), len(line.text)]
        for step, end in zip(found, ends, strict=False):
            _read_step(log, line, step, line.text[step.end() : end])
        if not found:
            _read_other(log, line)
            if not log.steps:
                find_facts(line.text, f"{file.label}:{line.number}", log)
    _divide(log, sink)
    sink.drop("step line cut off or mixed with another, without a time", log.torn, file)
    return log


def _read_step(log: _MindFormersLog, line: Line, found: re.Match[str], text: str) -> None:
    duration_ns = find_ns(_STEP_TIME, text, NS_PER_MS)
    sink_ns = find_ns(_SINK_TIME, text, NS_PER_MS) if duration_ns is None else None
    if duration_ns is None and sink_ns is None:
        log.torn += 1
        return
    if sink_ns is not None:
        log.undivided.add(len(log.steps))
    epoch, num_epochs, step, steps_per_epoch = (int(number or 1) for number in found.groups())
    log.last_step = num_epochs * steps_per_epoch
    overflow = _OVERFLOW.search(text)
    log.steps.append(
        LogStep(
            step=max(0, epoch - 1) * steps_per_epoch + step,
            line=line.number,
            duration_ns=duration_ns if duration_ns is not None else sink_ns or 0,
            timestamp_ns=timestamp_ns(line.text[: found.start()]),
            loss=find_float(_LOSS, text),
            learning_rate=find_float(_LEARNING_RATE, text),
            gradient_norm=_gradient_norm(text),
            flops_per_s_per_device=_tera(text),
            samples_per_s_per_device=find_float(_SAMPLES, text) if "samples/s/p" in text else None,
            overflow=overflow[1] == "True" if overflow else None,
        )
    )


def _read_other(log: _MindFormersLog, line: Line) -> None:
    """A line without a step: the second line of a step, the mean of a sink, a torn step, or none of these."""
    log.torn += _TORN.search(line.text) is not None
    if not log.steps:
        return
    samples = find_float(_SAMPLES, line.text) if "samples/s/p" in line.text else None
    if samples is not None and log.steps[-1].samples_per_s_per_device is None:
        log.steps[-1] = replace(log.steps[-1], samples_per_s_per_device=samples)
    if found := _SINK_LINE.search(line.text):
        _use_mean(log, found)


def _use_mean(log: _MindFormersLog, found: re.Match[str]) -> None:
    """Use the time of one step from a sink line, if the sink has as many steps as lie between the last two step lines.

    Without sink mode the same line ends an epoch: its mean belongs to no single step.
    """
    last = len(log.steps) - 1
    sink_ns, step_ns = (exact_ns(text, NS_PER_MS) for text in found.groups())
    if last not in log.undivided or not sink_ns or not step_ns:
        return
    num_steps = max(1, round(sink_ns / step_ns))
    between = log.steps[last].step - log.steps[last - 1].step if last else num_steps
    if between >= num_steps:
        log.steps[last] = replace(log.steps[last], duration_ns=step_ns, num_steps=num_steps)
        log.undivided.discard(last)


def _divide(log: _MindFormersLog, sink: Sink) -> None:
    """Divide the whole-sink times that no sink line followed by the sink size of the other steps, or by the steps between lines."""
    if not log.undivided:
        return
    sizes = Counter(step.num_steps for index, step in enumerate(log.steps) if index not in log.undivided)
    gaps = [after.step - before.step for before, after in zip(log.steps, log.steps[1:], strict=False) if after.step > before.step]
    size = sizes.most_common(1)[0][0] if sizes else min(gaps, default=1)
    for index in log.undivided:
        step = log.steps[index]
        if step.duration_ns is not None:
            log.steps[index] = replace(step, duration_ns=round(step.duration_ns / size), num_steps=size)
    sink.note(
        f"{log.file.label} does not say how many steps {len(log.undivided)} of its times cover; they were divided by {size}, as "
        f"{'its other lines say' if sizes else 'its step numbers suggest'}"
    )


def _gradient_norm(text: str) -> float | None:
    """The global gradient norm; None if the line prints none, or several numbers of which none is known to be it."""
    found = _GRADIENT_NORM.search(text)
    return find_float(_ONE_NUMBER, found[1].strip()) if found else None


def _tera(text: str) -> float | None:
    value = find_float(_FLOPS, text)
    return None if value is None else value * TERA


FORMAT = Format(
    name="mindformers-log",
    title="MindFormers training log",
    looks_for=LOOKS_FOR,
    detail=1,
    detect=detect,
    read=read,
)
