"""Page 13 without a browser: conservation, the late rank named and nobody else, links, filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.units import THIN_SPACE
from perfkit.explain.exposure import by_operation, exposed
from perfkit.face.panels import communication
from perfkit.face.panels.communication import State
from perfkit.face.widgets.status import NothingYet
from perfkit.record.load import load
from tests.face.panels.simulated import simulated

TWO_RANKS = State(run=str(data_folder() / "traces" / "torch_npu_2rank"))
SIXTEEN = State(run=str(data_folder() / "traces" / "cluster_16card"))


def shown(state: State):
    return communication.view(communication.compute(state))


def rows(answer, chart: str, name: str):
    return answer.charts[chart].chart.datasets[name]


def test_the_two_rank_profile_reads_as_its_file_says():
    text = shown(TWO_RANKS).text.replace(THIN_SPACE, " ")
    for piece in ("Rank 0 communicates 105.992 ms", "101.963 ms of it are exposed (74.65% of the step)", "4.029 ms are hidden"):
        assert piece in text
    assert "rank 1 is the late one; of the ranks recorded it waits least" in text


def test_hidden_and_exposed_sum_to_every_call_and_to_the_step():
    run = load(TWO_RANKS.run)
    calls = exposed(run)
    assert (calls["hidden_ns"] + calls["exposed_ns"] == calls["duration_ns"]).all()
    assert (calls["hidden_ns"] >= 0).all()
    hidden = calls.groupby("rank")["hidden_ns"].sum()
    overlapped = run.steps().set_index("rank")["overlapped_ns"]
    assert ((hidden - overlapped).abs() < 200_000).all()


def test_a_call_inside_a_kernel_is_hidden_and_one_outside_is_not(tmp_path):
    run = load(simulated("slow_rank:5:1.4"))
    calls = exposed(run, ranks=[0])
    busy = run.frame("kernels", ranks=[0])
    busy = busy[busy["kind"] == "computing"]
    call = calls.iloc[len(calls) // 2]
    end = call["start_ns"] + call["duration_ns"]
    common = (busy["start_ns"] + busy["duration_ns"]).clip(upper=end) - busy["start_ns"].clip(lower=call["start_ns"])
    assert call["hidden_ns"] == common.clip(lower=0).sum()


def test_without_kernels_exposure_is_null_and_said():
    table = by_operation(exposed(load(SIXTEEN.run)))
    assert table["exposed_ns"].isna().all()
    answer = shown(SIXTEEN)
    assert {row["part"] for row in rows(answer, "operations", "operations")} == {"not told apart"}
    assert any("not told apart" in note for note in answer.notes)
    assert "no single rank makes the others wait" in answer.text


def test_the_simulated_slow_rank_is_the_late_one():
    answer = shown(State(run=simulated("slow_rank:5:1.4")))
    assert "rank 5 is the late one" in answer.text
    assert [row["rank"] for row in rows(answer, "waiting", "latest")] == [5]


def test_a_slow_link_blames_no_rank():
    answer = shown(State(run=simulated("slow_link:0-1:3")))
    assert "no single rank" in answer.text
    assert rows(answer, "waiting", "latest") == []
    assert "The link 0 to 1 takes 3.00 times as long" in answer.text


def test_waiting_and_moving_sum_to_the_time_in_collectives():
    result = communication.compute(TWO_RANKS)
    spent = result.waiting.set_index("rank")[["wait_ns", "transfer_ns", "other_ns"]].sum(axis=1)
    assert (spent == result.members.groupby("rank")["duration_ns"].sum()).all()


def test_an_operation_and_ranks_are_chosen():
    run = simulated("slow_rank:5:1.4")
    state = communication.pick(State(run=run), "operations", {"operation": "all_reduce (2 ranks)"})
    assert state.operation == "all_reduce"
    assert set(communication.compute(state).members["operation"]) == {"all_reduce"}
    answer = shown(replace(State(run=run), ranks="0-3"))
    assert answer.tables["ranks"].frame["rank"].sort_values().tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="ranks"):
        communication.compute(replace(TWO_RANKS, ranks="0-99"))


def test_a_higher_threshold_names_nobody():
    assert communication.compute(replace(TWO_RANKS, wait_ratio=0.9)).late is None


def test_what_is_not_recorded_is_not_measured():
    with pytest.raises(NotMeasuredError, match="collectives"):
        communication.compute(State(run=str(data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log")))
    with pytest.raises(NothingYet):
        communication.compute(State(run=""))
