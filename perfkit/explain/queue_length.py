"""Queue length: how far the host ran ahead of the device, as launched executions that have not begun, by stream.

A long queue hides slow launches, an empty one lets the device wait for the host, and one as long as the driver allows blocks the
host. Executions whose call is not on record are left out. The definition is that of Holistic Trace Analysis, so that figures of
both can be compared.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.events.graph import UNKNOWN_NS, causal_graph

HOW_TO_COLLECT = "record the host beside the device: activities CPU and CUDA or NPU, with CANN calls on Ascend"


def queue_lengths(run: Run, rank: int) -> pd.DataFrame:
    """The changes of the queues of one rank, with the columns of `Run.queue_length`. NotMeasuredError without launches."""
    events = causal_graph(run).rank(rank)
    linked = np.flatnonzero(events.launch_ns != UNKNOWN_NS)
    if not len(linked):
        raise NotMeasuredError(f"which call launched what on rank {rank}", how_to_collect=HOW_TO_COLLECT)
    launched = events.launch_ns[linked]
    begun = np.maximum(events.starts[linked], launched)  # clocks of host and device differ by some ns
    stream = events.device["stream"].to_numpy()[linked]
    changes = pd.DataFrame(
        {
            "stream": np.concatenate([stream, stream]),
            "time_ns": np.concatenate([launched, begun]),
            "change": np.repeat(np.array([1, -1], dtype=np.int64), len(linked)),
        }
    )
    table = changes.groupby(["stream", "time_ns"], as_index=False)["change"].sum()
    by_stream = table.groupby("stream")
    following = table["time_ns"].astype("Int64").groupby(table["stream"]).shift(-1)  # a float would not hold ns since 1970
    table["length"] = by_stream["change"].cumsum()
    table["duration_ns"] = (following.fillna(table["time_ns"]) - table["time_ns"]).astype("int64")
    told: pd.DataFrame = table.assign(rank=rank)[["rank", "stream", "time_ns", "length", "duration_ns"]]
    return told
