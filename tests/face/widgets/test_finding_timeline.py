"""The evidence of a finding on the timeline: nothing before it is asked for, then its ranks and the slice that shows it."""

from __future__ import annotations

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.diagnose import Finding, diagnose
from perfkit.explain.diagnose.told import finding_names
from perfkit.face.widgets.finding_place import place_of
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.timelines.finding import FindingTimeline, finding_timeline
from perfkit.record.load import load

PATH = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    page_state().set({"run": str(PATH)})


@pytest.fixture(scope="module")
def run() -> Run:
    return load(PATH)


def about(**subject: tuple) -> Finding:
    return Finding(rule="r", title="t", subject=subject, evidence={}, actions=())


def test_a_finding_shows_at_the_longest_collective_of_its_group(run):
    group = str(run.frame("collectives")["group"].iloc[0])
    place = place_of(run, about(groups=(group,)))
    assert place is not None
    rows = run.frame("collectives", ranks=[0])
    longest = rows.iloc[int(rows["duration_ns"].argmax())]
    assert (place.name, place.at_ns) == (longest["name"], longest["start_ns"] + run.clock[0])
    assert place.end_ns - place.start_ns == 3 * longest["duration_ns"]


def test_the_rank_of_a_finding_comes_first_and_another_stands_beside_it(run):
    assert place_of(run, about(ranks=(1,))).ranks == (1, 0)
    assert place_of(run, about(links=((1, 0),))).ranks == (1, 0)
    assert place_of(run, about(ranks=(7,))).ranks == (0, 1)


def test_a_finding_of_a_step_shows_that_step(run):
    step = run.frame("steps", ranks=[0]).iloc[0]
    place = place_of(run, about(steps=(int(step["step"]),)))
    assert (place.start_ns, place.end_ns - place.start_ns) == (step["start_ns"] + run.clock[0], step["duration_ns"])


def test_nothing_is_read_before_it_is_asked_for():
    view = finding_timeline()
    assert isinstance(view, FindingTimeline)
    assert (view.status["state"], view.timeline) == ("empty", None)
    assert view.status["action"]


def test_it_opens_at_the_finding_and_follows_the_next_one(run):
    findings = diagnose(run).findings
    names = finding_names(findings)
    page_state().set({"finding": names[0]})
    view = finding_timeline()
    view.on_message({"type": "action"})
    timeline = view.wait()
    first = place_of(run, findings[0])
    assert (view.setup["goto"]["start"], view.setup["goto"]["end"]) == (str(first.start_ns), str(first.end_ns))
    assert view.setup["link"].startswith("14_timeline")
    other = next(number for number, each in enumerate(findings) if place_of(run, each).start_ns != first.start_ns)
    page_state().set({"finding": names[other]})
    assert view.wait() is timeline
    place = place_of(run, findings[other])
    assert view.setup["goto"]["start"] == str(place.start_ns)
    if place.name:
        assert view.setup["goto"]["slice"]["name"] == place.name
        assert view.setup["goto"]["slice"]["start"] == timeline.offset(place.at_ns)
    view.on_message({"type": "view", "start": "1", "end": "2"})
    assert page_state().get("from") == ""


def test_every_finding_selects_a_slice_or_the_lanes_of_its_rank(run):
    findings = diagnose(run).findings
    view = finding_timeline(docked=True)
    for name, finding in zip(finding_names(findings), findings, strict=True):
        page_state().set({"finding": name})
        timeline, goto = view.wait(), view.setup["goto"]
        units = goto["pins"] or [goto["slice"]["unit"]]
        assert {timeline.unit(unit).rank for unit in units} == {place_of(run, finding).ranks[0]}


def test_a_docked_one_opens_when_a_finding_is_chosen(run):
    page_state().set({"finding": None})
    view = finding_timeline(docked=True)
    assert (view.status["state"], view.status["docked"]) == ("empty", True)
    findings = diagnose(run).findings
    page_state().set({"finding": finding_names(findings)[0]})
    assert view.wait().run.name == run.name
    place = place_of(run, findings[0])
    assert (view.setup["goto"]["start"], view.setup["goto"]["end"]) == (str(place.start_ns), str(place.end_ns))
