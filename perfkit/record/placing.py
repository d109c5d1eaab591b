"""Placing: the step of every event of a recording, or the proof that it belongs to none.

The host marks when each step began. An event of the host belongs to the step in which it began, an execution on the device to the
one in which it was launched. So an event is before the first step, in exactly one step (a pause between two marks belongs to the
earlier one), or after the last one. An execution whose
call was not recorded is placed by its correlation, which the driver counts up call by call: below the first recorded one it was
launched before the recording began, else in the step of the recorded call before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.accounts import Account
from perfkit.record.steps import Window

Ints = npt.NDArray[np.int64]
BEFORE = -1
NO_CORRELATION = 0


class Marks:
    """The steps of one rank in order of time; without any, everything is in step 0.

    A place is the position of a step among them, `BEFORE` the first one, or `len(marks)` after the last one.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        ordered = sorted(windows, key=lambda window: window.start_ns)
        self._starts = np.array([window.start_ns for window in ordered], dtype=np.int64)
        self._end_ns = max((window.end_ns for window in ordered), default=0)
        self._numbers = np.array([window.step for window in ordered] or [0], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def are_recorded(self) -> bool:
        """Whether anything marked steps."""
        return len(self._starts) > 0

    def places(self, moments_ns: npt.ArrayLike) -> Ints:
        """Where events that began at these moments belong."""
        moments = np.asarray(moments_ns, dtype=np.int64)
        if not len(self._starts):
            return np.zeros(len(moments), dtype=np.int64)
        found = np.searchsorted(self._starts, moments, side="right").astype(np.int64) - 1
        return np.where((found >= 0) & (moments >= self._end_ns), len(self), found)

    def count(self, account: Account, places: Ints) -> None:
        """Add events to the account of their file by their places."""
        before, after = int((places < 0).sum()), int((places >= len(self)).sum())
        account.before += before
        account.after += after
        account.assigned += len(places) - before - after

    def steps(self, places: Ints) -> pd.api.extensions.ExtensionArray:
        """The number of the step at each place; null before and after all of them."""
        outside = (places < 0) | (places >= len(self))
        return pd.arrays.IntegerArray(self._numbers[places.clip(0, len(self) - 1)], outside)


class LaunchOrder:
    """The recorded calls of one rank by correlation: when each was made, and so in which order all others were."""

    def __init__(self, correlations: npt.ArrayLike, starts_ns: npt.ArrayLike) -> None:
        known, starts = np.asarray(correlations, dtype=np.int64), np.asarray(starts_ns, dtype=np.int64)
        order = np.lexsort((starts, known))
        known, starts = known[order], starts[order]
        first = np.append(True, known[1:] != known[:-1])[: len(known)]
        self._known, self._starts = known[first], starts[first]

    @property
    def first(self) -> int | None:
        """The lowest correlation on record."""
        return int(self._known[0]) if len(self._known) else None

    def places(self, correlations: Ints, starts_ns: Ints, marks: Marks) -> Ints:
        """Where executions belong; one without a correlation, or of a recording without calls, by its own start."""
        if not len(self._known):
            return marks.places(starts_ns)
        at = np.searchsorted(self._known, correlations, side="right") - 1
        launched = marks.places(self._starts[at.clip(min=0)])
        if marks.are_recorded:
            launched[at < 0] = BEFORE
        unknown = correlations == NO_CORRELATION
        launched[unknown] = marks.places(starts_ns[unknown])
        return launched


def spans_of(kernels: pd.DataFrame | None) -> list[Window]:
    """Each step from the first to the end of the last of its kernels."""
    if kernels is None:
        return []
    timed = kernels[["step", "start_ns", "duration_ns"]].dropna(subset=["start_ns", "step"])
    ends = (timed["start_ns"] + timed["duration_ns"]).groupby(timed["step"]).max()
    starts = timed["start_ns"].groupby(timed["step"]).min()
    return [Window(int(step), int(starts[step]), int(ends[step])) for step in starts.index]


def account_of(kernels: pd.DataFrame, lost: int) -> Account:
    """What became of the rows of a table of kernels; those without a step began before the first or after the last one."""
    outside = kernels.loc[kernels["step"].isna(), "start_ns"]
    spans = spans_of(kernels)
    after = int((outside >= max((window.start_ns for window in spans), default=0)).sum())
    return Account(
        in_file=len(kernels) + lost,
        assigned=len(kernels) - len(outside),
        before=len(outside) - after,
        after=after,
        lost=lost,
    )


def placed_by_time(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels, those that state no step in the one in which they ran, by the others."""
    unknown = (kernels["step"].isna() & kernels["start_ns"].notna()).to_numpy(dtype=bool)
    if not unknown.any() or unknown.all():
        return kernels
    marks = Marks(spans_of(kernels))
    steps = marks.steps(marks.places(kernels.loc[unknown, "start_ns"].to_numpy(dtype=np.int64)))
    return kernels.assign(step=kernels["step"].mask(unknown, pd.Series(steps, index=kernels.index[unknown])))
