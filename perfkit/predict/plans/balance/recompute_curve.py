"""Memory saved for time lost: choosing operators greedily, and the exact optimum beside it.

Operators that free the same tensor are one choice, the cheapest of them; what is left is independent, so that choosing is a
knapsack. Greedy takes most bytes a second first. Exact looks at every subset, which is possible for the few operators of a layer,
and keeps those that no other subset beats in both bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.predict.plans.balance.recompute_options import Option

MOST = 18  # 262,144 subsets; a layer has fewer independent operators


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A set of operators: bytes that a layer keeps less of one micro batch, and seconds that it takes longer."""

    paths: tuple[str, ...]
    saved_bytes: float
    seconds: float


def greedy_curve(options: Sequence[Option]) -> list[Point]:
    """Sets that grow by the operator with most bytes a second, from none to all."""
    points = [Point(paths=(), saved_bytes=0.0, seconds=0.0)]
    for option in sorted(options, key=lambda one: (-one.bytes_per_s, -one.saved_bytes, one.path)):
        last = points[-1]
        points.append(
            Point(
                paths=(*last.paths, option.path),
                saved_bytes=last.saved_bytes + option.saved_bytes,
                seconds=last.seconds + option.seconds,
            )
        )
    return points


def exact_front(options: Sequence[Option]) -> list[Point]:
    """Every set that saves more than all sets that are as fast, in the order of seconds; of the `MOST` options that save most."""
    items = sorted(options, key=lambda one: -one.bytes_per_s)[:MOST]
    saved, seconds = np.zeros(1), np.zeros(1)
    for option in items:  # the subset of number n holds item i where bit i of n is set
        saved = np.concatenate([saved, saved + option.saved_bytes])
        seconds = np.concatenate([seconds, seconds + option.seconds])
    order = np.lexsort((-saved, seconds))
    best = np.maximum.accumulate(saved[order])
    kept = order[np.concatenate([[True], best[1:] > best[:-1]])]
    return [
        Point(
            paths=tuple(option.path for bit, option in enumerate(items) if int(number) >> bit & 1),
            saved_bytes=float(saved[number]),
            seconds=float(seconds[number]),
        )
        for number in kept
    ]


def least_seconds(front: Sequence[Point], wanted_bytes: float) -> Point | None:
    """The fastest set of a front, or of a curve, that saves at least `wanted_bytes`; None if none saves so much."""
    return min((point for point in front if point.saved_bytes >= wanted_bytes), key=lambda point: point.seconds, default=None)
