"""Collectives over all ranks: matching, waiting against transfer by the latest arriver, bandwidths."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.run import Run
from perfkit.explain.collectives import bus_factor, collectives, waiting
from perfkit.record.events.graph import causal_graph
from perfkit.record.format import Sink


def _run(rows: list[dict[str, Any]], groups: list[dict[str, Any]] = []) -> Run:  # noqa: B006
    sink = Sink()
    for row in rows:
        sink.add("collectives", **{"step": 1, "operation": "all_reduce", **row})
    for group in groups:
        sink.add("groups", **group)
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def _all_reduces(starts: list[list[int]], transfer_ns: int = 100, **more: Any) -> Run:
    """The k-th operation starts on rank r at starts[k][r] and ends on all ranks after the latest start plus the transfer."""
    return _run(
        [
            {
                "rank": rank,
                "name": f"hcom_allReduce__1_{k}_1",
                "group": "g",
                "group_size": len(arrivals),
                "start_ns": start,
                "duration_ns": max(arrivals) + transfer_ns - start,
                **more,
            }
            for k, arrivals in enumerate(starts)
            for rank, start in enumerate(arrivals)
        ]
    )


STARTS = [[1000, 1040, 1090], [2000, 2070, 2010], [3000, 3000, 3300], [4005, 4000, 4100]]


def test_waiting_ends_when_the_latest_member_arrives():
    rows = causal_graph(_all_reduces(STARTS)).members()
    assert rows["basis"].unique().tolist() == ["arrival"]
    first = rows[rows["instance"] == 0]
    assert first["wait_ns"].tolist() == [90, 50, 0]
    assert first["transfer_ns"].tolist() == [100, 100, 100]
    assert first["late_ns"].tolist() == [0, 40, 90]


def test_the_latest_rank_is_named_with_what_only_it_costs():
    table = collectives(_all_reduces(STARTS))
    assert table["latest_rank"].tolist() == [2, 1, 2, 2]
    assert table["late_ns"].tolist() == [50, 60, 300, 95]
    assert table["transfer_ns"].tolist() == [100] * 4


def test_a_skewed_clock_changes_neither_waits_nor_the_latest_rank():
    skewed = _run(
        [
            {
                "rank": rank,
                "name": f"a{k}",
                "group": "g",
                "group_size": 3,
                "start_ns": start + (5_000_000 if rank == 0 else 0),
                "duration_ns": max(arrivals) + 100 - start,
            }
            for k, arrivals in enumerate(STARTS)
            for rank, start in enumerate(arrivals)
        ]
    )
    expected = causal_graph(_all_reduces(STARTS)).members()
    assert causal_graph(skewed).members()["wait_ns"].tolist() == expected["wait_ns"].tolist()
    assert collectives(skewed)["latest_rank"].tolist() == [2, 1, 2, 2]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=3, max_size=8),
    st.integers(0, 10**5),
)
def test_waits_and_transfer_sum_to_the_duration(starts: list[list[int]], transfer_ns: int):
    placed = [[10**7 * k + start for start in arrivals] for k, arrivals in enumerate(starts)]
    rows = causal_graph(_all_reduces(placed, transfer_ns)).members()
    assert (rows["wait_ns"] + rows["transfer_ns"] + rows["other_ns"] == rows["duration_ns"]).all()
    assert (rows["wait_ns"] >= 0).all()
    assert (rows["transfer_ns"] >= 0).all()


def test_who_is_waited_for_stands_first():
    table = waiting(causal_graph(_all_reduces(STARTS)).members())
    assert table["rank"].tolist() == [2, 1, 0]
    assert table["caused_ns"].tolist() == [2 * (50 + 300 + 95), 2 * 60, 0]


def test_members_that_were_not_read_leave_the_split_to_the_vendor():
    run = _run(
        [
            {
                "rank": rank,
                "name": "hcom_allReduce__1_0_1",
                "group": "g",
                "group_size": 8,
                "start_ns": 1000,
                "duration_ns": 500,
                "transit_ns": 100,
                "wait_ns": 300,
                "bytes": 1400,
            }
            for rank in (0, 1)
        ]
    )
    rows = causal_graph(run).members()
    assert rows["basis"].tolist() == ["recorded"] * 2
    assert rows[["wait_ns", "transfer_ns", "other_ns"]].to_numpy().tolist() == [[300, 100, 100]] * 2
    table = collectives(run)
    assert table["latest_rank"].isna().all()
    assert table["bus_bytes_per_s"].item() == pytest.approx(14e9)
    assert table["algorithm_bytes_per_s"].item() == pytest.approx(8e9)
    assert table["bytes"].item() == 800


def test_one_rank_alone_says_nothing_about_waiting():
    rows = causal_graph(_run([{"rank": 0, "name": "a", "group": "g", "group_size": 2, "start_ns": 5, "duration_ns": 9}])).members()
    assert rows["wait_ns"].isna().all()
    assert rows["transfer_ns"].isna().all()
    assert rows["basis"].isna().all()


def test_bytes_without_transit_are_the_payload():
    table = collectives(_all_reduces(STARTS, transfer_ns=1000, bytes=3000))
    assert table["algorithm_bytes_per_s"].iloc[0] == pytest.approx(3e9)
    assert table["bus_bytes_per_s"].iloc[0] == pytest.approx(4e9)


def test_groups_of_one_name_are_told_apart_by_their_members():
    rows = [
        {
            "rank": rank,
            "name": f"a#{k}",
            "group": "0",
            "group_size": 2,
            "start_ns": 1000 * k + 10 * rank,
            "duration_ns": 100 - 10 * rank,
        }
        for k in range(3)
        for rank in range(4)
    ]
    world = {"group": "1", "group_size": 4, "duration_ns": 10}
    rows += [{"rank": rank, "name": f"w#{k}", "start_ns": 1000 * k + 500, **world} for k in range(3) for rank in range(4)]
    groups = [{"rank": rank, "group": "0", "label": "tp", "members": "0,1" if rank < 2 else "2,3"} for rank in range(4)]
    table = collectives(_run(rows, groups))
    table = table[table["group"] == "0"]
    assert table["num_seen"].tolist() == [2] * 6
    assert table["latest_rank"].tolist() == [1, 3] * 3


def test_a_send_meets_the_receive_of_the_other_rank():
    rows = []
    for k in range(3):
        at = 10_000 * k
        rows += [
            {
                "rank": 0,
                "name": f"s{k}",
                "operation": "send",
                "group": "p",
                "group_size": 2,
                "start_ns": at + 700,
                "duration_ns": 50,
            },
            {"rank": 1, "name": f"r{k}", "operation": "receive", "group": "p", "group_size": 2, "start_ns": at, "duration_ns": 750},
        ]
        common = {"group": "w", "group_size": 2, "name": f"w{k}"}
        rows += [{"rank": rank, **common, "start_ns": at + 2000, "duration_ns": 10} for rank in (0, 1)]
    table = causal_graph(_run(rows)).members()
    receives = table[table["operation"] == "receive"]
    assert receives["num_seen"].tolist() == [2] * 3
    assert receives["wait_ns"].tolist() == [700] * 3
    assert receives["transfer_ns"].tolist() == [50] * 3


def test_transfers_in_a_group_of_all_stages_have_two_ends_each():
    sizes = {"group": "p", "group_size": 3}
    rows: list[dict[str, Any]] = [
        {"rank": 0, "name": "f0", "operation": "send", "start_ns": 700, "duration_ns": 50, **sizes},
        {"rank": 1, "name": "f0", "operation": "receive", "start_ns": 0, "duration_ns": 750, **sizes},
        {"rank": 1, "name": "f1", "operation": "send", "start_ns": 900, "duration_ns": 50, **sizes},
        {"rank": 2, "name": "f1", "operation": "receive", "start_ns": 960, "duration_ns": 50, **sizes},
    ]
    world = {"group": "w", "group_size": 3, "duration_ns": 10}
    rows += [{"rank": rank, "name": f"w{k}", "start_ns": 2000 + 100 * k, **world} for k in range(3) for rank in range(3)]
    table = causal_graph(_run(rows)).members()
    table = table[table["group"] == "p"].sort_values("start_ns")
    assert table["num_seen"].tolist() == [2] * 4
    assert set(table["basis"]) == {"arrival"}
    assert table["wait_ns"].tolist() == [700, 0, 0, 0]  # the second send was over before its receive began: it has not waited


@pytest.mark.parametrize(
    ("operation", "size", "factor"),
    [("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75), ("broadcast", 8, 1.0), ("all_reduce", 1, 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(operation: str, size: int, factor: float):
    assert bus_factor(operation, size) == factor


def test_a_run_without_collectives_gives_empty_tables():
    run = _run([])
    assert causal_graph(run).members().empty
    assert collectives(run).empty
    assert waiting(causal_graph(run).members()).empty
    assert pd.api.types.is_integer_dtype(causal_graph(run).members()["instance"])
