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
    host_tables.offer(sink, files, lambda rank: ([read_sums(files[rank])],), [TABLE])


def read_sums(file: File) -> pd.DataFrame:
    """The table `call_sums` of one rank, without `rank`; rows without a name, a count or a time are left out."""
    rows = store.read_csv(file, _COLUMNS).frame
    rows = rows.dropna(subset=["API Name", "Count", "Time(us)", "Min(us)", "Max(us)"])
    rows = rows[((rows["Count"] > 0) & (rows["Time(us)"] >= 0)).to_numpy(dtype=bool)]
    layer = rows["Level"].astype("object").map(lambda level: LAYERS.get(str(level), level))
    return pd.DataFrame(
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
