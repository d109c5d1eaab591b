"""Predicted memory against every measured row; nothing was fitted to a row, and the bounds are a little above what is reached."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.predict.estimate import estimate_table

ROWS = pd.read_csv(data_folder() / "reference" / "memory.csv")
SCORED = ROWS[ROWS["exclude"] != 1]


def predict_memory(frame: pd.DataFrame) -> pd.Series:
    """Bytes of every row, with the index of `frame`."""
    return pd.Series(estimate_table(frame)["peak_memory_bytes"].to_numpy(), index=frame.index)


ERRORS = (predict_memory(SCORED) / SCORED["peak_memory_bytes"] - 1).abs()


@pytest.mark.parametrize(
    ("source", "kind", "bound"),
    [
        ("megatron-tests", "", 0.0225),
        ("megatron-tests", "max allocated", 0.016),
        ("megatron-tests", "static allocated", 0.029),
        ("bigscience", "", 0.055),
        ("bigscience-v100", "", 0.129),
        ("korthikanti2022-memory", "", 0.03),
        ("mindformers-memory", "", 0.03),
    ],
)
def test_the_mean_error_of_a_source_stays_below_its_bound(source, kind, bound):
    rows = (SCORED["source"] == source) & SCORED["memory_kind"].str.startswith(kind)
    assert rows.any()
    assert ERRORS[rows].mean() <= bound


def test_rows_other_than_megatrons_are_within_eight_percent_together():
    assert ERRORS[SCORED["source"] != "megatron-tests"].mean() <= 0.08


def test_the_7b_run_is_told_to_the_megabyte_on_hopper():
    row = SCORED.set_index("row_id").loc["megatron-tests-m0008"]
    assert predict_memory(row.to_frame().T).item() == pytest.approx(row["peak_memory_bytes"], rel=3e-4)


def test_rows_are_predicted_in_any_order_with_their_index():
    shuffled = SCORED.sample(frac=1.0, random_state=1)
    pd.testing.assert_series_equal(predict_memory(shuffled).sort_index(), predict_memory(SCORED).sort_index())
    assert np.isfinite(predict_memory(ROWS)).all()


def test_an_out_of_memory_run_is_predicted_above_most_that_ran():
    failed = ROWS[ROWS["memory_kind"].str.startswith("out of memory") & (ROWS["source"] == "bigscience")]
    ran = SCORED[SCORED["source"] == "bigscience"]
    assert predict_memory(failed).median() > predict_memory(ran).quantile(0.9)


def test_bad_rows_are_named_with_all_their_problems():
    bad = ROWS.head(3).copy()
    bad["layers"] = [0, 70, 70]
    bad["hidden"] = [np.nan, 14336, 14336]
    bad["tp"] = [8, 7, 2.5]
    notes = estimate_table(bad)["note"]
    for row, expected in ((0, "layers = 0"), (0, "hidden is not stated"), (1, "heads = 96 is not divisible by"), (2, "tp = 2.5")):
        assert expected in notes[row]


def test_the_counter_decides_what_is_counted():
    row = SCORED.set_index("row_id").loc["megatron-tests-m0006"].to_dict()
    kinds = ("static allocated", "max allocated", "device-used")
    totals = predict_memory(pd.DataFrame([{**row, "memory_kind": kind} for kind in kinds])).tolist()
    assert totals == sorted(totals)
    assert len(set(totals)) == 3
