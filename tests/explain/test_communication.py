"""Communication: conservation, the late rank named and nobody else, links, filters."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import THIN_SPACE
from perfkit.explain.communication import (
    clocks_told,
    exposed_told,
    late_rank,
    link_table,
    links_judged,
    links_told,
    members_of,
    names_of,
    operations_of,
    verdict_told,
    waiting_by_rank,
    waiting_told,
)
from perfkit.explain.exposure import exposed
from perfkit.explain.steps import step_told
from perfkit.face.charts.communication import operation_rows, wait_bars, wait_rows
from perfkit.record.load import load
from tests.explain.simulated import simulated
from tests.record.formats.test_ascend_text import rank_folder
from tests.two_ranks import by_tables

TRACES = data_folder() / "traces"
PIPELINE = Path(__file__).parents[1] / "data" / "traces" / "torch_npu_pp2dp2"


@pytest.fixture(scope="module")
def two_ranks():
    return load(by_tables())


@pytest.fixture(scope="module")
def sixteen():
    return load(TRACES / "cluster_16card")


@pytest.fixture(scope="module")
def slow_rank():
    return load(simulated("slow_rank:5:1.4"))


def test_the_two_rank_profile_reads_as_its_file_says(two_ranks):
    text = exposed_told(two_ranks).replace(THIN_SPACE, " ")
    for piece in ("Rank 0 communicates 106 ms", "102 ms of it are exposed (74.7 % of the step)", "4.03 ms are hidden"):
        assert piece in text
    waited, neither = waiting_told(members_of(two_ranks))[:2]
    assert "no single rank makes the others wait" in waited  # rank 1 waits least, and stands for longer than rank 0 waits
    assert "neither waiting nor transfer" in neither.replace(THIN_SPACE, " ")


def step_of(tmp_path, *, overlapped: str) -> Run:
    """A rank that computes 100 of 180 µs and communicates for 50 (10 more if 10 are hidden), by the vendor's summary."""
    whole = 50 + float(overlapped or 0)
    rank_folder(tmp_path, 0, step_rows=f"1,100,50,{overlapped},{whole},30,180,0\n")
    return load(tmp_path)


def test_communication_that_is_not_hidden_and_that_was_not_measured_are_told_apart(tmp_path):
    told = {
        kind: step_of(tmp_path / kind, overlapped=hidden) for kind, hidden in {"none": "0", "some": "10", "unknown": ""}.items()
    }
    sentences = {kind: (exposed_told(run), step_told(run, rank=0, step=1)) for kind, run in told.items()}
    assert all("hidden behind computing was not measured" in text for text in sentences["unknown"])
    assert "none of it is hidden" in sentences["none"][0]
    assert "None of the communication is hidden" in sentences["none"][1]
    assert all("10.0 µs" in text for text in sentences["some"])
    assert not any("0 ns" in text.replace("10.0", "") for pair in sentences.values() for text in pair)


def test_a_step_that_hides_nothing_tells_it_of_every_operation_in_it():
    operations = operations_of(load(PIPELINE))  # of ranks 1 and 3 no kernels were recorded, of all four that nothing overlaps
    assert operations["hidden_ns"].tolist() == [0] * len(operations)
    assert (operations["exposed_ns"] == operations["duration_ns"]).all()


def test_hidden_and_exposed_sum_to_every_call_and_to_the_step(two_ranks):
    calls = exposed(two_ranks)
    assert (calls["hidden_ns"] + calls["exposed_ns"] == calls["duration_ns"]).all()
    assert (calls["hidden_ns"] >= 0).all()
    hidden = calls.groupby("rank")["hidden_ns"].sum()
    overlapped = two_ranks.steps().set_index("rank")["overlapped_ns"]
    assert ((hidden - overlapped).abs() < 200_000).all()


