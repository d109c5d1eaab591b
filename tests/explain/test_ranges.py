"""A range that was picked on the timeline: its parts sum to it on every rank, whatever the recording and wherever it is cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.schema import TABLES, pandas_dtype
from perfkit.explain.ranges import Range, events_in, parts_in, totals_in
from perfkit.record.load import load

SAMPLES = ("torch_npu_2rank", "kineto_resnet")


def made(table: str, columns: dict) -> pd.DataFrame:
    rows = pd.DataFrame(columns)
    kinds = {known.name: known for known in TABLES[table].columns}
    return rows.astype({name: pandas_dtype(kinds[name]) for name in rows.columns})


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_parts_of_every_range_sum_to_it(sample: str):
    run = load(data_folder() / "traces" / sample)
    rank = run.ranks[0]
    kernels = run.frame("kernels", ranks=[rank])
    starts = kernels["start_ns"].to_numpy(dtype=np.int64) + run.clock.get(rank, 0)
    random = np.random.default_rng(7)
    for _ in range(20):
        first, last = np.sort(random.integers(starts.min() - 1000, starts.max() + 100_000, 2))
        picked = Range(ranks=run.ranks[:2], start_ns=int(first), end_ns=int(last))
        parts = parts_in(run, picked).set_index("rank")
        assert (parts.sum(axis="columns") == picked.duration_ns).all()
        assert (parts >= 0).all(axis=None)
        events = events_in(run, "kernels", picked)
        assert totals_in(run, "kernels", picked)["inside_ns"].sum() == events["inside_ns"].sum()
        assert (events["inside_ns"] <= events["duration_ns"]).all()


TRACES = Path(__file__).parents[1] / "data" / "traces"
STEPS = [
    *(data_folder() / "traces" / sample for sample in SAMPLES),
    *(TRACES / folder for folder in ("dlrm_8xV100", "torch_npu_pp2dp2", "hta/trace_diff", "ascend_trace_view/rank0_ascend_pt")),
]


@pytest.mark.parametrize("folder", STEPS, ids=lambda folder: folder.name)
def test_a_step_that_is_picked_is_made_of_what_its_breakdown_says(folder: Path):
    """An operation among ranks is no computing, though it is among the kernels."""
    run = load(folder, cache=False)
    steps = run.steps().dropna(subset=["start_ns", "computing_ns"])
    assert len(steps)
    for row in steps.to_dict("records"):
        start_ns = row["start_ns"] + run.clock.get(row["rank"], 0)
        picked = Range(ranks=(row["rank"],), start_ns=start_ns, end_ns=start_ns + row["duration_ns"])
        (parts,) = parts_in(run, picked).to_dict("records")
        bubble_ns = 0 if pd.isna(row["bubble_ns"]) else row["bubble_ns"]
        told = {"computing_ns": row["computing_ns"], "exposed_communication_ns": row["exposed_communication_ns"] + bubble_ns}
        assert {name: parts[name] for name in told} == pytest.approx(told, rel=1e-5)


def test_a_rank_is_asked_on_its_own_clock_and_what_reaches_out_is_cut():
    kernels = made(
        "kernels",
        {"rank": [0, 1], "name": ["a", "a"], "type": ["MatMul", "MatMul"], "start_ns": [100, 1100], "duration_ns": [50, 50]},
    )
    run = Run(name="made", kind="measured", format="made", tables={"kernels": kernels}, clock={0: 0, 1: -1000})
    picked = Range(ranks=(0, 1), start_ns=120, end_ns=200)
    assert events_in(run, "kernels", picked)["inside_ns"].tolist() == [30, 30]
    assert totals_in(run, "kernels", picked).to_dict("records") == [{"name": "a", "count": 2, "inside_ns": 60}]
    assert parts_in(run, picked)["free_ns"].tolist() == [50, 50]
    assert totals_in(run, "host", picked).empty
    assert picked.told() == "80.0 ns of ranks 0, 1."


def test_a_range_that_is_none_is_refused():
    with pytest.raises(InputError, match="2 problems"):
        Range(ranks=(), start_ns=5, end_ns=4)
