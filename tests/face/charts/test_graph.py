"""Pictures of graphs: every sample in every picture within what a chart may draw, the operators as the table of the figure."""

from __future__ import annotations

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.graph import read_graph
from perfkit.explain.graph.picture import AROUND, picture_of
from perfkit.explain.graph.search import search_graph, worth_seeing
from perfkit.face.charts.graph import KINDS, dataflow, dataflow_rows
from perfkit.face.charts.spec import split
from perfkit.face.charts.theme import MAX_MARKS


@pytest.mark.parametrize("path", sorted((data_folder() / "ir").glob("*.ir")), ids=lambda path: path.stem)
@pytest.mark.parametrize("around", [value for _, value in AROUND])
def test_every_sample_is_drawn_in_every_picture(path, around):
    graph = read_graph(path).analysis
    chosen = worth_seeing(graph, search_graph(graph))
    title, picture = picture_of(graph, chosen, around)
    rows = dataflow_rows(graph, picture, chosen)
    drawn = split(dataflow(rows)).datasets
    assert next(iter(drawn)) == "nodes", "what the figure shows as its table"
    assert sum(len(next(iter(columns.values()), [])) for columns in drawn.values()) <= MAX_MARKS
    assert {node["kind"] for node in rows["nodes"]} <= set(KINDS)
    tops = {(node["x"], node["top"]) for node in rows["nodes"]}
    assert {(head["x"], head["y"]) for head in rows["heads"]} <= tops, "an arrow ends on an operator"
    assert len(rows["heads"]) == len({edge["edge"] for edge in rows["edges"]})
    assert (chosen.key in title) == (around == "operator")
    if around == "operator":
        assert [node["node"] for node in rows["nodes"] if node["chosen"]] == [chosen.key]
