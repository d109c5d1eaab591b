"""Frequencies: stretches that cover the time from the first sample on, with the values of the file."""

from __future__ import annotations

import sqlite3

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.load import load
from tests.explain.raw_events import TRACES


def test_the_frequency_over_time_is_that_of_the_table():
    run = load(TRACES / "torch_npu_db/level1", cache=False)
    table = run.frequency(rank=0)
    file = next((TRACES / "torch_npu_db/level1").rglob("ascend_pytorch_profiler_0.db"))
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        samples = sorted({(int(time), float(mhz)) for time, mhz in database.execute("SELECT timestampNs, freq FROM AICORE_FREQ")})
    step = run.steps().set_index(["rank", "step"]).loc[(0, table["step"].dropna().iloc[0])]
    until = max(int(step["start_ns"] + step["duration_ns"]), samples[-1][0])
    cycles = sum(
        mhz * (end - begin) for (begin, mhz), end in zip(samples, [time for time, _ in samples[1:]] + [until], strict=True)
    )
    assert (table["frequency_mhz"] * table["duration_ns"]).sum() == pytest.approx(cycles)
    assert table["duration_ns"].sum() == until - samples[0][0]
    assert table[table["step"].notna()]["duration_ns"].sum() == step["duration_ns"]
    assert run.frequency(step=int(table["step"].dropna().iloc[0]))["step"].nunique() == 1


def test_a_slower_stretch_is_a_share_of_the_highest_frequency():
    times = [100, 200, 300, 400]
    counters = {"rank": 0, "name": "AI Core Freq", "unit": "MHz", "time_ns": times, "value": [1800.0, 800.0, 800.0, 1800.0]}
    steps = {"rank": [0], "step": [7], "start_ns": [150], "duration_ns": [350]}
    run = Run(
        name="made", kind="measured", format="made", tables={"counters": pd.DataFrame(counters), "steps": pd.DataFrame(steps)}
    )
    table = run.frequency()
    assert table[["time_ns", "duration_ns", "frequency_mhz"]].values.tolist() == [
        [100, 50, 1800], [150, 50, 1800], [200, 200, 800], [400, 100, 1800],
    ]  # fmt: skip
    assert table["ratio"].round(3).tolist() == [1.0, 1.0, 0.444, 1.0]
    assert table["step"].fillna(-1).tolist() == [-1, 7, 7, 7]
    with pytest.raises(NotMeasuredError):
        load(TRACES / "dlrm_8xV100", cache=False).frequency()
