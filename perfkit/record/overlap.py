"""Overlap: how much communication runs while the device also computes.

Intervals are half-open [start_ns, end_ns) in int64 ns on the clock of one rank. Overlapping intervals of one kind count once, so
that nested or concurrent kernels do not inflate a total. The cost is two sorts: O(n log n). Nothing here is ever a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        """The part inside [start_ns, end_ns); of a long recording with many steps only what is near is looked at."""
        near = slice(np.searchsorted(self.ends, start_ns, side="right"), np.searchsorted(self.starts, end_ns, side="left"))
        starts, ends = np.maximum(self.starts[near], start_ns), np.minimum(self.ends[near], end_ns)
        keep = starts < ends
        return Intervals(starts[keep], ends[keep])


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
    """The disjoint intervals that cover the given ones; empty and reversed ones are left out."""
    starts_ns, ends_ns = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    keep = starts_ns < ends_ns
    if not keep.all():
        starts_ns, ends_ns = starts_ns[keep], ends_ns[keep]
    return _covering(_ascending(starts_ns), _ascending(ends_ns))


def distinct(times_ns: Ints) -> Ints:
    """The times in order, each once. `numpy.unique` hashes numbers since 2.3: of five million times that takes 5 s, this 0.06."""
    ordered = _ascending(times_ns)
    return ordered[np.concatenate([[True], ordered[1:] > ordered[:-1]])] if len(ordered) else ordered


def _ascending(times_ns: Ints) -> Ints:
    """The times in order; those of a trace mostly are, and to see that is much cheaper than to sort."""
    head = times_ns[:1000]
    in_order = (head[1:] >= head[:-1]).all() and (times_ns[1:] >= times_ns[:-1]).all()
    return times_ns if in_order else np.sort(times_ns)


def _covering(starts_ns: Ints, ends_ns: Ints) -> Intervals:
    """The disjoint intervals that cover those whose starts and ends, sorted apart, are given."""
    if not len(starts_ns):
        return Intervals(starts_ns, ends_ns)
    # The i-th start opens a gap exactly if i intervals have ended before it, so starts and ends may be sorted apart.
    gaps = np.flatnonzero(starts_ns[1:] > ends_ns[:-1])
    firsts = np.concatenate([starts_ns[:1], starts_ns[1:].take(gaps)])
    return Intervals(firsts, np.concatenate([ends_ns.take(gaps), ends_ns[-1:]]))


def merge(a: Intervals, b: Intervals) -> Intervals:
    """The disjoint intervals that cover both."""
    return _covering(_merged(a.starts, b.starts), _merged(a.ends, b.ends))


def _merged(a: Ints, b: Ints) -> Ints:
    """Two ascending arrays as one; a stable sort finds the two runs and merges them."""
    both = np.concatenate([a, b])
    both.sort(kind="stable")
    return both


def overlap_ns(a: Intervals, b: Intervals) -> int:
    """Time covered by both.

    At most two of these intervals are open at a time. The (i+1)-th start, ascending, opens a second one exactly if it comes before
    the i-th end, and that end closes it: so the sum of what such ends lie behind such starts is the time with two open.
    """
    starts_ns, ends_ns = _merged(a.starts, b.starts), _merged(a.ends, b.ends)
    both_ns = ends_ns[:-1] - starts_ns[1:]
    np.maximum(both_ns, 0, out=both_ns)
    return int(both_ns.sum())


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

    @classmethod
    def joined(cls, parts: Sequence[Timeline]) -> Timeline:
        """One timeline of the kernels of several; there must be one."""
        whole = cls.__new__(cls)
        whole._by_kind = {
            kind: union(
                np.concatenate([part.of(kind).starts for part in parts]), np.concatenate([part.of(kind).ends for part in parts])
            )
            for kind in parts[0]._by_kind
        }
        whole.start_ns, whole.end_ns = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
        return whole

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
