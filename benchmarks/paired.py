"""Paired comparison: a subject against a yardstick on the same data, A B A B, reported as a ratio.

Ratios survive a change of machine, seconds do not; so a benchmark prints the median ratio with its quartiles.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 7


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of subject / yardstick, and the median seconds of both for orientation."""

    name: str
    median: float
    low: float
    high: float
    subject_s: float
    yardstick_s: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.median:.2f} x the yardstick (quartiles {self.low:.2f} to {self.high:.2f}); "
            f"medians {self.subject_s:.3f} s and {self.yardstick_s:.3f} s"
        )


def compare(name: str, subject: Callable[[], object], yardstick: Callable[[], object], *, rounds: int = ROUNDS) -> Ratio:
    """Run both alternately, after one warm-up each, at low priority."""
    os.nice(5) if os.nice(0) < 5 else None
    subject()
    yardstick()
    pairs = [(_seconds(subject), _seconds(yardstick)) for _ in range(rounds)]
    ratios = [a / b for a, b in pairs]
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(name, median, low, high, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs))


def python(code: str) -> Callable[[], object]:
    """A fresh Python process that runs `code`: what a user waits for, imports included."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
