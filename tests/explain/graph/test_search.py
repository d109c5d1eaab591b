"""What a page says of a graph: searches, tables and sentences of the samples, and of damaged and hostile files."""

from __future__ import annotations

from urllib.parse import unquote

import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.graph import read_graph, sentences, tables
from perfkit.explain.graph.search import search_graph, search_of, worth_seeing
from perfkit.face.widgets.graph_place import linked_to_graph, linked_to_timeline
from perfkit.face.widgets.timelines._search import matcher


def sample(name):
    return read_graph(data_folder() / "ir" / name).analysis


@pytest.fixture(scope="module")
def mismatch():
    return sample("strategy_mismatch.ir")


def facts(graph, node):
    return dict(tables.operator_table(graph, node).itertuples(index=False, name=None))


def test_what_should_not_be_comes_first(mismatch):
    assert worth_seeing(mismatch, search_graph(mismatch)).key == "%56"
    told, instead, much, *_ = sentences.graph_told(mismatch)
    assert told.startswith("8 of 33 communications are not needed; why, of the first: ")
    assert "w2 MatMul asks for (2, 1)" in told
    assert "in_strategy ((2, 4), (1, 4))" in instead
    assert much == "They move 48.0 KiB of 153 KiB a step and rank."
    table = tables.communication_table(mismatch, None)
    assert table["verdict"].tolist()[:8] == ["avoidable"] * 8
    assert len(table) == 33
    assert tables.cause_sizes(mismatch)["bytes"].sum() == table["size_bytes"].sum()


def test_a_recomputation_without_effect_comes_first():
    graph = sample("silu_mul_not_in_effect.ir")
    chosen = worth_seeing(graph, search_graph(graph))
    assert (chosen.op, chosen.key) == ("Mul", "%55")
    assert r"Mul is not: add feed_forward\.w2\.reshape" in sentences.recompute_told(graph)
    assert tables.recompute_table(graph)["in effect"].tolist() == [0, 0, 1, 1]


def test_a_search_finds_by_kind_scope_and_weight(mismatch):
    found = search_graph(mismatch, "w2.*AllGather", "communication")
    assert [node.op for node in found] == ["AllGather"] * 2
    assert len(search_graph(mismatch, show="not expected")) == 8
    assert search_graph(mismatch, "no such thing") == ()
    assert worth_seeing(mismatch, ()) is None
    assert tables.found_table(()).empty
    with pytest.raises(InputError, match="is no regular expression"):
        search_graph(mismatch, "(w2")


def test_every_operator_is_found_by_its_key(mismatch):
    for graph in (mismatch, sample("control_flow.ir")):
        nodes = graph.file.nodes()
        assert all(graph.file.find(node.key) is node for node in nodes)
        assert len({node.key for node in nodes}) == len(nodes)
    assert [mismatch.file.find(key) for key in ("", "%", "9:%1", "%99999", "x")] == [None] * 5


def test_an_operator_is_told_in_full(mismatch):
    told = facts(mismatch, mismatch.file.find("%66"))
    assert told["strategy"] == "((2, 1), (4, 1))"
    assert told["line"] == "strategy_mismatch.ir, line 293"
    graph = sample("control_flow.ir")
    found = search_graph(graph, "Switch")
    assert "control_flow.py:12~14" in tables.found_table(found)["source"].iloc[0]
    assert "control_flow.py:12~14" in facts(graph, found[0])["source"]


def test_predicted_times_follow_the_device(mismatch):
    slow, fast = (
        tables.communication_table(mismatch, catalog.hardware()[name])["predicted_ns"] for name in ("Ascend-910A", "H100-80GB-SXM")
    )
    assert (slow > fast).all()
    assert "predicted_ns" not in tables.communication_table(mismatch, None)


def test_a_damaged_file_says_which_lines_were_lost(tmp_path):
    path = tmp_path / "broken.ir"
    path.write_bytes(b"  %0(a) = <img/src=x>(%para1_x)\nwhat is this\n  %1(b) = AllReduce(%0\n")
    report = read_graph(path)
    assert tables.problem_table(report.analysis)["line"].tolist() == [2, 3]
    assert "not complete" in sentences.reading_told(report)[0]
    assert sentences.reading_told(read_graph(data_folder() / "ir" / "column_row.ir"))[0].startswith("The file was read to its end")


def test_the_report_of_one_file_keeps_what_the_folder_says(tmp_path):
    for name, rank in (("rank_0.ir", 0), ("rank_1.ir", 1)):
        (tmp_path / name).write_bytes((data_folder() / "ir" / "column_row.ir").read_bytes() + b"\n" * rank)
    (tmp_path / "empty.ir").write_text("nothing\n")
    report = read_graph(tmp_path)
    for name in report.files:
        one = report.of(name)
        assert (one.name, one.analysis) == (name, report.files[name])
        assert "1 files of the folder were not read, such as empty.ir." in sentences.reading_told(one)
    assert report.of("gone.ir").name == report.name == "rank_0.ir"


@pytest.mark.parametrize("name", sorted(path.name for path in (data_folder() / "ir").glob("*.ir")))
def test_a_kernel_leads_to_its_operator_in_the_graph_and_the_scope_shown_there_back_to_the_kernel(name):
    """MindSpore names a kernel of graph mode by the full scope of its operator."""
    graph = sample(name)
    scoped = [node for node in graph.file.nodes() if "/" in node.scope]
    kernels = linked_to_graph(pd.DataFrame({"name": [node.scope for node in scoped]}))
    for node, link in zip(scoped, kernels.attrs["links"]["name"], strict=True):
        search = unquote(link.partition("search=")[2])
        found = search_graph(graph, search)
        assert node in found
        assert {one.short_scope for one in found if one.short_scope.endswith(node.short_scope)} >= {node.short_scope}
        (back,) = filter(None, linked_to_timeline(tables.operator_table(graph, node)).attrs["links"]["value"])
        assert matcher(unquote(back.partition("search=")[2]))[0](node.scope), "the timeline finds the kernel"


def test_a_kernel_without_a_scope_leads_nowhere():
    assert [search_of(name) for name in ("MatMulV2", "aten::mm", "hcom_allReduce__123_0")] == [""] * 3
    plain = linked_to_graph(pd.DataFrame({"name": ["MatMulV2"], "inside_ns": [1]}))
    assert "links" not in plain.attrs
    (link,) = linked_to_graph(pd.DataFrame({"name": ["Default/net-N/a(b)-Cell/Mul-op1"]})).attrs["links"]["name"]
    assert unquote(link.partition("search=")[2]) == r"a\(b\)-Cell/Mul-op1(?!\d)"
