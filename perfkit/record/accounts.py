"""Accounts: every event of a file is in one step, before the first, after the last, or lost with a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

NO_START = "event without a readable start"
NO_DURATION = "event without a readable duration, or with a negative one"


@dataclass(slots=True)
class Account:
    """What became of the events of a file: `assigned + before + after + lost` is `in_file`."""

    in_file: int = 0
    assigned: int = 0
    before: int = 0
    after: int = 0
    lost: int = 0


def readable(times: pd.DataFrame, lost: Counter[str]) -> npt.NDArray[np.bool_]:
    """Which events have a `start_ns` and a `duration_ns` that is not negative; the others are counted in `lost` by reason."""
    no_start = times["start_ns"].isna().to_numpy(dtype=bool)
    no_duration = (times["duration_ns"].isna() | (times["duration_ns"] < 0).fillna(False)).to_numpy(dtype=bool) & ~no_start
    for reason, which in ((NO_START, no_start), (NO_DURATION, no_duration)):
        if which.any():
            lost[reason] += int(which.sum())
    good: npt.NDArray[np.bool_] = ~(no_start | no_duration)
    return good