def test_a_call_inside_a_kernel_is_hidden_and_one_outside_is_not(slow_rank):
    calls = exposed(slow_rank, ranks=[0])
    busy = slow_rank.frame("kernels", ranks=[0])
    busy = busy[busy["kind"] == "computing"]
    call = calls.iloc[len(calls) // 2]
    end = call["start_ns"] + call["duration_ns"]
    common = (busy["start_ns"] + busy["duration_ns"]).clip(upper=end) - busy["start_ns"].clip(lower=call["start_ns"])
    assert call["hidden_ns"] == common.clip(lower=0).sum()


def test_without_kernels_exposure_is_null_and_said(sixteen):
    table = operations_of(sixteen)
    assert table["exposed_ns"].isna().all()
    assert {row["part"] for row in operation_rows(table)["operations"]} == {"not told apart"}
    assert "no single rank makes the others wait" in waiting_told(members_of(sixteen))[0]


def test_the_simulated_slow_rank_is_the_late_one(slow_rank):
    members = members_of(slow_rank)
    late = late_rank(members)
    assert "rank 5 is the late one" in waiting_told(members)[0]
    assert [row["rank"] for row in wait_rows(waiting_by_rank(members), late, num_steps=4)["latest"]] == [5]
    others = wait_rows(waiting_by_rank(members), late, num_steps=4, shown=(0, 1))
    assert {row["rank"] for row in others["spent"]} == {0, 1}
    assert others["latest"] == others["unseen"] == []


def test_a_late_rank_that_was_not_recorded_has_words_in_place_of_a_bar():
    members = members_of(load(TRACES / "torch_npu_2rank"))
    rows = wait_rows(waiting_by_rank(members), late_rank(members), num_steps=1)
    assert (rows["latest"], [row["rank"] for row in rows["unseen"]]) == ([], [5])
    assert {"spent", "unseen"} == {layer["data"]["name"] for layer in wait_bars(rows).to_dict()["layer"]}


def test_a_slow_link_blames_no_rank():
    run = load(simulated("slow_link:0-1:3"))
    assert late_rank(members_of(run)) is None
    assert "The link 0 to 1 takes 3.00 times as long" in links_told(link_table(run))


def test_links_stand_in_the_order_of_what_they_cost(two_ranks):
    links = link_table(two_ranks)
    cost_s = links["bytes"] / links["bytes_per_s"] * (1 - 1 / links["slowness"].fillna(1.0))
    assert len(links) > 2
    assert cost_s.is_monotonic_decreasing


@pytest.mark.parametrize("name", ["torch_npu_2rank", "cluster_16card", "kineto_resnet"])
def test_waiting_and_moving_sum_to_the_time_in_collectives(name):
    run = load(TRACES / name)
    if not run.has("collectives"):
        with pytest.raises(NotMeasuredError, match="collectives"):
            members_of(run)
        return
    members = members_of(run)
    ranks = waiting_by_rank(members).set_index("rank")
    told = ranks[ranks["wait_ns"].notna()]
    spent = told[["wait_ns", "transfer_ns", "other_ns"]].sum(axis=1)
    assert (spent == members.groupby("rank")["duration_ns"].sum().loc[told.index]).all()
    if told.empty:
        assert waiting_told(members) == [
            "Whether communication moves data or waits is not known: record every rank of a group, to see who comes late."
        ]


def test_the_verdict_leads_with_the_larger_part_and_blames_nobody_of_whom_nothing_is_known(slow_rank):
    partly = members_of(load(TRACES / "cluster_16card"))
    assert verdict_told(partly)[0].endswith("for whom is not known: record all ranks of a group.")
    assert verdict_told(partly.iloc[:0]) == ["No operation of this choice was recorded."]
    members = members_of(slow_rank)
    moving = members.assign(wait_ns=members["wait_ns"] // 50)
    waited, moved = int(moving["wait_ns"].sum()), int(moving["transfer_ns"].sum())
    assert waited < moved
    assert "moves data" in verdict_told(moving)[0]


def test_one_operation_and_one_transport_are_looked_at(slow_rank):
    for operation in names_of(slow_rank, "collectives", "operation")[1:]:
        assert set(members_of(slow_rank, operation=operation)["operation"]) == {operation}
        assert set(operations_of(slow_rank, operation=operation)["operation"]) == {operation}
    for transport in names_of(slow_rank, "links", "transport")[1:]:
        assert set(link_table(slow_rank, transport=transport)["transport"]) == {transport}


def test_a_higher_threshold_names_nobody(two_ranks):
    assert late_rank(members_of(two_ranks), wait_ratio=0.9) is None


def test_what_is_not_recorded_is_not_measured():
    log = load(TRACES / "logs" / "llama2_13b_8card_worker_0.log")
    with pytest.raises(NotMeasuredError, match="collectives"):
        operations_of(log)
    assert names_of(log, "collectives", "group") == ["all"]


def test_links_that_have_none_like_them_are_not_called_healthy():
    table = link_table(load(data_folder() / "traces" / "cluster_16card"))
    assert (len(table), table["slowness"].isna().sum()) == (3, 3), "no two of them are alike: not one of them is judged"
    told = links_told(table).replace(THIN_SPACE, " ")
    assert told.endswith(
        "none has another like it to be judged by. "
        "The slowest of them, 1 to 0, moved 40.0 B at 24.7 MB/s; the fastest link moves 24.3 GB/s."
    )
    assert links_judged(table)["slow"].tolist() == ["not judged"] * 3
    assert "The slowest" not in links_told(table.nlargest(1, "bytes_per_s"))


def test_links_of_which_some_have_none_like_them_are_counted():
    table = link_table(load(Path(__file__).parents[1] / "data" / "traces" / "torch_npu_pp2dp2"))
    is_alone = table["slowness"].isna()
    compared, alone = table[~is_alone], table[is_alone]
    assert (len(compared), len(alone)) == (8, 4)
    once, twice = pd.concat([compared[:1], alone[:2]]), pd.concat([compared[:2], alone[:1]])
    assert "1 of 3 links could be compared and is not slow; 2 have no link like them to compare with." in links_told(once)
    assert "2 of 3 links could be compared, and none is slow; 1 has no link like it to compare with. That is" in links_told(twice)
    assert "none has another like it" in links_told(alone)
    assert "compare" not in links_told(compared)
    assert links_judged(table)["slow"].tolist() == ["not judged" if alone else False for alone in is_alone]


def test_how_far_clocks_were_moved_is_told_with_how_sure_that_is():
    (told,) = clocks_told(load(TRACES / "torch_npu_2rank"))
    assert told.replace(THIN_SPACE, " ") == (
        "Clocks of 2 of 2 ranks were aligned, by up to 8.14 µs (rank 1); that is sure to 941 ns."
    )
    (drifting,) = clocks_told(load(Path(__file__).parents[1] / "data" / "traces" / "cluster_db"))
    assert "(rank 0) and their drift" in drifting
    assert clocks_told(load(TRACES / "cluster_16card")) == [], "nothing says when its operations ended"
