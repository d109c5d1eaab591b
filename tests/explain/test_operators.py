"""The largest kernels and collectives of a rank: nothing is lost, nothing is invented."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.operators import largest_collectives, largest_kernels
from perfkit.record.format import Sink


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
