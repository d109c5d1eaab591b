"""Launches: how long kernels wait between their launch on the host and their start on the device.

A kernel cannot start before its call has begun; the least delay seen is what a launch costs, the rest is queueing behind earlier
kernels (the host runs ahead, which is good) or waiting for another stream. Kernels without a link to the host were launched before
the recording, from a graph, or by a call that was not recorded.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.run import Run


def launches(run: Run, *, rank: int, step: int | None = None) -> pd.DataFrame:
    """The executions of a rank with the calls that launched them: the table `launches`, and two columns.

    `delay_ns` is from the beginning of the call to the start on the device (null without a link), `queued_ns` what of it passed
    after the previous execution of its stream had ended or, for the first one, since the launch: 0 while the stream was busy.
    """
    rows = run.frame("launches", ranks=[rank], steps=None if step is None else [step])
    rows = rows.sort_values("start_ns", kind="stable", ignore_index=True)
    ends = (rows["start_ns"] + rows["duration_ns"]).astype("Int64")
    by_stream = rows["stream"].astype("object").fillna("")
    before = ends.groupby(by_stream).cummax().groupby(by_stream).shift()
    ready = pd.concat([before, rows["launch_ns"]], axis=1).max(axis=1).astype("Int64")
    return rows.assign(
        delay_ns=(rows["start_ns"] - rows["launch_ns"]).astype("Int64"),
        queued_ns=(rows["start_ns"] - ready).clip(lower=0).astype("Int64").where(rows["launch_ns"].notna()),
    )


def launch_summary(run: Run, *, rank: int, step: int | None = None) -> pd.DataFrame:
    """One row an operator of the host: what it launched, and how late.

    `operator` ("not linked": kernels without a call), `count`, `device_ns` (summed durations on the device), `host_ns` (summed
    durations of the calls, null without a link), `delay_min_ns`, `delay_median_ns`. The most device time first.
    """
    rows = launches(run, rank=rank, step=step)
    linked = rows["launch_ns"].notna()
    names = rows["operator"].astype("object").where(linked, "not linked").fillna(rows["call"].astype("object"))
    grouped = rows.groupby(names)
    table = pd.DataFrame(
        {
            "count": grouped.size(),
            "device_ns": grouped["duration_ns"].sum(),
            "host_ns": grouped["launch_duration_ns"].sum(min_count=1),
            "delay_min_ns": grouped["delay_ns"].min(),
            "delay_median_ns": grouped["delay_ns"].median().round().astype("Int64"),
        }
    )
    ordered = table.rename_axis("operator").reset_index().sort_values("device_ns", ascending=False, kind="stable")
    return ordered.reset_index(drop=True)


def unlinked(run: Run, *, rank: int) -> int:
    """How many executions of a rank have no call of the host."""
    return int(np.count_nonzero(run.frame("launches", ranks=[rank], columns=["rank", "launch_ns"])["launch_ns"].isna()))
