"""Steps in words and tables: the published sample, ranks and stages, parts that sum to the step."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain.steps import (
    compared_steps,
    next_look,
    parts_of,
    ranks_to_show,
    step_choices,
    step_notes,
    step_told,
    typical_steps,
)
from perfkit.record.load import load

TRACES = data_folder() / "traces"


@pytest.fixture(scope="module")
def two_ranks():
    return load(TRACES / "torch_npu_2rank")


@pytest.fixture(scope="module")
def sixteen():
    return load(TRACES / "cluster_16card")


def test_the_sentence_has_the_published_numbers(two_ranks):
    text = step_told(two_ranks, rank=0, step=50)
    for number in (
        "took 137 ms",
        "8.87 ms (6.50 %)",
        "102 ms (74.7 %)",
        "25.7 ms (18.8 %)",
        "4.03 ms of communication is hidden",
        "page 13",
    ):
        assert number in text
    assert "rank 1 took 132 ms" in step_told(two_ranks, rank=1, step=50)


@pytest.mark.parametrize("name", ["torch_npu_2rank", "cluster_16card", "kineto_resnet"])
def test_the_parts_of_every_rank_sum_to_its_step(name):
    run = load(TRACES / name)
    steps = typical_steps(run)
    shown = ranks_to_show(steps)
    parts = parts_of(run, steps, shown)
    assert list(dict.fromkeys(parts["rank"])) == shown
    totals = parts.groupby("rank")["amount_ns"].sum()
    for row in steps.to_dict("records"):
        assert totals[row["rank"]] == row["duration_ns"]
        assert next_look(run.step_breakdown(row["rank"], row["step"])).startswith("Look next at page ")


def test_the_slowest_rank_comes_first(sixteen):
    steps = typical_steps(sixteen)
    assert steps["duration_ns"].is_monotonic_decreasing
    assert len(steps) == len(set(steps["rank"])) == 16


def test_ranks_are_compared_within_their_stage(sixteen):
    table = compared_steps(typical_steps(sixteen))
    most = table.sort_values("computing_ns").iloc[-1]
    assert int(most["rank"]) == 8, "rank 8 computes most of all"
    assert abs(most["against_stage_ratio"]) < 0.01, "but not against its own stage"


def test_the_bubble_of_the_second_stage_is_known(sixteen):
    steps = typical_steps(sixteen)
    second = steps[steps["pipeline_stage"] == 1]
    assert second["bubble_ns"].astype(float).mean() / 1e6 == pytest.approx(181.583, abs=0.001)


def test_a_text_picks_the_ranks_to_draw(sixteen):
    steps = typical_steps(sixteen)
    assert ranks_to_show(steps, "0-3, 8") == [0, 1, 2, 3, 8]
    assert ranks_to_show(steps) == list(range(16))
    with pytest.raises(InputError, match="99"):
        ranks_to_show(steps, "99")


def test_a_log_has_no_breakdown_and_says_how_to_get_one():
    with pytest.raises(NotMeasuredError, match="page 10"):
        typical_steps(load(TRACES / "logs" / "llama2_13b_8card_worker_0.log"))


def test_steps_are_offered_and_a_number_picks_one(two_ranks):
    assert step_choices(two_ranks) == [("median of each rank", "median"), ("50", "50")]
    assert set(typical_steps(two_ranks, "50")["step"]) == set(typical_steps(two_ranks, 50)["step"]) == {50}


def test_what_is_missing_is_said_beside_the_parts(sixteen, two_ranks):
    assert "Kernels of single ranks are not recorded in this format." in step_notes(sixteen, rank=0, step=2)
    assert step_notes(two_ranks, rank=0, step=50) == []
