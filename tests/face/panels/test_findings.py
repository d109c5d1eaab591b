"""Page 20 without a browser: the ranking, the evidence, plan and dismiss in the log, the bug report, a simulated fault."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import Finding, diagnose
from perfkit.face.panels import _finding_links, findings
from perfkit.face.panels.findings import State
from perfkit.face.widgets.finding_place import place_of
from perfkit.face.widgets.status import NothingYet
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from tests.face.panels.simulated import simulated

TWO_RANKS = State(run=str(data_folder() / "traces" / "torch_npu_2rank"))
CLUSTER = State(run=str(data_folder() / "traces" / "cluster_16card"))


def shown(state: State):
    return findings.view(findings.compute(state))


@pytest.fixture
def project(tmp_path, monkeypatch):
    made = create_project(tmp_path / "project", "tuning", goal_value=2000.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    log = ExperimentLog(made.folder)
    log.set_project("tuning")
    log.start("Baseline", "what the training does before anything is changed")
    return made


def test_the_ranking_is_that_of_the_diagnosis():
    answer = shown(TWO_RANKS)
    frame = answer.tables["findings"].frame
    expected = diagnose(perfkit.load(TWO_RANKS.run))
    assert frame["cost_ns"].tolist() == [finding.cost_ns for finding in expected.findings]
    assert frame["cost_ns"].dropna().is_monotonic_decreasing
    assert frame["cost_ns"].dropna().sum() <= expected.step_ns
    assert expected.findings[0].title in answer.text
    told = [rule for rules in answer.tables["not_measured"].frame["would answer"] for rule in rules.split(", ")]
    assert sorted(told) == sorted(entry.rule for entry in expected.not_measured)
    assert len(answer.tables["not_measured"].frame) < len(told)
    assert (answer.tables["not_measured"].frame["how to collect it"].str.len() > 10).all()


def test_a_chosen_finding_opens_its_own_evidence_and_pages():
    names = shown(TWO_RANKS).tables["findings"].frame["finding"]
    state = findings.pick(TWO_RANKS, "findings", {"finding": names.iloc[-1]})
    answer = shown(state)
    finding = diagnose(perfkit.load(state.run)).findings[-1]
    assert answer.tables["evidence"].title == f"Evidence of {names.iloc[-1]}"
    assert len(answer.tables["evidence"].frame) == len(finding.evidence)
    assert finding.actions[0] in set(answer.tables["actions"].frame["what"])
    assert findings.pick(state, "healthy", {"rule": "jitter"}) == state


def test_a_healthy_run_says_so_with_numbers_and_has_nothing_to_answer():
    answer = shown(CLUSTER)
    assert answer.text.startswith("Nothing was found in cluster_16card.")
    assert "slow-rank" in set(answer.tables["healthy"].frame["rule"])
    assert "findings" not in answer.charts
    assert answer.code == ()
    with pytest.raises(InputError, match="no open finding"):
        findings.plan(CLUSTER)


def test_a_planned_finding_is_in_the_log_with_the_next_hypothesis(project):
    name = shown(TWO_RANKS).tables["findings"].frame["finding"].iloc[0]
    assert findings.plan(TWO_RANKS).startswith("Planned: the hypothesis is in the log of round 0")
    log = ExperimentLog(project.folder)
    planned = [row for row in log.findings() if row["status"] == "planned"]
    assert [row["rule"] for row in planned] == [name]
    assert log.show("json")["rounds"][0]["runs"][0]["kind"] == "reported"
    draft = log.events()[-1]["detail"]
    assert draft["title"] == f"Act on {name}"
    assert draft["change"]
    left = shown(TWO_RANKS).tables["findings"].frame["finding"].tolist()
    assert name not in left
    assert shown(replace(TWO_RANKS, show="planned")).tables["findings"].frame["finding"].tolist() == [name]


def test_dismissing_needs_a_reason_and_keeps_it(project):
    with pytest.raises(InputError, match="reason"):
        findings.dismiss(TWO_RANKS)
    assert ExperimentLog(project.folder).findings() == []
    findings.dismiss(replace(TWO_RANKS, reason="the link is shared with another job"))
    answer = shown(replace(TWO_RANKS, show="all"))
    assert answer.tables["findings"].frame["status"].tolist().count("dismissed") == 1
    assert any("shared with another job" in note for note in answer.notes)


def test_without_an_open_round_a_plan_starts_the_next_one(project):
    ExperimentLog(project.folder).decide(0, "revert", "it was slower than the parent in every step")
    assert findings.plan(TWO_RANKS) == "Round 1 is started with this hypothesis."
    row = ExperimentLog(project.folder).show("json")["rounds"][1]
    assert "Without it a step of" in row["hypothesis"]
    assert shown(replace(TWO_RANKS, show="planned")).tables["findings"].frame.shape[0] == 1


def test_all_findings_are_saved_once(project):
    count = len(diagnose(perfkit.load(TWO_RANKS.run)).findings)
    assert findings.save(TWO_RANKS) == findings.save(TWO_RANKS)
    assert len(ExperimentLog(project.folder).findings(0)) == count


def test_the_bug_report_stands_alone():
    report = shown(TWO_RANKS).code[1].text
    finding = diagnose(perfkit.load(TWO_RANKS.run)).findings[0]
    for piece in (perfkit.__version__, finding.rule, finding.title, "Thresholds:", "Files:", "Level1", "Not measured:"):
        assert piece in report
    assert all(f"{name} = " in report for name in finding.evidence)
    assert str(data_folder()) not in report


def test_links_lead_to_pages_that_exist_with_recording_and_rank():
    links = _finding_links.finding_links()
    links.follow({"run": TWO_RANKS.run, "finding": "host-bound"})
    hrefs = [link["href"] for link in links.content["links"]]
    assert hrefs
    assert all("run=" in href for href in hrefs)
    on_timeline = [href for href in hrefs if href.startswith("14_timeline")]
    assert len(on_timeline) == 1
    start, end = (int(re.search(rf"{name}=(-?\d+)", on_timeline[0])[1]) for name in ("from", "to"))
    assert end > start
    links.follow({"run": CLUSTER.run})
    assert links.content["links"] == []
    links.follow({"run": "/nowhere/at/all"})
    assert links.content["links"] == []


def test_a_simulated_slow_rank_is_the_first_finding_and_drawn_beside_its_peers():
    answer = shown(State(run=simulated("slow_rank:5:1.4")))
    frame = answer.tables["findings"].frame
    assert frame["finding"].iloc[0] == "slow-rank"
    assert frame["subject"].iloc[0].startswith("ranks 5")
    assert "about rank 5" in answer.charts["evidence"].title
    assert any("simulated" in note for note in answer.notes)


def test_nothing_open_is_an_empty_page():
    with pytest.raises(NothingYet):
        findings.compute(State(run=""))


def test_the_window_of_a_finding_holds_its_longest_operator():
    run = perfkit.load(simulated("slow_rank:5:1.4"))
    kernels = run.frame("kernels", ranks=[5])
    name = str(kernels["name"].iloc[0])
    named = kernels[kernels["name"] == name]
    longest = named.iloc[int(named["duration_ns"].to_numpy().argmax())]
    finding = Finding(rule="r", title="t", subject={"ranks": (5,), "operators": (name,)}, evidence={}, actions=())
    place = place_of(run, finding)
    start, end = place.start_ns, place.end_ns
    begin = int(longest["start_ns"]) + run.clock.get(5, 0)
    assert start <= begin
    assert begin + int(longest["duration_ns"]) <= end
    whole = Finding(rule="r", title="t", subject={}, evidence={}, actions=())
    assert place_of(run, whole) is not None
