"""Robust statistics: when a difference of two medians is more than noise.

The noise rule takes the median absolute deviation of both sides: a change is real if it exceeds three standard errors
(1.4826 x MAD estimates the standard deviation of a normal distribution) and 1 % of the old value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

NOISE_RATIO = 0.01


def is_real_change(
    before: float,
    after: float,
    *,
    num_samples: int,
    median_abs_devs: Iterable[float | None],
    noise_ratio: float = NOISE_RATIO,
) -> bool:
    """Whether two medians differ by more than noise; `num_samples` is the smaller count of the two sides.

    Deviations that were not recorded (published figures) count as 0: then only `noise_ratio` decides.
    """
    deviation = max((mad for mad in median_abs_devs if mad is not None), default=0.0)
    standard_error = 1.4826 * deviation / math.sqrt(max(num_samples, 1))
    change = abs(after - before)
    return change > 3 * standard_error and change > noise_ratio * abs(before)
