"""Call sums: what CANN's profiler sums up of the calls of the host, for a recording whose timeline is not there.

api_statistic.csv has a row a level (acl, model, node, hccl, runtime) and call. `Variance` is that of all calls in us^2, found
equal to the variance of the calls in trace_view.json of a recording that has both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.core.units import NS_PER_US
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.readers import host_tables

TABLE, FILE = "call_sums", "api_statistic.csv"
LAYERS: Mapping[str, str] = {"acl": "AscendCL", "node": "Node", "runtime": "Runtime", "hccl": "Hccl", "model": "Model"}
"""What trace_view.json puts before the names of calls, by their level."""
_COLUMNS: Mapping[str, store.Cell] = {
    **dict.fromkeys(("Level", "API Name"), "label"),
    **dict.fromkeys(("Time(us)", "Min(us)", "Max(us)"), "us"),
    "Count": "int",
    "Variance": "float",
}


def offer(sink: Sink, files: Mapping[int, File]) -> None:
    """Offer the sums of each rank for later."""
    told: set[int] = set()

    def read(rank: int) -> tuple[list[pd.DataFrame], ...]:
        rows, lost = read_sums(files[rank])
        for what, count in lost.items() if rank not in told else ():
            sink.drop(what, count, files[rank], TABLE)
        told.add(rank)
        return ([rows],)

    host_tables.offer(sink, files, read, [TABLE])


def read_sums(file: File) -> tuple[pd.DataFrame, dict[str, int]]:
    """The table `call_sums` of one rank, without `rank`, and how many rows were left out, by reason."""
    read = store.read_csv(file, _COLUMNS)
    needed = read.frame[["API Name", "Count", "Time(us)", "Min(us)", "Max(us)"]].notna().all(axis=1)
    sound = needed & (read.frame["Count"] > 0).fillna(False) & (read.frame["Time(us)"] >= 0).fillna(False)
    rows = read.frame[sound.to_numpy(dtype=bool)]
    lost = {"call_sums: a row without a name, a count or a time": int((~sound).sum())}
    lost[store.MISSHAPEN] = read.misshapen
    layer = rows["Level"].astype("object").map(lambda level: LAYERS.get(str(level), level))
    sums = pd.DataFrame(
        {
            "layer": layer,
            "name": rows["API Name"],
            "count": rows["Count"],
            "total_ns": rows["Time(us)"],
            "spread_ns": np.sqrt(rows["Variance"].clip(lower=0)) * NS_PER_US,
            "min_ns": rows["Min(us)"],
            "max_ns": rows["Max(us)"],
        }
    )
    return sums, lost
