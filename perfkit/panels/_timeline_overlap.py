"""Overlap lanes of a timeline: when a device computed, communicated openly or behind computing, and did neither.

They are made as a run of their own whose "threads" are the four states, so that the tiles of a timeline serve and keep them like
any other thread. The states of one rank do not overlap and cover the time from its first to its last kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit.run import LazyTable, LazyTables, Run, empty
from perfkit.trace.overlap import Intervals, Timeline, merge

COMPUTING = "computing alone"
HIDDEN = "communication hidden"
EXPOSED = "communication exposed"
FREE = "free"
STATES = (COMPUTING, HIDDEN, EXPOSED, FREE)
_KEY_SUFFIX = "-overlap"


def overlap_run(run: Run) -> Run | None:
    """A run whose host threads are the states of each device; None if no kernels were recorded."""
    if not run.has("kernels"):
        return None
    ranks = frozenset(int(rank) for rank in run.ranks)
    table = LazyTable(ranks=ranks, num_rows=None, read=lambda chosen, columns: _read(run, chosen, columns))
    return Run(
        name=run.name,
        kind=run.kind,
        format=run.format,
        tables=LazyTables({"host": table}),
        clock=run.clock,
        cache_key=f"{run.cache_key}{_KEY_SUFFIX}" if run.cache_key else "",
    )


def states(kernels: pd.DataFrame) -> dict[str, Intervals]:
    """The states of one rank's device from its kernels (`kind`, `start_ns`, `duration_ns`); without communication only two."""
    timeline = Timeline(kernels)
    computing, communication = timeline.of("computing"), timeline.of("communication")
    idle = _complement(computing, timeline.start_ns, timeline.end_ns)
    quiet = _complement(communication, timeline.start_ns, timeline.end_ns)
    found = {
        COMPUTING: _common(computing, quiet),
        HIDDEN: _common(communication, computing),
        EXPOSED: _common(communication, idle),
        FREE: _complement(merge(computing, communication), timeline.start_ns, timeline.end_ns),
    }
    return {name: intervals for name, intervals in found.items() if len(intervals.starts)}


def _common(a: Intervals, b: Intervals) -> Intervals:
    """The time that both cover: where the (i+1)-th start comes before the i-th end, as in `overlap.overlap_ns`."""
    starts, ends = np.sort(np.concatenate([a.starts, b.starts])), np.sort(np.concatenate([a.ends, b.ends]))
    both = starts[1:] < ends[:-1]
    return Intervals(starts[1:][both], ends[:-1][both])


def _complement(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The time of a window that `a`, which lies in it, does not cover."""
    starts = np.concatenate([np.array([start_ns], dtype=np.int64), a.ends])
    ends = np.concatenate([a.starts, np.array([end_ns], dtype=np.int64)])
    keep = starts < ends
    return Intervals(starts[keep], ends[keep])


def _read(run: Run, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    """The rows of the table `host` that stand for the states of some ranks."""
    frames = [_rows(run, rank) for rank in (run.ranks if ranks is None else ranks)]
    rows = pd.concat([frame for frame in frames if len(frame)], ignore_index=True) if any(map(len, frames)) else empty("host")
    return rows if columns is None else rows.loc[:, list(columns)]


def _rows(run: Run, rank: int) -> pd.DataFrame:
    kernels = run.frame("kernels", ranks=[rank], columns=["kind", "start_ns", "duration_ns"])
    parts = [
        pd.DataFrame(
            {
                "rank": np.full(len(spans.starts), rank, dtype=np.int64),
                "name": _text(name, len(spans.starts)),
                "kind": _text(name, len(spans.starts)),
                "thread": _text(name, len(spans.starts)),
                "start_ns": spans.starts,
                "duration_ns": spans.ends - spans.starts,
            }
        )
        for name, spans in states(kernels).items()
    ]
    return pd.concat(parts, ignore_index=True) if parts else empty("host")


def _text(name: str, count: int) -> Any:
    return pd.Categorical([name] * count, categories=list(STATES))
