"""Robust statistics: middles and spreads that one odd value does not move, and which steps of a run are steady.

Everything that looks at repeated values of a run (pages, rules, comparisons, clocks) takes its median absolute deviation (MAD), its
warm-up cut and its outliers from here, so that one run is judged over the same steps everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Values = Any
"""Numbers in a row: a list, an array or a series."""

MAD_TO_SIGMA = 1.4826
"""Standard deviations of a normal distribution in one MAD: 1 over the normal quantile of 3/4, which is 0.6745."""
WARM_UP_SIGMAS = 5.0
"""Normal scatter passes this once in 3.5 million steps."""
WARM_UP_EXCESS = 0.5
"""A step that is warm-up is longer by half at the least. Compiling, allocating and filling caches cost more: where the first step
of the bundled logs and recordings holds them it takes 1.5 to 60 times a usual one, and up to 1.4 times where it does not. What is
shorter may be a fault that a diagnosis must see, and moves no median."""
WARM_FROM_STEP = 5
"""A recording that begins at this step or later begins warm: compiling, allocating and connecting belong to the first steps. No
first step of the bundled recordings that begin later is long; a log that prints every tenth step begins with the first."""
OUTLIER_SIGMAS = 3.0
"""Normal scatter passes this in 1 of 370 steps."""
FEWEST_FOR_OUTLIERS = 4
"""Of fewer values none is odd: three of which two agree by chance would lose the third."""
REAL_CHANGE_ERRORS = 3.0
"""Standard errors that a change must exceed: 1 of 370 repeats of one run by chance."""
NOISE_RATIO = 0.01
"""Changes of less are taken for noise even where no scatter was recorded: repeats of one job differ by up to 1 %."""


def median_ns(times_ns: Values) -> int:
    """The median of whole numbers as an exact one: of two middle values the mean, a half rounded down."""
    ordered = np.sort(np.asarray(times_ns, dtype=np.int64))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return int(low) + (int(high) - int(low)) // 2


def mad(values: Values, *, middle: float | None = None) -> float:
    """The median distance of values from their median, or from another `middle`; 0 of no values."""
    known = np.asarray(values, dtype=np.float64)
    if not len(known):
        return 0.0
    return float(np.median(np.abs(known - (np.median(known) if middle is None else middle))))


def sigma(values: Values, *, middle: float | None = None) -> float:
    """A standard deviation that outliers do not move: MAD_TO_SIGMA x `mad`."""
    return MAD_TO_SIGMA * mad(values, middle=middle)


def warm_up_steps(durations: Values) -> int:
    """How many steps to leave out at the start, of durations in the order of the steps.

    The second half is taken as steady: steps are cut from the start until the first one that is within its median plus the larger
    of WARM_UP_SIGMAS standard deviations and WARM_UP_EXCESS of it. At most the first half is cut, and nothing of a single step.
    """
    times = np.asarray(durations, dtype=np.float64)
    half = len(times) // 2
    if not half:
        return 0
    middle = float(np.median(times[half:]))
    limit = middle + max(WARM_UP_SIGMAS * sigma(times[half:]), WARM_UP_EXCESS * middle)
    slow = times[:half] > limit
    return half if slow.all() else int(slow.argmin())


def warm_up(steps: pd.DataFrame) -> tuple[int, ...]:
    """The numbers of the steps that are warm-up, of rows `step` and `duration_ns` of all ranks: the median rank decides.

    None of a recording that begins at WARM_FROM_STEP or later; a first row may stand for the steps before it, where only some are
    printed.
    """
    lengths = steps.groupby("step")["duration_ns"].median().sort_index()
    if len(lengths) > 1 and lengths.index[0] - (lengths.index[1] - lengths.index[0]) + 1 >= WARM_FROM_STEP:
        return ()
    return tuple(int(step) for step in lengths.index[: warm_up_steps(lengths.to_numpy())])


def outliers(values: Values, *, least: float) -> npt.NDArray[np.bool_]:
    """Which values are further from the median than OUTLIER_SIGMAS standard deviations and `least`; none of fewer than four."""
    known = np.asarray(values, dtype=np.float64)
    if len(known) < FEWEST_FOR_OUTLIERS:
        return np.zeros(len(known), dtype=bool)
    far: npt.NDArray[np.bool_] = np.abs(known - np.median(known)) > max(OUTLIER_SIGMAS * sigma(known), least)
    return far


def is_real_change(
    before: float, after: float, *, num_samples: int, median_abs_devs: Iterable[float | None], noise_ratio: float = NOISE_RATIO
) -> bool:
    """Whether two medians differ by more than noise; `num_samples` is the smaller count of the two sides.

    A change is real beyond REAL_CHANGE_ERRORS standard errors of the worse side and `noise_ratio` of the value before. Deviations
    that were not recorded (published figures) count as 0: then only `noise_ratio` decides.
    """
    deviation = max((known for known in median_abs_devs if known is not None), default=0.0)
    error = MAD_TO_SIGMA * deviation / math.sqrt(max(num_samples, 1))
    return abs(after - before) > max(REAL_CHANGE_ERRORS * error, noise_ratio * abs(before))
