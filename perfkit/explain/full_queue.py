"""Full queue: how long the launch queue of a stream was full, and how long the host was held up by it.

A driver takes so many launches ahead; one more does not return before the device has begun another. The length of the queue is
that of `perfkit.explain.queue_length`; the time at or above `capacity` is what Holistic Trace Analysis calls blocked on a full
queue (get_time_spent_blocked_on_full_queue in hta/analyzers/trace_counters.py). The host is held up only inside a launch call.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.queue_length import queue_lengths
from perfkit.record.overlap import overlap_ns, union

CAPACITY = 1_022
"""Launches that CUDA takes ahead in one stream. HTA assumes 1,024, which no queue reaches: in its own test recording
ns_resolution_trace queues end at 1,022, and a call that finds 1,021 takes 125 us in the median where others take 5."""
COLUMNS = ("rank", "stream", "most", "full_ns", "blocked_ns", "recorded_ns", "full_ratio")
Ints = npt.NDArray[np.int64]


def full_queues(run: Run, rank: int, capacity: int = CAPACITY) -> pd.DataFrame:
    """One row a stream of the rank with the columns of `Run.full_queue`, the longest full first.

    Raises NotMeasuredError without launches.
    """
    lengths = queue_lengths(run, rank)
    begin, end = int(lengths["time_ns"].min()), int(lengths["time_ns"].max())
    calls = run.frame("launches", ranks=[rank], columns=["stream", "launch_ns", "launch_duration_ns"])
    calls = calls.dropna(subset=["launch_ns", "launch_duration_ns"]).astype({"stream": "object"}).fillna({"stream": ""})
    by_stream = dict(tuple(calls.groupby("stream")))
    rows = []
    for stream, changes in lengths.groupby("stream"):
        full = changes[changes["length"] >= capacity]
        starts = full["time_ns"].to_numpy(dtype=np.int64)
        ends = starts + full["duration_ns"].to_numpy(dtype=np.int64)
        blocked = _shared(starts, ends, by_stream.get(str(stream))) if len(full) else 0
        most, full_ns = int(changes["length"].max()), int(full["duration_ns"].sum())
        rows.append((rank, str(stream), most, full_ns, blocked, end - begin, full_ns / (end - begin) if end > begin else 0.0))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.sort_values(["full_ns", "most"], ascending=False, kind="stable", ignore_index=True)


def _shared(starts: Ints, ends: Ints, calls: pd.DataFrame | None) -> int:
    """How long calls ran while the queue was full; calls of several threads at once count once."""
    if calls is None or calls.empty:
        return 0
    begun = calls["launch_ns"].to_numpy(dtype=np.int64)
    return overlap_ns(union(begun, begun + calls["launch_duration_ns"].to_numpy(dtype=np.int64)), union(starts, ends))
