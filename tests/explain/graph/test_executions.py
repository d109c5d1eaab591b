"""From what a recording has of an operator to the graph and its lines of code, and back: sums, links, names of several formats."""

from __future__ import annotations

from functools import cache
from urllib.parse import parse_qsl, unquote

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.graph import read_graph, sentences
from perfkit.explain.graph.executions import by_line, by_rank, executions
from perfkit.explain.graph.search import looked_at, operator_of, search_graph, search_of
from perfkit.face.widgets.graph_place import linked_to_slices
from perfkit.face.widgets.timelines._address import asked_for
from perfkit.face.widgets.timelines._selection import detailed
from perfkit.face.widgets.timelines.data import open_timeline
from perfkit.face.widgets.timelines.events import walked
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests.explain.diagnose.made import MS, run_of
from tests.explain.diagnose.test_real_samples import MORE

GRAPHS = data_folder() / "ir"


@cache
def graph_of(name):
    return read_graph(GRAPHS / name).analysis


@cache
def recorded(name, ranks=(0, 1)):
    """A recording of two steps of a graph: every operator takes 1 ms, and 1 ms more on each further rank."""
    sink, scopes = Sink(), [node.scope for node in graph_of(name).file.nodes() if "/" in node.scope]
    for rank in ranks:
        length = (1 + rank) * MS
        names = [scope for scope in scopes if "All" not in scope.rpartition("/")[2]]
        sink.add("kernels", rank=rank, step=1, name=names * 2, type="X", kind="compute", stream="7",
                 start_ns=[at * 10 * MS for at in range(2 * len(names))], duration_ns=length)  # fmt: skip
        calls = [f"{scope}_{turn}" for turn in (0, 1) for scope in scopes if "All" in scope.rpartition("/")[2]]
        if calls:
            sink.add("collectives", rank=rank, step=1, name=calls, operation="all_reduce", group="g", group_size=2,
                     start_ns=[at * 10 * MS + 5 * MS for at in range(len(calls))], duration_ns=length)  # fmt: skip
    return run_of(sink)


@pytest.mark.parametrize("name", sorted(path.name for path in GRAPHS.glob("*.ir")))
def test_an_operator_has_its_executions_of_every_rank_and_no_others(name):
    run = recorded(name)
    nodes = [node for node in graph_of(name).file.nodes() if "/" in node.scope]
    alike = pd.Series([node.scope for node in nodes]).value_counts()  # of a function that several places call
    for node in nodes[:: max(1, len(nodes) // 10)]:
        rows = executions(run, [node])
        assert {operator_of(kernel) for kernel in rows["name"]} == {node.scope}
        sums = by_rank(rows).groupby("rank")[["count", "total_ns"]].sum()
        count = 2 * int(alike[node.scope])
        assert sums["count"].tolist() == [count, count]
        assert sorted(sums["total_ns"]) == [count * MS, 2 * count * MS]
        assert looked_at(graph_of(name), "", search_of(rows["name"].iloc[0])) in search_graph(graph_of(name), node.short_scope)


def test_a_line_of_code_has_the_executions_of_all_its_operators():
    run, file = recorded("control_flow.ir"), graph_of("control_flow.ir").file
    node = next(node for node in file.nodes() if len(node.sources) == 2 and "/" in node.scope)
    found = by_line(run, file, node)
    assert found["source"].tolist() == list(reversed(node.sources))
    for row in found.to_dict("records"):
        of_line = [other for other in file.nodes() if row["source"] in other.sources]
        assert row["operators"] == len(of_line)
        assert row["total_ns"] == executions(run, of_line)["duration_ns"].sum() > 0
    inner, outer = found["total_ns"]
    assert inner < outer


def test_every_sum_leads_to_its_longest_slice_in_the_timeline():
    run, file = recorded("control_flow.ir"), graph_of("control_flow.ir").file
    timeline = open_timeline(run)
    node = next(node for node in file.nodes() if len(node.sources) == 2 and "/" in node.scope)
    for sums in (by_rank(executions(run, [node])), by_line(run, file, node)):
        shown = linked_to_slices(sums, "a b.json")
        for row, link in zip(shown.to_dict("records"), shown.attrs["links"]["see"], strict=True):
            address = dict(parse_qsl(link.partition("#")[2]))
            assert address["run"] == "a b.json"
            chosen, _ = asked_for(timeline, address["show"])
            assert chosen is not None
            assert (chosen["name"], chosen["end"] - chosen["start"]) == (row["name"], row["longest_ns"])


def test_collectives_are_named_by_their_operator_in_every_format():
    assert operator_of("Default/AllReduce-op534_0") == "Default/AllReduce-op534"
    assert operator_of("stream_36_0_AllReduce-op4542") == operator_of("AllReduce-op4542") == "AllReduce-op4542"
    assert [operator_of(name) for name in ("hcom_allReduce__586_0", "aten::mm", "a/b-op1", "MatMul-op3_extra")] == [""] * 4
    assert search_of("stream_36_0_AllReduce-op4542") == search_of("AllReduce-op4542")
    real = load(MORE / "msprof_export").frame("collectives")["name"].astype(str)
    assert {search_of(name) for name in real} == {r"AllReduce-op534(?!\d)"}


def test_the_first_operator_of_its_kind_is_not_the_tenth():
    graph = graph_of("strategy_mismatch.ir")
    tenth = next(node for node in graph.file.nodes() if node.scope.endswith("-op10"))
    first = tenth.scope.removesuffix("0")
    assert tenth in search_graph(graph, search_of(tenth.scope))
    assert tenth not in search_graph(graph, search_of(first))


def test_a_recording_of_another_job_says_so():
    node = next(node for node in graph_of("control_flow.ir").file.nodes() if "/" in node.scope)
    run = load(data_folder() / "traces" / "torch_npu_2rank")
    rows = executions(run, [node])
    assert rows.empty
    assert by_rank(rows).empty
    assert by_line(run, graph_of("control_flow.ir").file, node).empty
    assert linked_to_slices(by_rank(rows), "x").attrs["links"] == {"see": []}
    assert "it is of another job" in sentences.executed_told(node, rows)
    rows = executions(recorded("control_flow.ir"), [node])
    assert f"ran {len(rows)} times on 2 ranks" in str(sentences.executed_told(node, rows))


def test_a_slice_that_is_named_by_an_operator_leads_to_it_and_others_nowhere():
    run = load(MORE / "msprof_export")
    timeline = open_timeline(run)
    asked = {"mode": "longest", "name": "Default/AllReduce-op534_0", "start": 0.0, "direction": 1}
    found, *_ = filter(None, (walked(timeline, {**asked, "unit": unit.id})["slice"] for unit in timeline.units if unit.rank == 0))
    reply = detailed(timeline, found)
    assert [(label, unquote(link)) for label, link in reply["links"]] == [
        ("Operator in the graph", r"18_graph_ir.ipynb#search=AllReduce-op534(?!\d)")
    ]
    whole = open_timeline(load(data_folder() / "traces" / "torch_npu_2rank"))
    for unit in whole.units:
        found = walked(whole, {"mode": "longest", "unit": unit.id, "name": "", "start": 0.0, "direction": 1})
        assert found["slice"] is None or detailed(whole, found["slice"]).get("links", []) == []
