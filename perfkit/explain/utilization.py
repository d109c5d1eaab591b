"""Utilization: how much of the time the units of the device worked, as its counters recorded it, by kernel and by step.

On Ascend a unit is a pipe of a core (`aic_mac` multiplies matrices, `aiv_vec` computes vectors, `mte` moves data) and its share is
of the time that its core ran; `cube` is the share of the kernel in which the matrix units of all cores worked. On NVIDIA
`occupancy` is the achieved occupancy that the profiler estimates, and `sm` the share of multiprocessors that a kernel gives work:
the blocks of threads a multiprocessor, at most 1, as TensorBoard's plug-in counts it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run

HOW_TO_COLLECT = (
    "on Ascend record at level 1 or 2 with the metrics PipeUtilization (torch_npu: aic_metrics=AiCMetrics.PipeUtilization; "
    "MindSpore: aic_metrics=AicoreMetrics.PipeUtilization); on NVIDIA record with activities CPU and CUDA, which writes occupancy "
    "and blocks per SM"
)
_KEY = ["rank", "step", "name", "unit"]
_SUMS = ["count", "duration_ns", "core_ns", "busy_ns"]


def utilization(run: Run, *, rank: int, steps: Iterable[int] | None = None) -> pd.DataFrame:
    """One row a kernel name and unit, the longest first.

    Columns: `name`, `unit`, `count` (calls for which it was recorded), `duration_ns` (theirs), `core_ns` (of it the core of the
    unit ran, a mean over cores), `busy_ns` (of that the unit worked), `busy_ratio` = busy_ns / core_ns. Raises NotMeasuredError if
    nothing was recorded.
    """
    rows = _recorded(run, [rank])
    rows = rows if steps is None else rows[rows["step"].isin(list(steps)).to_numpy(dtype=bool)]
    sums = rows.groupby(["name", "unit"], sort=False)[_SUMS].sum().reset_index()
    table = sums.assign(busy_ratio=_ratio(sums["busy_ns"], sums["core_ns"]))
    return table.sort_values(["duration_ns", "name", "unit"], ascending=[False, True, True], kind="stable", ignore_index=True)


def step_utilization(run: Run, *, ranks: Iterable[int] | None = None) -> pd.DataFrame:
    """One row a rank, step and unit: the sums over its kernels, `busy_ratio` of their time, and `step_ratio` = busy_ns / step.

    Kernels outside of all steps are left out. Raises NotMeasuredError if nothing was recorded.
    """
    rows = _recorded(run, list(run.ranks if ranks is None else ranks)).dropna(subset=["step"])
    sums = rows.groupby(["rank", "step", "unit"], sort=True)[_SUMS].sum().reset_index()
    lengths = run.frame("steps").drop_duplicates(["rank", "step"]).set_index(["rank", "step"])["duration_ns"]
    length = lengths.reindex(pd.MultiIndex.from_frame(sums[["rank", "step"]].astype("int64"))).reset_index(drop=True)
    return sums.assign(busy_ratio=_ratio(sums["busy_ns"], sums["core_ns"]), step_ratio=_ratio(sums["busy_ns"], length))


def _recorded(run: Run, ranks: list[int]) -> pd.DataFrame:
    rows = run.frame("utilization", ranks=ranks)
    if rows.empty:
        rows = _of_launches(run.frame("launches", ranks=ranks))
    if rows.empty:
        raise NotMeasuredError("how busy the units of the device were", how_to_collect=HOW_TO_COLLECT)
    return rows.astype({"name": "object", "unit": "object"})[[*_KEY, *_SUMS]]


def _of_launches(launches: pd.DataFrame) -> pd.DataFrame:
    """Occupancy and multiprocessors in use by kernel, as the rows of a table `utilization`."""
    pieces = []
    for unit, column in (("occupancy", "occupancy_ratio"), ("sm", "blocks_per_sm")):
        rows = launches[launches[column].notna()]
        busy = (rows[column].clip(0, 1) * rows["duration_ns"]).round().astype("int64")
        pieces.append(
            rows[["rank", "step", "name", "duration_ns"]].assign(unit=unit, count=1, core_ns=rows["duration_ns"], busy_ns=busy)
        )
    return pd.concat(pieces, ignore_index=True)


def _ratio(part: pd.Series, whole: pd.Series) -> pd.Series:
    return part.astype("float64") / whole.astype("float64").where((whole > 0).fillna(False).to_numpy(dtype=bool))
