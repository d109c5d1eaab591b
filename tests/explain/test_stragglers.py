"""Ranks beside their stage, by hand, and judged as the rule of slow ranks does."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Position
from perfkit.explain.diagnose import excess
from perfkit.explain.diagnose.case import Case
from perfkit.explain.stragglers import METRICS, against_stage, metric_values, staged_steps, stages
from perfkit.record.load import load
from tests.explain.diagnose.made import summaries


def values(by_rank: dict[int, list[int]], stage_of=lambda rank: rank // 4) -> pd.DataFrame:
    rows = [
        {"rank": rank, "step": step, "stage": stage_of(rank), "value_ns": value}
        for rank, series in by_rank.items()
        for step, value in enumerate(series)
    ]
    return pd.DataFrame(rows)


def test_the_sixteen_rank_cluster_has_the_stages_of_its_file():
    table = stages(staged_steps(load(data_folder() / "traces" / "cluster_16card")))
    assert table["ranks"].tolist() == [list(range(8)), list(range(8, 16))]
    assert table["num_ranks"].tolist() == [8, 8]
    assert [round(value / 1e6, 3) for value in table["step_ns"]] == [293.808, 381.668]
    assert [round(value / 1e6, 3) for value in table["computing_ns"]] == [75.515, 79.885]
    assert round(table["bubble_ns"].iloc[1] / 1e6, 3) == 181.583
    mean = (75.515 + 79.885) / 2
    assert table["computing_over_mean"].tolist() == pytest.approx([75.515 / mean, 79.885 / mean], rel=1e-4)


def test_a_rank_is_held_against_the_median_of_its_stage_and_of_all():
    table = against_stage(values({0: [90, 110], 1: [120, 120], 2: [80, 80], 4: [300, 300], 5: [0, 0]})).set_index("rank")
    assert table["value_ns"].tolist() == [100, 120, 80, 300, 0]
    assert table["num_steps"].tolist() == [2] * 5
    assert table["num_peers"].tolist() == [3, 3, 3, 2, 2]
    assert table["stage_median_ns"].tolist() == [100, 100, 100, 150, 150]
    assert table["over_stage"].tolist() == [1.0, 1.2, 0.8, 2.0, 0.0]
    assert table["over_all"].tolist() == [1.0, 1.2, 0.8, 3.0, 0.0]
    nothing = against_stage(values({0: [0], 1: [0]}))
    assert nothing["over_stage"].isna().all()
    assert nothing["over_all"].isna().all()


@pytest.mark.parametrize(("metric", "wanted"), [("computing", 100), ("interval", 0), ("wait", 100), ("step", 200), ("stage", None)])
def test_every_metric_is_its_column_of_a_step(metric, wanted):
    steps = staged_steps(summaries({0: 100, 1: 100}, steps=2))
    if wanted is None:
        with pytest.raises(NotMeasuredError, match=r"step without the bubble"):
            metric_values(steps, metric)
        steps = steps.assign(bubble_ns=pd.array([30_000_000] * 4, dtype="Int64"))
        wanted = 170
    assert metric_values(steps, metric)["value_ns"].tolist() == [wanted * 1_000_000] * 4


def test_what_was_not_measured_is_said():
    run = load(data_folder() / "traces" / "kineto_resnet")
    steps = staged_steps(run).assign(computing_ns=pd.array([None] * 3, dtype="Int64"))
    with pytest.raises(NotMeasuredError, match="computing"):
        metric_values(steps, "computing")


@pytest.mark.parametrize("metric", [name for name in METRICS if name not in ("stage", "interval")])
def test_whatever_is_compared_is_judged_alike(metric):
    loads = {rank: 100 + rank % 3 for rank in range(8)} | {5: 130}
    run = summaries(loads, steps=4)
    case = Case(run)
    rows = metric_values(case.steps.assign(computing_ns=case.steps["computing_ns"]), metric)
    found = excess.of_values(rows, case)
    assert found.slow_ranks == ((5,) if metric == "computing" else ())
    if metric == "computing":
        assert found.ranks.equals(excess.of_ranks(case).ranks)


def test_a_run_without_stages_is_one_stage_that_is_called_minus_one():
    steps = staged_steps(summaries({0: 100, 1: 100}, steps=2))
    assert steps["stage"].tolist() == [-1] * 4
    placed = staged_steps(replace(summaries({0: 100, 1: 100}, steps=2), placement={1: Position(pipeline=3), 0: Position(tensor=1)}))
    assert placed.groupby("rank")["stage"].first().to_dict() == {0: -1, 1: 3}
    recorded = staged_steps(replace(summaries({0: 100}, stages={0: 2}, steps=1), placement={0: Position(pipeline=3)}))
    assert recorded["stage"].tolist() == [2]


def test_values_have_four_columns_and_stages_of_which_one_is_unknown_a_mean_of_the_others():
    steps = staged_steps(summaries({0: 100, 1: 300, 2: 200}, stages={0: 0, 1: 1, 2: 2}, steps=1))
    assert metric_values(steps, "computing").columns.tolist() == ["rank", "step", "stage", "value_ns"]
    steps.loc[steps["rank"] == 2, "computing_ns"] = pd.NA
    assert stages(steps)["computing_over_mean"].tolist()[:2] == [0.5, 1.5]
    assert stages(steps)["computing_over_mean"].isna().tolist() == [False, False, True]
    assert stages(steps.assign(computing_ns=pd.NA))["computing_over_mean"].isna().all()
    assert stages(steps)["step_ns"].tolist() == [200_000_000] * 3
