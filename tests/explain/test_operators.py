"""The largest kernels and collectives of a rank: nothing is lost, nothing is invented."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.quantity import cells
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.compare.operators import by_operator, compare_operators, slower_told
from perfkit.explain.operators import (
    ALL,
    core_choices,
    core_label,
    kernel_ranks,
    known,
    largest_collectives,
    largest_kernels,
    largest_told,
    operator_totals,
    ran_told,
    small_told,
    won_told,
)
from perfkit.record.format import Sink
from perfkit.record.load import load


@pytest.fixture
def run() -> Run:
    sink = Sink()
    sink.add(
        "kernels",
        rank=0,
        step=[1, 1, 2, 1, 1],
        name=["MatMul", "MatMul", "MatMul", "<img src=x onerror=alert(1)>", "hcom_allReduce"],
        type=["MatMulV2", "MatMulV2", "MatMulV2", "Cast", None],
        core=["AI_CORE", "AI_CORE", "AI_CORE", "AI_VECTOR_CORE", None],
        kind=["computing", "computing", "computing", "computing", "communication"],
        start_ns=[0, 100, 500, 200, 300],
        duration_ns=[60, 40, 70, 20, 100],
    )
    sink.add(
        "collectives",
        rank=0,
        step=1,
        name=["a", "b", "c"],
        operation=["all_reduce", "all_reduce", "send"],
        group=["world", "world", None],
        group_size=[8, 8, None],
        duration_ns=[100, 50, 10],
        wait_ns=[90, None, 5],
        bytes=[1000, 2000, 10],
    )
    return Run(name="made up", kind="simulated", format="test", tables=sink.tables())


def test_kernels_are_summed_by_name_with_communication_left_out(run):
    top = largest_kernels(run, rank=0)
    assert list(top["name"].astype(str)) == ["MatMul", "<img src=x onerror=alert(1)>"]
    assert list(top["total_ns"]) == [170, 20]
    assert top["share"].sum() == pytest.approx(1.0)


def test_one_step_is_told_apart_from_all(run):
    assert largest_kernels(run, rank=0, step=1)["total_ns"].tolist() == [100, 20]


def test_kernels_group_by_core(run):
    top = largest_kernels(run, rank=0, by="core")
    assert dict(zip(top["core"].astype(str), top["total_ns"], strict=True)) == {"AI_CORE": 170, "AI_VECTOR_CORE": 20}


def test_a_sum_over_calls_with_unknown_waits_is_unknown(run):
    top = largest_collectives(run, rank=0).set_index("operation")
    assert pd.isna(top.loc["all_reduce", "wait_ns"])
    assert top.loc["all_reduce", "bytes"] == 3000
    assert top.loc["send", "wait_ns"] == 5


def test_a_rank_without_rows_gives_an_empty_frame_with_all_columns(run):
    empty = largest_kernels(run, rank=7)
    assert empty.empty
    assert {"name", "count", "total_ns", "share"} <= set(empty.columns)


@pytest.fixture(scope="module")
def ascend() -> Run:
    return load(data_folder() / "traces/torch_npu_2rank")


@pytest.fixture(scope="module")
def kineto() -> Run:
    return load(data_folder() / "traces/kineto_resnet")


@pytest.mark.parametrize("by", ["name", "type", "core"])
def test_totals_are_those_of_the_kernels(ascend: Run, kineto: Run, by: str):
    for run in (ascend, kineto):
        for rank in kernel_ranks(run):
            kernels, table = run.frame("kernels", ranks=[rank]), operator_totals(run, rank=rank, by=by, core=ALL)
            assert table["total_ns"].sum() == kernels["duration_ns"].sum()
            assert table["count"].sum() == len(kernels)
            assert table["share"].sum() == pytest.approx(1.0)
            assert table["total_ns"].is_monotonic_decreasing


def test_communication_is_left_out_unless_asked_for(ascend: Run):
    assert "communication" in set(operator_totals(ascend, rank=0, core=ALL)["core"])
    assert not {"communication", "copy"} & set(operator_totals(ascend, rank=0)["core"])
    for _label, core in core_choices(ascend)[2:]:
        assert set(operator_totals(ascend, rank=0, core=core)["core"]) == {core}


def test_the_gain_of_a_share_is_s_over_one_minus_s(ascend: Run):
    table = operator_totals(ascend, rank=0)
    assert table["gain_without_ratio"].tolist() == pytest.approx([share / (1 - share) for share in table["share"]])
    alone = operator_totals(ascend, rank=0, by="core", core="cube")
    assert alone["gain_without_ratio"].isna().all(), "without all of it there is nothing left to gain from"


def test_a_column_that_tells_nothing_is_left_out(ascend: Run, kineto: Run):
    assert {"type", "core"} <= set(known(operator_totals(ascend, rank=0)).columns)
    totals = operator_totals(kineto, rank=kernel_ranks(kineto)[0])
    assert (totals["type"] == totals["name"]).all()
    assert set(totals["core"]) == {"unknown"}
    assert set(totals.columns) - set(known(totals).columns) == {"type", "core"}
    assert cells(largest_kernels(kineto, rank=kernel_ranks(kineto)[0])["core"])[:2] == [None, None], "not recorded is no nan"


def test_what_takes_most_and_what_is_many_and_short_is_said(ascend: Run, kineto: Run):
    lead, calls = largest_told(operator_totals(ascend, rank=0))
    assert " takes 22.1 % of operators' time; none is short and called often, so fusing gains little." in lead
    assert calls == "It takes 1.96 ms in 3 calls."
    assert "a fused operator replaces many" in small_told(operator_totals(kineto, rank=kernel_ranks(kineto)[0]), small_us=10.0)[0]
    assert small_told(operator_totals(ascend, rank=0), small_us=10.0)[0].startswith("No operator is called 20 times")


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([3, 20, 20], "; 2 others are short and called often: fuse them."),
        ([20, 20, 3], "; 1 other is short and called often: fuse it."),
        ([20, 3, 3], "; it is short and called often: fuse its calls."),
    ],
)
def test_what_is_short_and_called_often_is_counted_beside_the_largest(counts: list[int], told: str):
    totals = pd.DataFrame({"name": ["Add", "Mul", "Cast"], "core": "vector", "count": counts, "mean_ns": 1_000})
    totals = totals.assign(total_ns=totals["count"] * 1_000, share=totals["count"] / sum(counts))
    assert largest_told(totals)[0].endswith(told)


def test_a_recording_without_kernels_says_how_to_get_them():
    with pytest.raises(NotMeasuredError, match="page 10"):
        kernel_ranks(load(data_folder() / "traces/cluster_16card"))


@pytest.mark.parametrize("group", [pd.NA, float("nan"), None, ""])
def test_a_group_that_was_not_recorded_is_not_told(group: object):
    calls = pd.DataFrame({"operation": ["all_reduce"], "group": pd.Series([group], dtype="object"), "total_ns": [10_700_000]})
    assert ran_told(pd.DataFrame(), calls) == "It communicated most by all_reduce, 10.7 ms."
    assert ran_told(pd.DataFrame(), calls.assign(group="dp")) == "It communicated most in group dp: all_reduce, 10.7 ms."


def test_two_runs_are_put_side_by_side(ascend: Run, kineto: Run):
    found = compare_operators(ascend, kineto)
    # Its optimizer takes 25.5 % of the computing time, that of the other run 3.8 %.
    row = by_operator(found).set_index("operator").loc["Optimizer"]
    assert row["slower"]
    assert row["times"] == pytest.approx(0.255 / 0.0382, rel=0.02)
    assert "Optimizer (25.5 % of the computing time here, 3.82 % there)" in slower_told(found, kineto.name)


def test_a_run_beside_itself_has_nothing_slower_than_its_share(ascend: Run):
    found = compare_operators(ascend, ascend)
    assert not by_operator(found)["slower"].any()
    assert "no operator takes 1.5 times its share" in slower_told(found, ascend.name)


@pytest.mark.parametrize(
    ("core", "kind", "expected"),
    [
        ("AI_CORE", "computing", "cube"),
        ("AI_VECTOR_CORE", "computing", "vector"),
        ("MIX_AIC", "computing", "mixed"),
        ("AI_CPU", "computing", "AI CPU"),
        ("HCCL", "communication", "communication"),
        (None, "computing", "unknown"),
    ],
)
def test_cores_have_plain_names(core: str | None, kind: str, expected: str):
    assert core_label(core, kind) == expected


def test_what_a_faster_operator_wins_is_told_of_it_by_the_name_that_people_read():
    told = won_told("aclnnInplaceCopy_TensorMoveAiCore_TensorMove", 2.0, "The step would take 1 ms.")
    assert told == "InplaceCopy: TensorMove, 2 times faster. The step would take 1 ms."
