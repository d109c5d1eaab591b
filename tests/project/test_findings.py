"""Findings in the project's log: planned, dismissed with a reason, saved once, and what is listed afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.told import action_told, briefly, finding_names
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.findings import ALL, SHOWN, answer, answers, dismissals, findings_kept, ranked
from perfkit.project.verdict import verdict
from perfkit.record.load import load

PATH = str(data_folder() / "traces" / "torch_npu_2rank")


@pytest.fixture(scope="module")
def run():
    return load(PATH)


@pytest.fixture(scope="module")
def found(run):
    return diagnose(run)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentLog:
    made = create_project(tmp_path / "project", "tuning", goal_value=2000.0)
    monkeypatch.setenv("PERFKIT_PROJECT", str(made.folder))
    log = ExperimentLog(made.folder)
    log.set_project("tuning")
    log.start("Baseline", "what the training does before anything is changed")
    return log


def listed(run, found, show: str = "open") -> list[str]:
    return ranked(found, answers(run, PATH), show)["finding"].tolist()


def test_a_planned_finding_is_in_the_log_with_the_next_hypothesis(log, run, found):
    name = finding_names(found.findings)[0]
    said = answer(run, found, PATH, finding=found.findings[0], status="planned")
    assert said.startswith("Planned: the hypothesis is in the log of round 0")
    assert [row["rule"] for row in log.findings() if row["status"] == "planned"] == [name]
    assert log.show("json")["rounds"][0]["runs"][0]["kind"] == "reported"
    draft = log.events()[-1]["detail"]
    assert draft["title"] == f"Act on {name}"
    assert draft["change"]
    assert listed(run, found, "planned") == [name]


def test_every_finding_is_listed_under_one_status_and_all_under_all(log, run, found):
    answer(run, found, PATH, finding=found.findings[0], status="planned")
    answer(run, found, PATH, finding=found.findings[-1], status="done")
    each = [name for status in SHOWN if status != ALL for name in listed(run, found, status)]
    assert sorted(each) == sorted(listed(run, found, ALL)) == sorted(finding_names(found.findings))


@pytest.mark.parametrize("status", ["dismissed", "done"])
def test_the_verdict_begins_with_what_is_left_to_do(log, run, found, status):
    assert len(found.findings) > 1
    for finding in found.findings:
        judged = verdict(run, diagnosis=found, made=answers(run, PATH))
        left = list(judged.left.values())
        assert left[0] is finding
        assert briefly(finding) in judged.told()[0]
        assert finding.actions[0] in action_told(found, left)
        answer(run, found, PATH, finding=finding, status=status, reason="the link is shared with another job")
    judged = verdict(run, diagnosis=found, made=answers(run, PATH))
    assert judged.left == {}
    for text in (judged.told()[0], action_told(found, [])):
        assert text.endswith("very finding was dismissed or is done: page 20 lists them.")


def test_a_planned_finding_is_still_what_to_change_first(log, run, found):
    answer(run, found, PATH, finding=found.findings[0], status="planned")
    assert next(iter(verdict(run, diagnosis=found, made=answers(run, PATH)).left.values())) is found.findings[0]


def test_dismissing_needs_a_reason_and_keeps_it(log, run, found):
    with pytest.raises(InputError, match="reason"):
        answer(run, found, PATH, finding=found.findings[0], status="dismissed")
    assert log.findings() == []
    answer(run, found, PATH, finding=found.findings[0], status="dismissed", reason="the link is shared with another job")
    made = answers(run, PATH)
    assert ranked(found, made, ALL)["status"].tolist().count("dismissed") == 1
    assert [text.endswith("because the link is shared with another job") for text in dismissals(made)] == [True]


def test_an_answer_to_nothing_lists_all_that_is_missing(log, run, found):
    with pytest.raises(InputError) as refused:
        answer(run, found, PATH, finding=None, status="")
    assert len(refused.value.problems) == 2
    assert log.findings() == []


def test_without_an_open_round_a_plan_starts_the_next_one(log, run, found):
    log.decide(0, "revert", "it was slower than the parent in every step")
    assert answer(run, found, PATH, finding=found.findings[0], status="planned") == "Round 1 is started with this hypothesis."
    assert "Without it a step of" in log.show("json")["rounds"][1]["hypothesis"]
    assert len(listed(run, found, "planned")) == 1


def test_all_findings_are_saved_once(log, run, found):
    assert findings_kept(run, found, PATH) == findings_kept(run, found, PATH)
    assert len(log.findings(0)) == len(found.findings)


def test_without_a_project_every_finding_is_open(tmp_path, monkeypatch, run, found):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "nothing"))
    assert listed(run, found) == list(finding_names(found.findings))
    (tmp_path / "perfkit.toml").write_text("name = [")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    assert json.dumps(dict(answers(run, PATH))) == "{}"
