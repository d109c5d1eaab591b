"""Frequency: how fast the cores of the device were clocked over time.

A core that waits is clocked down (800 MHz on Ascend 910B), and so is one that gets too hot or draws too much power; a rank whose
cores run slower than those of its peers computes slower. The recipe freq_analysis of msprof-analyze asks the same. Samples of a
clock are no events: nothing launched them, so they are in no graph, and belong to the step on the device that they were taken in.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.overlap import distinct

HOW_TO_COLLECT = "on Ascend record at level 1 or 2, which writes AI Core Freq into trace_view.json or the database"
NAME = re.compile(r"(?:ai ?core|sm|gpu|graphics).*(?:freq|clock)", re.IGNORECASE)
_MHZ = {"Hz": 1e-6, "kHz": 1e-3, "MHz": 1.0, "GHz": 1e3}
AWAKE = 0.6
"""The share of its highest clock below which a core waits (800 of 1,800 MHz): what it is clocked then says nothing of its speed."""
COLUMNS = ("rank", "name", "step", "time_ns", "duration_ns", "frequency_mhz", "ratio")


def frequencies(run: Run, ranks: list[int], *, step: int | None = None) -> pd.DataFrame:
    """The stretches of one frequency of some ranks, with the columns of `Run.frequency`, in order of time.

    A value holds until the next one or, the last one, until the end of the rank's last step. Raises NotMeasuredError without any.
    """
    rows = run.frame("counters", ranks=ranks)
    names = [name for name in rows["name"].unique() if NAME.search(str(name))]
    rows = rows[rows["name"].isin(names).to_numpy(dtype=bool)].astype({"name": "object", "unit": "object"})
    scale = rows["unit"].map(_MHZ).astype("float64").fillna(1.0)
    rows = rows.assign(frequency_mhz=rows["value"] * scale)
    if rows.empty:
        raise NotMeasuredError(f"the frequency of the cores in {run.name}", how_to_collect=HOW_TO_COLLECT)
    steps = run.frame("steps", ranks=ranks, columns=["rank", "step", "start_ns", "duration_ns"]).dropna()
    pieces = [_held(own, steps[(steps["rank"] == rank).to_numpy(dtype=bool)]) for (rank, _), own in rows.groupby(["rank", "name"])]
    table = pd.concat(pieces, ignore_index=True)
    table["ratio"] = table["frequency_mhz"] / table.groupby(["rank", "name"])["frequency_mhz"].transform("max")
    return (table if step is None else table[(table["step"] == step).fillna(False)]).loc[:, list(COLUMNS)].reset_index(drop=True)


def working_mhz(run: Run, ranks: list[int]) -> pd.Series[float]:
    """The mean clock of the cores while they do not wait, in MHz by rank; raises NotMeasuredError where no rank has one."""
    rows = frequencies(run, ranks)
    awake = rows[(rows["ratio"] > AWAKE).to_numpy(dtype=bool)]
    cycles = (awake["frequency_mhz"] * awake["duration_ns"]).groupby(awake["rank"]).sum()
    return (cycles / awake.groupby("rank")["duration_ns"].sum().clip(lower=1)).astype("float64")


def _held(samples: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The stretches of one counter, cut where steps begin and end."""
    samples = samples.sort_values("time_ns", kind="stable").drop_duplicates("time_ns", keep="last")
    times = samples["time_ns"].to_numpy(dtype=np.int64)
    begins = steps["start_ns"].to_numpy(dtype=np.int64)
    ends = begins + steps["duration_ns"].to_numpy(dtype=np.int64)
    until = int(max([*ends.tolist(), int(times[-1])]))
    cuts = distinct(np.concatenate([times, begins, ends, [until]]))
    cuts = cuts[(cuts >= times[0]) & (cuts <= until)]
    first = cuts[:-1] if len(cuts) > 1 else cuts
    values = samples["frequency_mhz"].to_numpy(dtype=np.float64)[np.searchsorted(times, first, side="right") - 1]
    step = pd.array([None] * len(first), dtype="Int64")
    for number, begin, end in zip(steps["step"].tolist(), begins.tolist(), ends.tolist(), strict=True):
        step[(first >= begin) & (first < end)] = number
    lengths = np.diff(cuts) if len(cuts) > 1 else np.zeros(1, dtype=np.int64)
    same = np.zeros(len(first), dtype=bool)
    numbers = step.to_numpy(dtype=np.int64, na_value=-1)
    same[1:] = (values[1:] == values[:-1]) & (numbers[1:] == numbers[:-1])
    begun = np.flatnonzero(~same)
    return pd.DataFrame(
        {
            "rank": int(samples["rank"].iloc[0]),
            "name": str(samples["name"].iloc[0]),
            "step": step[begun],
            "time_ns": first[begun],
            "duration_ns": np.add.reduceat(lengths, begun),
            "frequency_mhz": values[begun],
        }
    )
