"""Page 18 without a browser: what it shows of the bundled graphs, and of damaged and hostile ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.charts.spec import split
from perfkit.face.charts.theme import MAX_MARKS
from perfkit.face.panels import _graphs, graph_ir, open_panel
from perfkit.face.widgets.status import NothingYet

START = graph_ir.start()


def shown(**changes):
    return graph_ir.view(graph_ir.compute(replace(START, **changes)))


@pytest.mark.parametrize("path", _graphs.SAMPLES.values())
@pytest.mark.parametrize("around", ["operator", "layer", "layer backward"])
def test_every_sample_is_shown_in_every_picture(path, around):
    answer = shown(graph=str(data_folder() / path), around=around)
    assert answer.text
    for figure in answer.charts.values():
        rows = split(figure.chart).datasets
        assert sum(len(next(iter(columns.values()), [])) for columns in rows.values()) <= MAX_MARKS


def test_the_page_opens_with_the_operator_that_should_not_be():
    result = graph_ir.compute(START)
    assert result.chosen.label == "%56"
    answer = graph_ir.view(result)
    assert "8 of these (48.0 KiB) are not needed" in answer.text
    assert "in_strategy ((2, 4), (1, 4))" in answer.text
    table = answer.tables["communication"].frame
    assert table["verdict"].tolist()[:8] == ["avoidable"] * 8
    assert len(table) == 33


def test_a_recomputation_without_effect_is_where_the_page_opens():
    result = graph_ir.compute(replace(START, graph=_graphs.sample("silu_mul_not_in_effect.ir")))
    assert (result.chosen.op, result.chosen.label) == ("Mul", "%55")
    answer = graph_ir.view(result)
    assert r"Mul is not: add feed_forward\.w2\.reshape" in answer.text
    assert answer.tables["recompute"].frame["in effect"].tolist() == [0, 0, 1, 1]


def test_a_search_finds_by_kind_scope_and_weight():
    result = graph_ir.compute(replace(START, search="w2.*AllGather", show="communication"))
    assert {node.op for node in result.found} == {"AllGather"}
    assert len(result.found) == 2
    assert len(graph_ir.compute(replace(START, show="not expected")).found) == 8
    assert graph_ir.compute(replace(START, search="no such thing")).found == ()


def test_a_search_that_is_no_expression_is_explained():
    with pytest.raises(InputError, match="is no regular expression"):
        graph_ir.compute(replace(START, search="(w2"))


def test_a_search_without_result_still_draws_a_page():
    answer = shown(search="no such thing")
    assert len(answer.tables["operators"].frame) == 0


def test_a_click_puts_an_operator_in_the_middle():
    state = graph_ir.pick(START, "dataflow", {"node": "%66"})
    result = graph_ir.compute(state)
    assert result.chosen.label == "%66"
    details = dict(graph_ir.view(result).tables["operator"].frame.itertuples(index=False, name=None))
    assert details["strategy"] == "((2, 1), (4, 1))"
    assert details["line"] == "strategy_mismatch.ir, line 293"


def test_source_lines_are_shown_where_the_file_has_them():
    state = replace(START, graph=_graphs.sample("control_flow.ir"), search="Switch")
    answer = graph_ir.view(graph_ir.compute(state))
    assert "control_flow.py:12~14" in answer.tables["operators"].frame["source"].iloc[0]
    details = dict(answer.tables["operator"].frame.itertuples(index=False, name=None))
    assert "control_flow.py:12~14" in details["source"]


def test_predicted_times_follow_the_device():
    without = shown(device="none").tables["communication"].frame
    slow, fast = (shown(device=name).tables["communication"].frame for name in ("Ascend-910A", "H100-80GB-SXM"))
    assert "predicted_ns" not in without
    assert (slow["predicted_ns"] > fast["predicted_ns"]).all()


def test_no_file_is_an_empty_page():
    with pytest.raises(NothingYet):
        graph_ir.compute(replace(START, graph=""))


def test_a_damaged_file_shows_its_lines(tmp_path):
    path = tmp_path / "broken.ir"
    path.write_bytes(b"  %0(a) = <img/src=x>(%para1_x)\nwhat is this\n  %1(b) = AllReduce(%0\n")
    answer = shown(graph=str(path))
    assert answer.tables["problems"].frame["line"].tolist() == [2, 3]
    assert "not complete" in answer.notes[0]


def test_the_whole_panel_opens_and_follows_a_row():
    view = open_panel(graph_ir.PANEL)
    view.wait()
    view.on_message({"type": "row", "table": "communication", "row": 2})
    view.wait()
    assert view.state.node == "%207"
