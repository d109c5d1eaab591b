"""Ranks against their stage: conservation, a planted slow rank, stages that differ without anybody being slow."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain.stragglers import against_stage, metric_values, stage_steps, stages
from perfkit.record.load import load


def values(by_rank: dict[int, list[int]], stage_of=lambda rank: rank // 4) -> pd.DataFrame:
    rows = [
        {"rank": rank, "step": step, "stage": stage_of(rank), "value_ns": value}
        for rank, series in by_rank.items()
        for step, value in enumerate(series)
    ]
    return pd.DataFrame(rows)


def test_the_sixteen_rank_cluster_has_the_stages_of_its_file():
    table = stages(stage_steps(load(data_folder() / "traces" / "cluster_16card")))
    assert table["ranks"].tolist() == [list(range(8)), list(range(8, 16))]
    assert [round(value / 1e6, 3) for value in table["step_ns"]] == [293.808, 381.668]
    assert [round(value / 1e6, 3) for value in table["computing_ns"]] == [75.515, 79.885]
    assert round(table["bubble_ns"].iloc[1] / 1e6, 3) == 181.583


def test_a_stage_with_more_work_has_no_rank_that_stands_out():
    table = against_stage(values({rank: [1_000_000 * (1 + rank // 4)] * 5 for rank in range(8)}))
    assert not table["stands_out"].any()
    assert table["over_stage"].tolist() == [1.0] * 8
    assert table["over_all"].max() > 1.3


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 7), st.floats(1.05, 3.0))
def test_a_planted_slow_rank_is_the_only_one_that_stands_out(slow, factor):
    series = {rank: [1_000_000 * (1 + rank // 4) + 100 * ((rank * 7 + step) % 5) for step in range(4)] for rank in range(8)}
    series[slow] = [round(value * factor) for value in series[slow]]
    table = against_stage(values(series)).set_index("rank")
    assert table.index[table["stands_out"]].tolist() == [slow]
    assert table.loc[slow, "over_stage"] == pytest.approx(factor, rel=0.01)


def test_one_slow_step_of_four_does_not_last():
    series = {rank: [1_000_000] * 4 for rank in range(4)}
    series[2] = [1_000_000, 1_000_000, 1_000_000, 2_000_000]
    assert not against_stage(values(series))["stands_out"].any()


def test_two_ranks_are_shown_and_not_judged():
    table = against_stage(values({0: [100], 1: [200]}))
    assert table["z"].isna().all()
    assert not table["stands_out"].any()


def test_what_was_not_measured_is_said():
    run = load(data_folder() / "traces" / "kineto_resnet")
    steps = stage_steps(run).assign(computing_ns=pd.array([None] * 3, dtype="Int64"))
    with pytest.raises(NotMeasuredError, match="computing"):
        metric_values(steps, "computing")
