"""The rows that the step charts draw: nothing lost on the way to the picture, nothing unmeasured drawn."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.explain.training_log import step_statistics
from perfkit.face.charts import spec, steps


@pytest.fixture
def step_parts() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rank": [0, 0, 0, 1, 1],
            "step": [7, 7, 7, 7, 7],
            "path": ["computing", "free", "bubble", "computing", "communication/exposed"],
            "amount_ns": pd.array([60_000_000, 40_000_000, None, 25_000_000, 75_000_000], dtype="Int64"),
        }
    )


def test_the_bars_of_a_rank_sum_to_its_step(step_parts):
    rows = steps.part_rows(step_parts)
    assert rows.groupby("rank")["amount_ms"].sum().to_dict() == {"0": 100.0, "1": 100.0}
    assert rows.groupby("rank")["share"].sum().tolist() == pytest.approx([1.0, 1.0])


def test_a_part_that_was_not_measured_is_not_drawn_as_zero(step_parts):
    assert "bubble" not in set(steps.part_rows(step_parts)["path"])


def test_parts_stack_in_one_order_on_every_rank(step_parts):
    rows = steps.part_rows(step_parts)
    order = rows.groupby("path")["order"].agg(["min", "max"])
    assert (order["min"] == order["max"]).all()
    assert order.loc["computing", "min"] < order.loc["communication/exposed", "min"] < order.loc["free", "min"]


@pytest.mark.parametrize("unit", ["ms", "%"])
@pytest.mark.parametrize(("num_ranks", "along"), [(1, "y"), (10, "y"), (11, "x"), (64, "x")])
def test_bars_of_few_ranks_lie_and_those_of_many_stand(step_parts, unit, num_ranks, along):
    one = step_parts[step_parts["rank"] == 0]
    parts = steps.part_rows(pd.concat([one.assign(rank=rank) for rank in range(num_ranks)]))
    encoding = spec.split(steps.rank_bars(parts, unit=unit)).spec["encoding"]
    assert encoding[along]["field"] == "rank"
    assert encoding["x" if along == "y" else "y"]["stack"] == "zero"


@pytest.fixture
def log() -> pd.DataFrame:
    durations = [103_328, 1752, 1754, 1756, 4000]
    rows = {"rank": 0, "step": range(1, 6), "duration_ns": [ms * 1_000_000 for ms in durations], "line": range(10, 15)}
    return pd.DataFrame(rows).assign(samples_per_s_per_device=None, tokens_per_s_per_device=None, flops_per_s_per_device=None)


def test_a_compile_step_does_not_flatten_the_others_and_keeps_its_number(log):
    rows = steps.step_time_rows(log, step_statistics(log, 1))["steps"]
    assert rows[0]["duration_ms"] == 103_328
    assert rows[0]["shown_ms"] == 6000
    assert [row["state"] for row in rows] == ["warm-up", "measured", "measured", "measured", "outlier"]


def test_without_a_warmup_cut_every_step_is_drawn_where_it_is(log):
    rows = steps.step_time_rows(log, step_statistics(log, 0))["steps"]
    assert all(row["shown_ms"] == row["duration_ms"] for row in rows)


def test_moving_the_cut_changes_rows_only_so_that_the_view_is_patched(log):
    digests = {spec.split(steps.step_times(steps.step_time_rows(log, step_statistics(log, warmup)))).digest for warmup in (0, 1, 3)}
    assert len(digests) == 1
