"""Host steps: the step of every event of the host, by the marks that the host itself made."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.record.placing import Marks
from perfkit.record.steps import Window

STEP_MARK = re.compile(r"(?:ProfilerStep#|Iteration )([0-9]{1,18})$")
"""Names of the marks of steps, with the number of the step."""


def host_steps(host: pd.DataFrame) -> pd.Series:
    """The step in which each row of `host` (`name`, `start_ns`, `duration_ns` of one rank) began; null before and after all.

    A pause between two marks belongs to the earlier one (`perfkit.record.placing`); without marks everything is step 0.
    """
    marks = Marks(list(_windows(host).values()))
    starts = host["start_ns"].to_numpy(dtype=np.int64)
    return pd.Series(marks.steps(marks.places(starts)), index=host.index)


def _windows(host: pd.DataFrame) -> dict[int, Window]:
    """The marked steps by number; of several marks of one number the first counts."""
    numbers = {name: int(found[1]) for name in host["name"].unique() if (found := STEP_MARK.match(str(name)))}
    marked = host[host["name"].isin(numbers).to_numpy(dtype=bool)].sort_values("start_ns", kind="stable")
    windows: dict[int, Window] = {}
    for name, begin, took in marked[["name", "start_ns", "duration_ns"]].itertuples(index=False):
        windows.setdefault(numbers[name], Window(numbers[name], int(begin), int(begin + took)))
    return windows
