"""Log steps: the steps that a training log prints, as rows of the tables `log` and `steps`.

A rank is read from one log only, because launchers write the same lines to several files, or from those that are one run
(`_attempts`). A step that is printed again, after a restart from a checkpoint, keeps all its rows in `log` and its last one in
`steps`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import pairwise

from perfkit.core.shortening import enumerated
from perfkit.core.texts import Said, say
from perfkit.record.format import Sink
from perfkit.record.formats.logs._attempts import one_run
from perfkit.record.formats.logs._log import Log, LogStep
from perfkit.record.formats.logs.log_text import rank_of

NAMED = 3
_COLUMNS = tuple(column.name for column in fields(LogStep))


def add_logs(sink: Sink, logs: Sequence[Log]) -> None:
    """Add every log to `log`, `steps`, `coverage` and the facts; of several logs of one rank those that are one run.

    A log whose name states no rank counts as rank 0. One that prints no step still gives its facts: ranks of one job share them.
    """
    of_rank: dict[int, list[Log]] = {}
    for log in logs:
        of_rank.setdefault(rank_of(log.file) or 0, []).append(log)
    runs = {rank: one_run(own) for rank, own in sorted(of_rank.items())}
    for rank, run in runs.items():
        longest = max(run, key=lambda log: len(log.steps))
        for log in of_rank[rank]:
            if log.steps and log not in run:
                sink.note(
                    f"{log.file.label} also holds steps of rank {rank} and was left out for {longest.file.label}, which has at "
                    "least as many; open it on its own"
                )
        _add_run(sink, rank, run)
    _note_holes(sink, [_whole(run) for run in runs.values()])
    for log in [*(log for run in runs.values() for log in run), *(log for log in logs if not log.steps)]:
        for name, (value, where) in log.facts.items():
            if name not in sink.facts:
                sink.fact(name, value, where)


def _add_run(sink: Sink, rank: int, run: Sequence[Log]) -> None:
    """Add the logs of a rank, one after the other; of a step that several print the last one counts."""
    kept = [(log.file, _possible(sink, log)) for log in run]
    last = {step.step: (file, step) for file, steps in kept for step in steps if step.duration_ns is not None}
    for file, steps in kept:
        own = {number: step for number, (of_file, step) in last.items() if of_file is file}
        timed = any(step.duration_ns is not None for step in steps)
        sink.cover(rank, "step times", file, rows=len(steps), state=None if timed else "partial" if steps else "empty")
        if not steps:
            continue
        printed = {name: [getattr(step, name) for step in steps] for name in _COLUMNS}
        nan = [loss is not None and math.isnan(loss) for loss in printed["loss"]]
        sink.add("log", source=file, rank=rank, file=file.label, **printed, loss_is_nan=nan)
        if own:
            sink.add("steps", source=file, rank=rank, step=list(own), duration_ns=[step.duration_ns for step in own.values()])
    if any(steps for _, steps in kept):
        _note_oddities(sink, enumerated([file.label for file, _ in kept], NAMED), [step for _, steps in kept for step in steps])


def _possible(sink: Sink, log: Log) -> list[LogStep]:
    steps = [step for step in log.steps if step.duration_ns is None or step.duration_ns >= 0]
    sink.drop("step line with a negative time", len(log.steps) - len(steps), log.file)
    return steps


def _whole(run: Sequence[Log]) -> Log:
    """The logs of one run as if one file held them: the last."""
    return Log(run[-1].file, [step for log in run for step in log.steps], max(log.last_step for log in run))


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


def _note_oddities(sink: Sink, log: str, steps: Sequence[LogStep]) -> None:
    repeated = sum(count - 1 for count in Counter(step.step for step in steps).values())
    if repeated:
        again = "{log} prints {count} step(s) again, as after a restart; the last print counts as the step"
        sink.note(say(again, log=log, count=str(repeated)))
    bad = [step.step for step in steps if step.loss is not None and not math.isfinite(step.loss)]
    if bad:
        odd = "{log} prints a loss of nan or inf in {count} step(s), first in step {step}"
        sink.note(say(odd, log=log, count=str(len(bad)), step=str(bad[0])))
    skipped = [
        (step.step, step.num_skipped or 1) for step in steps if step.num_skipped or (step.overflow and step.num_skipped is None)
    ]
    if skipped:
        told = "{log} skips {count} iteration(s), first in step {step}; their time counts, and they learn nothing"
        sink.note(say(told, log=log, count=str(sum(count for _, count in skipped)), step=str(skipped[0][0])))
