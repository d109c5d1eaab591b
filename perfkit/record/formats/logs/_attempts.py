"""Attempts: several logs of one rank that are one run, because a launcher began it anew and wrote to another file.

torchrun puts each into a folder of its own, `attempt_0`, `attempt_1` (its `--log-dir`). Elsewhere a log goes on from another one if
its first step comes later than the last one of the other, and continues from a checkpoint of it: it is not the first of a job, and
no step is missing between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfkit.record.formats.logs._log import Log
from perfkit.record.listing import File

_ATTEMPT = re.compile(r"^attempt_(\d{1,6})$")


def one_run(logs: Sequence[Log]) -> tuple[Log, ...]:
    """Those of the logs of one rank that are one run, in the order of time; the one with most steps is among them."""
    longest = max(logs, key=lambda log: len(log.steps))
    before, after = [longest], [longest]
    others = sorted((log for log in logs if log.steps and log is not longest), key=_began)
    for log in others:
        if _goes_on(after[-1], log):
            after.append(log)
    for log in reversed(others):
        if log not in after and _goes_on(log, before[0]):
            before.insert(0, log)
    return (*before, *after[1:])


def _began(log: Log) -> tuple[int, int]:
    return _attempt(log.file)[0], log.steps[0].timestamp_ns or 0


def _goes_on(before: Log, after: Log) -> bool:
    """Whether one log goes on where the other one ended."""
    (number, folder), (next_number, next_folder) = _attempt(before.file), _attempt(after.file)
    if folder is not None and next_folder is not None:
        return folder == next_folder and next_number > number
    last, first = before.steps[-1], after.steps[0]
    if last.timestamp_ns is None or first.timestamp_ns is None or first.timestamp_ns <= last.timestamp_ns:
        return False
    return first.num_steps < first.step <= last.step + first.num_steps


def _attempt(file: File) -> tuple[int, str | None]:
    """The number of an attempt by its folder, and what the path of the file is but for that; -1 and None if it states none."""
    parts = file.relative.parts
    for place, part in enumerate(parts):
        if found := _ATTEMPT.match(part):
            return int(found[1]), "/".join((*parts[:place], *parts[place + 1 :]))
    return -1, None
