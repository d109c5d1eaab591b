"""Links: the matrix without double counting, and who is to blame for a slow one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perfkit.core.run import Run
from perfkit.explain.links import links, slow_ends, slow_links
from perfkit.record.format import Sink

GB = 10**9


def _matrix(slow: Mapping[tuple[int, int], float], ranks: int = 8, operation: str = "allreduce-total@1") -> Run:
    """All links between the ranks move 1 GB at 20 GB/s, divided by the factors of `slow`."""
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    sink = Sink()
    sink.add(
        "links",
        rank=[a for a, _ in pairs],
        step=1,
        operation=operation,
        source_rank=[a for a, _ in pairs],
        target_rank=[b for _, b in pairs],
        transport="HCCS",
        bytes=GB,
        transit_ns=[round(GB / 20 * slow.get(pair, 1.0)) for pair in pairs],
    )
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def test_one_slow_link_is_to_blame_itself_not_its_ends():
    run = _matrix({(2, 4): 4.0, (4, 2): 4.0})
    worst = slow_links(run).iloc[:2]
    assert {(row["source_rank"], row["target_rank"]) for row in worst.to_dict("records")} == {(2, 4), (4, 2)}
    assert worst["link"].tolist() == pytest.approx([4.0, 4.0])
    assert slow_ends(run)["slowness"].max() == pytest.approx(1.0)


def test_a_rank_that_sends_slowly_is_to_blame_not_its_links():
    run = _matrix({(3, b): 2.0 for b in range(8)})
    table = slow_links(run)
    assert table["link"].max() == pytest.approx(1.0)
    worst = slow_ends(run).iloc[0]
    assert (worst["rank"], worst["direction"], worst["num_links"]) == (3, "sends", 7)
    assert worst["slowness"] == pytest.approx(2.0)


def test_shares_multiply_to_the_slowness_and_excess_is_the_time_above_typical():
    table = slow_links(_matrix({(3, b): 2.0 for b in range(8)} | {(1, 6): 3.0}))
    product = table["sender"] * table["receiver"] * table["link"]
    assert product.to_numpy() == pytest.approx(table["slowness"].to_numpy())
    assert table.loc[table["slowness"] > 2.9, "excess_ns"].item() == 2 * GB // 20


def test_healthy_links_cost_nothing():
    assert (slow_links(_matrix({}))["excess_ns"] == 0).all()


def test_totals_single_operations_and_grand_totals_are_never_added():
    sink = Sink()
    for operation, size in {"allreduce-total@1": 300, "allreduce-top1@1": 200, "Total Op Info": 300}.items():
        sink.add(
            "links", rank=0, step=1, operation=operation, source_rank=0, target_rank=1, transport="HCCS", bytes=size, transit_ns=10
        )
    sink.add(
        "links",
        rank=0,
        step=1,
        operation="allreduce-total@1",
        source_rank=0,
        target_rank=0,
        transport="LOCAL",
        bytes=9,
        transit_ns=1,
    )
    table = links(Run(name="made", kind="measured", format="test", tables=sink.tables()))
    assert table["bytes"].tolist() == [300]
    assert table["bytes_per_s"].tolist() == [30e9]


def test_small_and_untimed_links_are_listed_but_not_judged():
    sink = Sink()
    sink.add("links", rank=0, operation="a", source_rank=0, target_rank=1, transport="RDMA", bytes=2, transit_ns=0)
    run = Run(name="made", kind="measured", format="test", tables=sink.tables())
    assert links(run)["bytes_per_s"].isna().all()
    assert slow_links(run).empty
    assert slow_ends(run).empty


def test_a_run_without_links_has_empty_tables_with_the_columns_of_others():
    bare = Run(name="bare", kind="measured", format="test", tables={})
    for question in (links, slow_links, slow_ends):
        table, full = question(bare), question(_matrix({}))
        assert len(table) == 0
        assert list(table.columns) == list(full.columns)
    assert links(bare).select_dtypes("number").dtypes.equals(links(_matrix({})).select_dtypes("number").dtypes)
