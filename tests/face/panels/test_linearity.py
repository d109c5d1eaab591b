"""Linearity over runs: typed runs, the guide's example, runs that are none."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import linearity
from perfkit.face.widgets.status import NothingYet
from perfkit.project.sample import demo


def test_the_guides_example_keeps_89_86_percent():
    answer = linearity.view(linearity.compute(linearity.State()))
    assert "From 1 to 64 devices 89.86 %" in answer.text
    assert "good" in answer.text


def test_a_node_as_the_base_gives_the_same():
    table = linearity.compute(linearity.State(runs="8: 37560; 64: 270_000")).table
    assert float(table["linearity"].iloc[-1]) == pytest.approx(0.8986, abs=5e-5)


def test_every_piece_that_is_no_run_is_listed():
    with pytest.raises(InputError) as error:
        linearity.parse_runs("8 37560, a: b, 64: 270000, 0x8: 1")
    assert len(error.value.problems) == 3


def test_no_runs_are_an_empty_panel():
    with pytest.raises(NothingYet):
        linearity.parse_runs(" , ")


def test_rounds_of_a_project_are_runs(tmp_path, monkeypatch):
    demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "demo"))
    table = linearity.compute(linearity.State(source="rounds")).table
    assert table["num_devices"].tolist()[0] == 8
    assert float(table["tokens_per_s"].iloc[0]) == 1860 * 8
