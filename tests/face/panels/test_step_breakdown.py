"""Page 11 without a browser: the published sample, ranks and stages, hostile names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.face.panels import step_breakdown
from perfkit.face.panels.step_breakdown import State
from perfkit.record.load import load

TWO_RANKS = State(run=str(data_folder() / "traces" / "torch_npu_2rank"))
SIXTEEN = State(run=str(data_folder() / "traces" / "cluster_16card"))


def test_the_sentence_has_the_published_numbers():
    text = step_breakdown.view(step_breakdown.compute(TWO_RANKS)).text
    for number in (
        "136.581 ms",
        "8.874 ms (6.50%)",
        "101.963 ms (74.65%)",
        "25.744 ms (18.85%)",
        "4.029 ms of communication is hidden",
    ):
        assert number in text


def test_choosing_a_rank_changes_sentence_and_tables():
    state = step_breakdown.pick(TWO_RANKS, "ranks", {"rank": "1"})
    answer = step_breakdown.view(step_breakdown.compute(state))
    assert "rank 1 took 131.913 ms" in answer.text
    assert "rank 1" in answer.tables["kernels"].title


def test_the_bars_sum_to_the_steps_of_the_run():
    answer = step_breakdown.view(step_breakdown.compute(TWO_RANKS))
    drawn = answer.charts["ranks"].chart.datasets["parts"]
    for row in load(TWO_RANKS.run).steps().to_dict("records"):
        total_ms = sum(part["amount_ms"] for part in drawn if part["rank"] == str(row["rank"]))
        assert total_ms == pytest.approx(row["duration_ns"] / 1e6)


def test_ranks_are_compared_within_their_stage():
    result = step_breakdown.compute(SIXTEEN)
    table = step_breakdown.view(result).tables["ranks"].frame
    most = table.sort_values("computing_ns").iloc[-1]
    assert int(most["rank"]) == 8, "rank 8 computes most of all"
    assert abs(float(most["against stage median"].rstrip("%"))) < 1, "but not against its own stage"


def test_the_bubble_of_the_second_stage_is_shown():
    steps = step_breakdown.compute(SIXTEEN).steps
    second = steps[steps["pipeline_stage"] == 1]
    assert second["bubble_ns"].astype(float).mean() / 1e6 == pytest.approx(181.583, abs=0.001)
    assert step_breakdown.compute(SIXTEEN).shown == tuple(range(16))


def test_a_text_picks_the_ranks_to_draw():
    assert step_breakdown.compute(replace(SIXTEEN, ranks="0-3, 8")).shown == (0, 1, 2, 3, 8)
    with pytest.raises(InputError, match="99"):
        step_breakdown.compute(replace(SIXTEEN, ranks="99"))


def test_shares_replace_times_on_request():
    chart = step_breakdown.view(step_breakdown.compute(replace(TWO_RANKS, unit="%"))).charts["ranks"].chart
    assert chart.to_dict(validate=False)["encoding"]["y"]["field"] == "share"


def test_a_log_has_no_breakdown_and_says_how_to_get_one():
    log = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
    with pytest.raises(NotMeasuredError, match="page 10"):
        step_breakdown.compute(State(run=str(log)))


def test_steps_of_a_run_with_many_steps_are_offered():
    options = step_breakdown.PANEL.controls[1].options(TWO_RANKS)
    assert options == [("median of each rank", "median"), ("50", "50")]
