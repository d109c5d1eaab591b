"""Overlap: how much communication runs while the device also computes.

Intervals are half-open [start_ns, end_ns) in int64 ns on the clock of one rank. Overlapping intervals of one kind count once, so
that nested or concurrent kernels do not inflate a total. The cost is two sorts: O(n log n). Nothing here is ever a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint intervals in ascending order: `starts` and `ends`, int64 ns of equal length."""

    starts: Ints
    ends: Ints

    @property
    def total_ns(self) -> int:
        """Time covered."""
        return int((self.ends - self.starts).sum())

    def clip(self, start_ns: int, end_ns: int) -> Intervals:
        """The part inside [start_ns, end_ns)."""
        starts, ends = np.maximum(self.starts, start_ns), np.minimum(self.ends, end_ns)
        keep = starts < ends
        return Intervals(starts[keep], ends[keep])


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
    """The disjoint intervals that cover the given ones; empty and reversed ones are left out."""
    starts_ns, ends_ns = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    keep = starts_ns < ends_ns
    return _covering(starts_ns[keep], ends_ns[keep], "quicksort")


def _covering(starts_ns: Ints, ends_ns: Ints, sort: Literal["quicksort", "stable"]) -> Intervals:
    if not len(starts_ns):
        return Intervals(starts_ns, ends_ns)
    # The i-th start opens a gap exactly if i intervals have ended before it, so starts and ends may be sorted apart.
    starts_ns, ends_ns = np.sort(starts_ns, kind=sort), np.sort(ends_ns, kind=sort)
    first = np.concatenate([[True], starts_ns[1:] > ends_ns[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(starts_ns[first], ends_ns[last])


def merge(a: Intervals, b: Intervals) -> Intervals:
    """The disjoint intervals that cover both."""
    return _covering(np.concatenate([a.starts, b.starts]), np.concatenate([a.ends, b.ends]), "stable")  # quick for sorted runs


def overlap_ns(a: Intervals, b: Intervals) -> int:
    """Time covered by both: |A| + |B| - |A or B|."""
    return a.total_ns + b.total_ns - merge(a, b).total_ns


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """What a device did in a window, in int ns. `computing + exposed + free = span`; copies are part of `free` or hidden."""

    span_ns: int
    computing_ns: int
    communication_ns: int
    overlapped_ns: int
    copy_ns: int
    busy_ns: int

    @property
    def exposed_ns(self) -> int:
        """Communication with no computing at the same time."""
        return self.communication_ns - self.overlapped_ns

    @property
    def free_ns(self) -> int:
        """Neither computing nor communicating."""
        return self.span_ns - self.computing_ns - self.exposed_ns

    @property
    def idle_ns(self) -> int:
        """Neither computing, communicating nor copying."""
        return self.span_ns - self.busy_ns


class Timeline:
    """The merged intervals of one rank's kernels, by kind; made once, then cut into windows."""

    def __init__(self, kernels: pd.DataFrame) -> None:
        timed = kernels[kernels["start_ns"].notna()]
        starts = timed["start_ns"].to_numpy(dtype=np.int64)
        ends = starts + timed["duration_ns"].to_numpy(dtype=np.int64)
        of_kind = {name: (timed["kind"] == name).to_numpy(dtype=bool) for name in ("computing", "communication", "copy")}
        self._by_kind = {name: union(starts[which], ends[which]) for name, which in of_kind.items()}
        self.start_ns = int(starts.min()) if len(starts) else 0
        self.end_ns = int(ends.max()) if len(ends) else 0

    def of(self, kind: str) -> Intervals:
        """The merged intervals of one kind: computing, communication or copy."""
        return self._by_kind[kind]

    def window(self, start_ns: int, end_ns: int) -> DeviceTime:
        """What the device did in [start_ns, end_ns)."""
        computing, communication, copies = (
            self._by_kind[kind].clip(start_ns, end_ns) for kind in ("computing", "communication", "copy")
        )
        busy = merge(merge(computing, communication), copies)
        working_ns = merge(computing, communication).total_ns
        return DeviceTime(
            span_ns=end_ns - start_ns,
            computing_ns=computing.total_ns,
            communication_ns=communication.total_ns,
            overlapped_ns=computing.total_ns + communication.total_ns - working_ns,
            copy_ns=busy.total_ns - working_ns,
            busy_ns=busy.total_ns,
        )

    def whole(self) -> DeviceTime:
        """What the device did from its first to its last kernel."""
        return self.window(self.start_ns, self.end_ns)


def device_time(kernels: pd.DataFrame) -> DeviceTime:
    """What one rank's device did from its first to its last kernel; `kernels` are rows of the table of that name."""
    return Timeline(kernels).whole()
