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

HOW_TO_COLLECT = "record the host beside the device: activities CPU and CUDA or NPU, with CANN calls on Ascend"


def queue_lengths(run: Run, rank: int) -> pd.DataFrame:
    """The changes of the queues of one rank, with the columns of `Run.queue_length`. NotMeasuredError without launches."""
    rows = run.frame("launches", ranks=[rank], columns=["stream", "launch_ns", "start_ns"]).dropna(subset=["launch_ns", "start_ns"])
    if not len(rows):
        raise NotMeasuredError(f"which call launched what on rank {rank}", how_to_collect=HOW_TO_COLLECT)
    launched = rows["launch_ns"].to_numpy(dtype=np.int64)
    begun = np.maximum(rows["start_ns"].to_numpy(dtype=np.int64), launched)  # clocks of host and device differ by some ns
    stream = rows["stream"].astype("object").fillna("").to_numpy()
    changes = pd.DataFrame(
        {
            "stream": np.concatenate([stream, stream]),
            "time_ns": np.concatenate([launched, begun]),
            "change": np.repeat(np.array([1, -1], dtype=np.int64), len(rows)),
        }
    )
    table = changes.groupby(["stream", "time_ns"], as_index=False)["change"].sum()
    by_stream = table.groupby("stream")
    following = table["time_ns"].astype("Int64").groupby(table["stream"]).shift(-1)  # a float would not hold ns since 1970
    table["length"] = by_stream["change"].cumsum()
    table["duration_ns"] = (following.fillna(table["time_ns"]) - table["time_ns"]).astype("int64")
    told: pd.DataFrame = table.assign(rank=rank)[["rank", "stream", "time_ns", "length", "duration_ns"]]
    return told
