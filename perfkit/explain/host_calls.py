"""Host calls: how often the host called the runtime, and how long it was in each call.

On Ascend these are the calls of CANN by layer (AscendCL, Model, Node, Hccl, Runtime), as the vendor sums them up in
api_statistic.csv and msprof-analyze in its recipe cann_api_sum; on CUDA and HIP those of runtime and driver. A call of one layer is
inside that of another, so the times of layers must not be added.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.explain.queue_length import HOW_TO_COLLECT
from perfkit.record.events.graph import causal_graph

COLUMNS = ("layer", "name", "num_ranks", "count", "total_ns", "mean_ns", "std_ns", "min_ns", "max_ns")


def host_calls(run: Run, ranks: list[int], *, step: int | None = None) -> pd.DataFrame:
    """Statistics of the calls of some ranks by layer and name, with the columns of `Run.host_calls`, the most time first.

    Of a step those that began in it. Of ranks whose calls were not kept the profiler's sums count, over all steps.
    Raises NotMeasuredError if no call was recorded.
    """
    calls = [_calls(run, rank, step) for rank in ranks]
    if not calls:
        raise NotMeasuredError(f"calls of the runtime in {run.name}", how_to_collect=HOW_TO_COLLECT)
    sums = pd.concat([_sums(rows) for rows in calls if len(rows)] or [_sums(calls[0])], ignore_index=True)
    if step is None and (without := sorted(set(ranks) - set(sums["rank"]))):
        kept = run.frame("call_sums", ranks=without).astype({"layer": "object", "name": "object"})
        sums = pd.concat([sums, kept], ignore_index=True) if len(sums) and len(kept) else kept if len(kept) else sums
    if sums.empty:
        raise NotMeasuredError(f"calls of the runtime in {run.name}", how_to_collect=HOW_TO_COLLECT)
    return _pooled(sums).loc[:, list(COLUMNS)]


def _sums(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls of one rank summed up as the table `call_sums` has them."""
    groups = calls.groupby(["rank", "layer", "name"], dropna=False, sort=False)["duration_ns"]
    columns = {"count": groups.size(), "total_ns": groups.sum(), "spread_ns": groups.std(ddof=0)}
    return pd.DataFrame({**columns, "min_ns": groups.min(), "max_ns": groups.max()}).reset_index()


def _calls(run: Run, rank: int, step: int | None) -> pd.DataFrame:
    """The calls of one rank with their `layer`."""
    host = causal_graph(run).rank(rank).host
    chosen = host.of_kind("call")
    if step is not None:
        chosen = chosen & (host.steps == step).fillna(False).to_numpy(dtype=bool)
    calls = host.rows[chosen]
    parts = {name: str(name).rpartition("@") for name in calls["name"].unique()}
    names = calls["name"].astype("object")
    layers = names.map(lambda name: parts[name][0] or None).astype("object")
    return calls.assign(rank=rank, layer=layers, name=names.map(lambda name: parts[name][2]).astype("object"))


def _pooled(sums: pd.DataFrame) -> pd.DataFrame:
    """The statistics of calls of which sums are known rank by rank."""
    mean = sums["total_ns"] / sums["count"]
    squares = (sums["spread_ns"] ** 2 + mean**2) * sums["count"]
    groups = sums.assign(squares=squares).groupby(["layer", "name"], dropna=False, sort=False)
    count, total = groups["count"].sum(), groups["total_ns"].sum()
    around = groups["squares"].sum(min_count=1) - total.astype("float64") ** 2 / count
    table = pd.DataFrame(
        {
            "num_ranks": groups["rank"].nunique(),
            "count": count,
            "total_ns": total,
            "mean_ns": (total / count).round().astype("int64"),
            "std_ns": np.sqrt(around.clip(lower=0) / (count - 1).clip(lower=1)).round().astype("Int64"),
            "min_ns": groups["min_ns"].min(),
            "max_ns": groups["max_ns"].max(),
        }
    )
    return table.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
