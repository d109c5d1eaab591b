"""Neighbourhoods and layers laid out to be drawn."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest

from perfkit.explain.graph import read_graph
from perfkit.explain.graph.links import link
from perfkit.explain.graph.parse import read_stream
from perfkit.explain.graph.picture import HALF_PLACE, layer, neighbourhood

IR = Path(__file__).resolve().parents[2] / "data" / "ir"


@pytest.fixture(scope="module")
def mismatch():
    (found,) = read_graph(IR / "dp2tp4_allgather_mismatch/21_validate_0082.ir").files.values()
    return found


def checked(picture, limit):
    """The picture, after what holds for every one: edges run down, boxes of a row do not touch, nothing is drawn twice."""
    places = {(one.node.graph, one.node.id): one for one in picture.nodes}
    assert len(places) == len(picture.nodes) <= limit
    for source, target, between in picture.edges:
        rows = [places[source].row, *(row for _, row in between), places[target].row]
        assert rows == sorted(set(rows))
    for row in {one.row for one in picture.nodes}:
        x = sorted(one.x for one in picture.nodes if one.row == row)
        assert all(right - left >= 2 * HALF_PLACE - 1e-9 for left, right in pairwise(x))
    return places


def test_the_neighbours_of_a_mismatch_are_its_producer_and_consumer(mismatch):
    center = mismatch.file.subgraphs[0].nodes[56]
    places = checked(neighbourhood(mismatch.file, mismatch.links, center), 60)
    ops = {one.node.op for one in places.values()}
    assert {"Mul", "SiLU", "MatMul", "Split", "Concat", "AllGather"} <= ops
    assert not ops & {"Load", "Depend", "MakeTuple", "TupleGetItem", "UpdateState"}


def test_operators_all_over_the_graph_can_be_drawn(mismatch):
    for node in mismatch.file.nodes()[::7]:
        checked(neighbourhood(mismatch.file, mismatch.links, node), 60)


@pytest.mark.parametrize("backward", [False, True])
def test_a_layer_shows_its_own_operators_and_says_what_is_left_out(mismatch, backward):
    picture = layer(mismatch.file, mismatch.links, "layers/0", backward=backward)
    places = checked(picture, 60)
    assert all("layers-CellList/0-" in one.node.scope for one in places.values())
    assert all(one.node.is_backward == backward for one in places.values())
    assert layer(mismatch.file, mismatch.links, "layers/0", backward=backward, max_nodes=10).left_out > picture.left_out


def test_copies_are_drawn_when_they_are_asked_for():
    (found,) = read_graph(IR / "tp4_silu_mul_recompute_2d/21_validate_0082.ir").files.values()
    nodes = found.file.subgraphs[0].nodes
    drawn = {one.node.id for one in neighbourhood(found.file, found.links, nodes[53], also=[nodes[332]]).nodes}
    assert 332 in drawn
    assert any(node.is_backward and node.op == "MatMul" for node in (nodes[number] for number in drawn))


def test_arguments_that_come_later_or_in_circles_do_not_hang():
    text = "".join(f"  %{place}(a) = Add(%{(place + 1) % 9}, %{(place * 7) % 9})\n" for place in range(9))
    file = read_stream(io.BytesIO(text.encode()), name="circle.ir")
    picture = neighbourhood(file, link(file), file.nodes()[0])
    assert len(picture.nodes) == 9
