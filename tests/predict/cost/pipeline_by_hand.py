"""1F1B with transfers, operation by operation: a second derivation of the length of a step."""

from __future__ import annotations

import numpy as np


def period_s(
    passes: tuple[np.ndarray, np.ndarray], send: float, micro_batches: int, around: tuple[list[float], list[float]]
) -> float:
    """Seconds between two steps of 1F1B, operation by operation: `passes` without sends, `around` before and after all meet.

    A stage receives when it has time and the sender is done; the ends of the pipeline, which receive nothing, wait until they sent.
    """
    (forward, backward), (closing, opening), last = passes, around, len(passes[0]) - 1
    begin = [0.0] * (last + 1)
    for _ in range(3):
        free, done, todo = list(begin), {}, [_one_forward_one_backward(last - stage, micro_batches) for stage in range(last + 1)]
        while any(todo):
            for stage, operations in enumerate(todo):
                while operations:
                    kind, number = operations[0]
                    origin = None if stage == (0 if kind == "F" else last) else stage + (-1 if kind == "F" else 1)
                    if origin is not None and (kind, number, origin) not in done:
                        break
                    received = free[stage] if origin is None else max(free[stage], done[kind, number, origin]) + send
                    end = done[kind, number, stage] = received + (forward if kind == "F" else backward)[stage]
                    free[stage] = end + send if origin is None else end
                    operations.pop(0)
        met = max(end + own for end, own in zip(free, closing, strict=True))
        began, begin = max(begin), [met + own for own in opening]
    return max(begin) - began


def _one_forward_one_backward(ahead: int, micro_batches: int) -> list[tuple[str, int]]:
    first = min(ahead, micro_batches)
    found = [("F", number) for number in range(first)]
    for number in range(micro_batches - first):
        found += [("F", first + number), ("B", number)]
    return found + [("B", number) for number in range(micro_batches - first, micro_batches)]
