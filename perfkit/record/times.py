"""Times: which moments of a recording can be true.

A damaged file, or a profiler that failed to read its clock, gives a start of 0, of -1 or of no number at all. One such start would
make a step of 55 years, or leave its kernel out of every total. So a moment is refused that is missing, or that is more than a day
from the middle of its recording; and one that is 0 or negative where the others are not near 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.units import NS_PER_S

FAR_NS = 24 * 3600 * NS_PER_S
"""No profiler records for a day: its files would have terabytes."""
_NEAR_ZERO_NS = 3600 * NS_PER_S
"""Recordings that count from their own first event have one at 0."""

Mask = npt.NDArray[np.bool_]


def middle_of(moments: pd.Series) -> int | None:
    """The median of the moments after 0, in ns; None if there is none."""
    known = moments.dropna().to_numpy(dtype=np.int64)
    known = known[known > 0]
    return int(np.partition(known, len(known) // 2)[len(known) // 2]) if len(known) else None


def possible(moments: pd.Series, middle_ns: int | None) -> Mask:
    """Which of some moments can be true in a recording whose middle is `middle_ns`."""
    known = moments.notna().to_numpy(dtype=bool)
    if middle_ns is None:
        return known
    values = moments.to_numpy(dtype=np.int64, na_value=middle_ns)
    if not len(values) or (values.min() > max(middle_ns - FAR_NS, 0) and values.max() < middle_ns + FAR_NS):
        return known
    least = 1 if middle_ns > _NEAR_ZERO_NS else 0
    return known & (values >= least) & (values < middle_ns + FAR_NS) & (values > middle_ns - FAR_NS)
