"""What a plan, a run, an estimate and a diagnosis show of themselves in a notebook and a terminal, and draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

import perfkit
from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.resources import data_folder
from perfkit.core.source import Source
from perfkit.face.charts.spec import AnyChart
from tests import two_ranks


def plan() -> Any:
    read = perfkit.read_config(data_folder() / "case13b" / "round5.yaml")
    return replace(read, hardware=catalog.hardware_named("Ascend-910B2"))


def run() -> Any:
    return perfkit.load(two_ranks.by_tables())


OBJECTS: dict[str, Callable[[], Any]] = {
    "Plan": plan,
    "Run": run,
    "Estimate": lambda: perfkit.estimate(plan()),
    "Breakdown": lambda: perfkit.estimate(plan()).breakdown,
    "Diagnosis": lambda: perfkit.diagnose(run()),
    "Ledger": lambda: perfkit.diagnose(run()).ledger,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_shows_itself_draws_itself_and_is_a_frame(name: str):
    thing = OBJECTS[name]()
    assert type(thing).__name__ == name
    data, _ = DisplayFormatter().format(thing)
    assert {"text/plain", "text/html"} <= set(data)
    assert "<table>" in data["text/html"]
    assert "<script" not in data["text/html"]
    assert "http" not in data["text/html"]
    assert 1 <= data["text/plain"].count("\n") < 120
    assert isinstance(thing.plot(), AnyChart)
    frame = thing.to_frame()
    assert len(frame) > 0
    assert {"plot", "to_frame"} <= set(dir(thing))
    assert type(thing).__doc__
    assert type(thing).to_frame.__doc__
    assert "<" not in repr(thing).splitlines()[0] or name == "Plan"
    assert len(repr(thing)) < 20_000


def test_the_numbers_are_those_of_the_object():
    found = OBJECTS["Estimate"]()
    assert found.told()[0] in repr(found)
    data, _ = DisplayFormatter().format(found)
    assert found.told()[0] in data["text/html"]
    assert "does not fit" in data["text/plain"] if found.fits is False else "fits" in data["text/plain"]
    diagnosis = OBJECTS["Diagnosis"]()
    assert diagnosis.to_frame()["cost_ns"].tolist() == [one.cost_ns for one in diagnosis.findings]
    assert diagnosis.ledger.to_frame()["ns"].sum() == diagnosis.ledger.waterfall()["ns"].sum()
    said = plan().to_frame().set_index(["part", "field"])["value"]
    assert said["parallel", "pipeline_parallel_size"] == plan().parallel.pipeline_parallel_size


def test_names_of_a_recording_are_text():
    hostile = Breakdown("ns", {"computing/<img src=x onerror=alert(1)>": 5, "free": 0}, Source("measured", "<b>"))
    data, _ = DisplayFormatter().format(hostile)
    assert "<img" not in data["text/html"]
    assert "<b>" not in data["text/html"]
    empty, _ = DisplayFormatter().format(Breakdown("ns", {}, Source("measured", "a")))
    assert "<table>" in empty["text/html"]
