"""The pictures of a cluster: every rank once, colours that say what the scale says, marks of those that the rules name."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.cluster import judge_cluster
from perfkit.explain.communication import link_table
from perfkit.face.charts import cluster_rows
from perfkit.face.charts.cluster import link_rows, rank_grid
from perfkit.record.load import load
from tests.explain.simulated import simulated


def grid(axes: str = "stage", scale: str = "median") -> list[dict[str, Any]]:
    run = load(data_folder() / "traces" / "cluster_16card")
    return cluster_rows.grid_rows(judge_cluster(run).compared(), run, axes=axes, scale=scale)["grid"]


@pytest.mark.parametrize("axes", ["stage", "node"])
def test_the_grid_has_every_rank_once_in_either_layout(axes: str):
    cells = grid(axes)
    assert sorted(cell["rank"] for cell in cells) == list(range(16))
    assert len({(cell["row"], cell["place"]) for cell in cells}) == 16


def test_colours_say_what_the_scale_says():
    assert {cell["rank"]: cell["value"] for cell in grid(scale="ms")}[8] == pytest.approx(80.072, abs=0.001)
    assert max(cell["value"] for cell in grid(scale="max")) == 1.0


@pytest.mark.parametrize(("furthest", "edge"), [(0.001, 0.02), (-0.001, 0.02), (0.4, 0.4)])
def test_a_tenth_of_a_percent_is_white_and_a_slow_rank_has_the_full_colour(furthest: float, edge: float):
    cells = [{**cell, "value": furthest if cell["rank"] == 5 else 0.0} for cell in grid()]
    chart = rank_grid({"grid": cells}, words="computing", axes="stage", scale="median").to_dict()
    colour = next(layer["encoding"]["color"] for layer in chart["layer"] if "color" in layer["encoding"])
    assert colour["scale"]["domain"] == [-edge, edge]
    assert colour["scale"]["domainMid"] == 0


def test_the_ranks_that_the_rule_names_are_marked():
    judged = judge_cluster(load(simulated("slow_rank:5:1.4")))
    dots = cluster_rows.dot_rows(judged.compared(), judged.slow_ranks)["ranks"]
    assert [dot["rank"] for dot in dots if dot["state"] == "slow rank"] == [5]
    healthy = judge_cluster(load(data_folder() / "traces" / "cluster_16card"))
    assert {dot["state"] for dot in cluster_rows.dot_rows(healthy.compared(), healthy.slow_ranks)["ranks"]} == {"like its stage"}


def test_a_slow_link_is_ringed_in_both_directions():
    links = link_rows(link_table(judge_cluster(load(simulated("slow_link:0-1:3"))).case.run))["links"]
    assert {(row["source"], row["target"]) for row in links if row["slow"]} == {(0, 1), (1, 0)}


def test_the_layout_tells_the_groups_of_the_chosen_rank():
    run = load(simulated("slow_rank:5:1.4"))
    cells = {cell["rank"]: cell["relation"] for cell in cluster_rows.layout_rows(run, 2)["layout"]}
    assert cluster_rows.layout_axis(run) == "stage"
    assert (cells[2], cells[3], cells[10]) == ("chosen", "tensor", "pipeline")
    assert [rank for rank, relation in cells.items() if relation == "data"] == [0, 4, 6]
    assert cells[15] == "other"
