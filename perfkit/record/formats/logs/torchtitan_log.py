"""torchtitan training log: `step: 8  loss: 6.48  grad_norm: 3.68  memory: 0.47GiB(0.16%)  tps: 24,468  tflops: 7.16  mfu: 0.29%`.

Fields are found by name, because their order and presence differ by version. tps is tokens over the seconds since the line before
and the ranks that share one batch, so tokens/s of a device; no step time is printed. memory is the largest reserved since the line
before. mfu is not used: it divides by a peak that the tool assumes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from perfkit.core.units import GIB, TERA, decimal_to_ns
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs._log import Log, LogStep
from perfkit.record.formats.logs._log_steps import add_logs
from perfkit.record.formats.logs.log_text import Line, find_float, find_logs, number_after, rank_of, read_lines, timestamp_ns
from perfkit.record.listing import File, Listing

LOOKS_FOR = "a log with lines such as 'step:  8  loss:  6.48  memory:  0.47GiB(0.16%)  tps: 24,468  tflops: 7.16  mfu: 0.29%'"
_START = rb"(?:^|[^A-Za-z_]|\x1b\[[0-9;]{0,10}m)"
MARKER = re.compile(_START + rb"step:\s*\d+(?=[^\n]{0,400}" + _START + rb"tps:\s*\d)", re.MULTILINE)

_STEP = re.compile(r"(?<![A-Za-z_])step:\s*(\d{1,15})(?![\d.])")
_LINE_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_TPS = re.compile(r"(?<![A-Za-z_])tps:\s*(\d[\d,]{0,20}(?:\.\d+)?)(?![\d.])")
_MEMORY = re.compile(r"(?<![A-Za-z_])memory:\s*(\d{1,9}(?:\.\d{1,9})?)\s*GiB")
_TFLOPS = re.compile(r"(?<![A-Za-z_])tflops:\s*(\d[\d,]{0,20}(?:\.\d+)?)(?![\d.])")
_LOSS = number_after("loss:")
_LEARNING_RATE = number_after("lr:")
_GRADIENT_NORM = number_after("grad_norm:")


def detect(listing: Listing) -> Match | None:
    """Claim every log with a line that has a step and tokens/s."""
    files = find_logs(listing, MARKER)
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read every log: rows of `log`, and the memory of the lines that say when they were printed."""
    logs = [_read_log(file, sink) for file in match.files]
    if any(log.steps for log in logs):
        sink.note("this log prints tokens/s and no step times; a step takes its tokens divided by tokens/s, both of one device")
    else:
        sink.note(f"no step line was found; looked for {LOOKS_FOR}")
    add_logs(sink, logs)


def _read_log(file: File, sink: Sink) -> Log:
    log, torn = Log(file), 0
    lines: dict[int | None, list[LogStep]] = {}
    memory: dict[int | None, list[tuple[int, int]]] = {}
    for line in read_lines(file, sink):
        found = list(_STEP.finditer(line.text)) if "step:" in line.text else []
        ends = [*(step.start() for step in found[1:]), len(line.text)]
        for step, end in zip(found, ends, strict=False):
            text = line.text[step.end() : end]
            if _TPS.search(text) is None:
                torn += "loss:" in text
                continue
            rank = int(prefix[1]) if (prefix := _LINE_RANK.search(line.text[: step.start()])) else None
            lines.setdefault(rank, []).append(_read_step(line, step, text))
            if (level := _memory(line, step, text)) is not None:
                memory.setdefault(rank, []).append(level)
    sink.drop("step line cut off or mixed with another, without tokens/s", torn, file)
    if lines:
        chosen = min(lines, key=lambda rank: -1 if rank is None else rank)
        log.steps = _with_intervals(lines.pop(chosen))
        if lines:
            others = Counter({rank: len(steps) for rank, steps in lines.items()})
            sink.note(
                f"{file.label} also has {others.total()} step lines of {len(others)} other rank(s); those of one rank are read"
            )
        _add_memory(chosen if chosen is not None else rank_of(file) or 0, memory.get(chosen, []), file, sink)
    return log


def _read_step(line: Line, found: re.Match[str], text: str) -> LogStep:
    tokens, tera = (_with_commas(pattern, text) for pattern in (_TPS, _TFLOPS))
    return LogStep(
        step=int(found[1]),
        line=line.number,
        duration_ns=None,
        timestamp_ns=timestamp_ns(line.text[: found.start()]),
        loss=find_float(_LOSS, text),
        learning_rate=find_float(_LEARNING_RATE, text),
        gradient_norm=find_float(_GRADIENT_NORM, text),
        tokens_per_s_per_device=tokens,
        flops_per_s_per_device=None if tera is None else tera * TERA,
    )


def _with_commas(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1].replace(",", "")) if found else None


def _memory(line: Line, found: re.Match[str], text: str) -> tuple[int, int] | None:
    """When the line was printed, and the bytes that it states."""
    moment, size = timestamp_ns(line.text[: found.start()]), _MEMORY.search(text)
    return None if moment is None or size is None else (moment, decimal_to_ns(size[1], GIB))


def _with_intervals(steps: list[LogStep]) -> list[LogStep]:
    """Each rate is the mean since the line before."""
    before = [None, *(step.step for step in steps)]
    return [
        replace(step, num_steps=step.step - last if last is not None and step.step > last else 1)
        for step, last in zip(steps, before, strict=False)
    ]


def _add_memory(rank: int, levels: list[tuple[int, int]], file: File, sink: Sink) -> None:
    if levels:
        sink.add(
            "memory_curve",
            source=file,
            rank=rank,
            component="largest reserved since the line before",
            time_ns=[moment for moment, _ in levels],
            reserved_bytes=[size for _, size in levels],
        )


FORMAT = Format(
    name="torchtitan-log",
    title="torchtitan training log",
    looks_for=LOOKS_FOR,
    detail=1,
    detect=detect,
    read=read,
)
