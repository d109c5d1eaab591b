"""Kernel counters: what the device counted while kernels ran: FLOPs, instructions, bytes, cache hits, by kernel or operator.

CUPTI's counters come from PyTorch's profiler in its mode of ranges, by operator as Holistic Trace Analysis tells them; those of
Ascend's cores (PMU) from the metrics that were recorded, by kernel. Each is in the unit of its name, and sums mean something for
counts, times and sizes alone: of ratios and rates take the mean. They are kept summed up by kernel, operator and step, in which the
kernels were placed when they were read: single events, which a graph could hold, are not kept of them.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run

HOW_TO_COLLECT = (
    "on Ascend record at level 1 or 2 with aic_metrics (PipeUtilization, ArithmeticUtilization, Memory, L2Cache, ...); on NVIDIA "
    "with torch.profiler and _ExperimentalConfig(profiler_metrics=[...], profiler_measure_per_kernel=True)"
)
GROUPS = ("name", "type", "operator", "outer_operator")
COLUMNS = ("counter", "num_ranks", "count", "total", "mean", "least", "most")


def kernel_counters(run: Run, ranks: list[int], *, steps: list[int] | None = None, by: str = "name") -> pd.DataFrame:
    """One row a `by` and counter over some ranks, with the columns of `Run.kernel_counters`, by counter, the largest total first.

    Raises NotMeasuredError if nothing was counted.
    """
    rows = run.frame("kernel_counters", ranks=ranks, steps=steps)
    if rows.empty:
        raise NotMeasuredError(f"counters of kernels in {run.name}", how_to_collect=HOW_TO_COLLECT)
    groups = rows.astype({by: "object", "counter": "object"}).groupby([by, "counter"], dropna=False, sort=False)
    table = pd.DataFrame(
        {
            "num_ranks": groups["rank"].nunique(),
            "count": groups["count"].sum(),
            "total": groups["total"].sum(),
            "least": groups["least"].min(),
            "most": groups["most"].max(),
        }
    ).reset_index()
    table["mean"] = table["total"] / table["count"]
    order = table.sort_values(["counter", "total"], ascending=[True, False], kind="stable", ignore_index=True)
    return order.loc[:, [by, *COLUMNS]]
