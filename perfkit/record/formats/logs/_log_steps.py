"""Log steps: the steps that a training log prints, as rows of the tables `log` and `steps`.

A rank is read from one log only, because launchers write the same lines to several files. A step that is printed again, after a
restart from a checkpoint, keeps all its rows in `log` and its last one in `steps`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

from perfkit.core.shortening import enumerated
from perfkit.core.texts import Said, say
from perfkit.record.format import Sink
from perfkit.record.formats.logs.log_text import rank_of
from perfkit.record.listing import File


@dataclass(frozen=True, kw_only=True, slots=True)
class LogStep:
    """One printed step; the fields are the columns of the table `log`, None where the line does not say."""

    step: int
    line: int
    duration_ns: int | None
    num_steps: int = 1
    timestamp_ns: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    global_batch_size: int | None = None
    samples_per_s_per_device: float | None = None
    tokens_per_s_per_device: float | None = None
    flops_per_s_per_device: float | None = None
    overflow: bool | None = None
    num_skipped: int | None = None
    num_nan: int | None = None


@dataclass
class Log:
    """What one file prints: its steps, and the settings that it states as name -> (value, file and line), first statement first.

    `last_step` is the one with which the job is to end, 0 if the log does not say.
    """

    file: File
    steps: list[LogStep] = field(default_factory=list)
    last_step: int = 0
    facts: dict[str, tuple[int | float | str, str]] = field(default_factory=dict)

    def state(self, name: str, value: int | float | str, where: str) -> None:
        """Keep a setting unless it was stated before: later dumps repeat names for other parts of the program."""
        self.facts.setdefault(name, (value, where))


NAMED = 3
_COLUMNS = tuple(column.name for column in fields(LogStep))


def add_logs(sink: Sink, logs: Sequence[Log]) -> None:
    """Add every log to `log`, `steps`, `coverage` and the facts; of several logs of one rank the one with most steps is used.

    A log whose name states no rank counts as rank 0. One that prints no step still gives its facts: ranks of one job share them.
    """
    chosen: dict[int, Log] = {}
    for log in sorted(logs, key=lambda log: -len(log.steps)):
        rank = rank_of(log.file) or 0
        if rank not in chosen:
            chosen[rank] = log
        elif log.steps:
            sink.note(
                f"{log.file.label} also holds steps of rank {rank} and was left out for {chosen[rank].file.label}, which has at "
                "least as many; open it on its own"
            )
    for rank, log in sorted(chosen.items()):
        _add_log(sink, rank, log.file, log.steps)
    _note_holes(sink, list(chosen.values()))
    for log in [*(chosen[rank] for rank in sorted(chosen)), *(log for log in logs if not log.steps)]:
        for name, (value, where) in log.facts.items():
            if name not in sink.facts:
                sink.fact(name, value, where)


def _add_log(sink: Sink, rank: int, file: File, steps: Sequence[LogStep]) -> None:
    possible = [step for step in steps if step.duration_ns is None or step.duration_ns >= 0]
    sink.drop("step line with a negative time", len(steps) - len(possible), file)
    steps = possible
    last = {step.step: step for step in steps if step.duration_ns is not None}
    state = None if last else "partial" if steps else "empty"
    sink.cover(rank, "step times", file, rows=len(steps), state=state)
    if not steps:
        return
    printed = {name: [getattr(step, name) for step in steps] for name in _COLUMNS}
    sink.add(
        "log", source=file, rank=rank, **printed, loss_is_nan=[loss is not None and math.isnan(loss) for loss in printed["loss"]]
    )
    if last:
        sink.add("steps", source=file, rank=rank, step=list(last), duration_ns=[step.duration_ns for step in last.values()])
    _note_oddities(sink, file, steps)


def _note_holes(sink: Sink, logs: Sequence[Log]) -> None:
    """Say once for all logs of a kind what they do not hold of their job: steps before, between and after those that they print."""
    holes: dict[Said, list[str]] = {}
    for log in logs:
        for hole in _holes(log):
            holes.setdefault(hole, []).append(log.file.label)
    for hole, labels in holes.items():
        sink.note(say("{logs}: {hole}", logs=enumerated(labels, NAMED), hole=hole))


def _holes(log: Log) -> Iterator[Said]:
    if not log.steps:
        return
    first, last = log.steps[0], log.steps[-1]
    gaps = [after.step - before.step for before, after in pairwise(log.steps) if after.step > before.step]
    usual = Counter(gaps).most_common(1)[0][0] if gaps else first.step
    if first.step > max(first.num_steps, usual):
        yield say("begins with step {step}; what came before is not in it", step=str(first.step))
    if missing := sum(gap // usual - 1 for gap in gaps if gap > usual):
        yield say("lacks {count} line(s) of steps between those that it prints", count=str(missing))
    if last.step < log.last_step:
        yield say("ends with step {step} of {steps}", step=str(last.step), steps=str(log.last_step))


def _note_oddities(sink: Sink, file: File, steps: Sequence[LogStep]) -> None:
    repeated = sum(count - 1 for count in Counter(step.step for step in steps).values())
    if repeated:
        again = "{log} prints {count} step(s) again, as after a restart; the last print counts as the step"
        sink.note(say(again, log=file.label, count=str(repeated)))
    bad = [step.step for step in steps if step.loss is not None and not math.isfinite(step.loss)]
    if bad:
        odd = "{log} prints a loss of nan or inf in {count} step(s), first in step {step}"
        sink.note(say(odd, log=file.label, count=str(len(bad)), step=str(bad[0])))
    skipped = [
        (step.step, step.num_skipped or 1) for step in steps if step.num_skipped or (step.overflow and step.num_skipped is None)
    ]
    if skipped:
        told = "{log} skips {count} iteration(s), first in step {step}; their time counts, and they learn nothing"
        sink.note(say(told, log=file.label, count=str(sum(count for _, count in skipped)), step=str(skipped[0][0])))
