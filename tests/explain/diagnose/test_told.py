"""A diagnosis in words and tables: nothing of it is lost, and what stands in a table is what `perfkit diagnose --json` says."""

from __future__ import annotations

import pytest

from perfkit import __version__
from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import Finding, diagnose, told
from perfkit.explain.diagnose.reported import bug_report, subject_text
from perfkit.record.load import load
from tests.explain.simulated import simulated

PATH = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture(scope="module")
def run():
    return load(PATH)


@pytest.fixture(scope="module")
def found(run):
    return diagnose(run)


def test_every_verdict_stands_in_a_table(found):
    missing = told.missing_table(found)
    rules = [rule for listed in missing["would_answer"] for rule in listed.split(", ")]
    assert sorted(rules) == sorted(entry.rule for entry in found.not_measured)
    assert len(missing) < len(rules)
    assert (missing["how_to_collect_it"].str.len() > 10).all()
    assert told.healthy_table(found)["rule"].tolist() == [entry.rule for entry in found.healthy]
    assert len(told.failed_table(found)) == len(found.failed)
    for finding in found.findings:
        assert len(told.evidence_table(finding)) == len(finding.evidence)
        assert set(finding.actions) <= set(told.advice_table(finding)["what_to_do"])
        assert finding.title in told.finding_told(finding)


def test_whom_a_finding_concerns_is_said_in_words_and_cut_where_it_is_long():
    assert subject_text({"ranks": (3, 5), "links": ((0, 1),), "steps": ()}) == "ranks 3, 5; links 0-1"
    assert subject_text({"ranks": range(10)}) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    kernel = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
    assert subject_text({"operators": (kernel, "Cast")}, width=24) == "operators void at::nat…atorBase&)>, Cast"
    assert subject_text({}) == subject_text({"ranks": ()}) == "the whole run"


def test_names_lead_back_to_their_findings(found):
    names = told.finding_names(found.findings)
    assert [told.finding_of(found, {"finding": name}) for name in names] == list(found.findings)
    assert told.finding_of(found, None) is told.finding_of(found, {"finding": "no such rule"}) is None
    assert told.briefly(found.findings[0]) in told.findings_told(found, names)[0]
    assert told.findings_told(found, (), "done")[0].endswith("none of them is done.")


def test_a_finding_that_is_medium_for_too_few_steps_says_so():
    few = diagnose(load(data_folder() / "traces" / "torch_npu_2rank"))
    names = told.finding_names(few.findings)
    costs = dict(zip(names, few.findings, strict=True))
    assert [(name, costs[name].severity) for name in names[:1]] == [("late-rank", "medium")]
    assert told.findings_told(few, names)[3].startswith("Medium, not high: 1 step was judged")
    assert costs[names[-1]].severity == "low"
    assert not any(note.startswith("Medium") for note in told.findings_told(few, names[-1:]))


def test_a_run_without_a_finding_says_so():
    found = diagnose(load(data_folder() / "traces" / "cluster_16card"))
    assert told.findings_told(found, ()) == (
        "Nothing to change was found. Rules that judged it: 4; that lack what was not recorded: 46, see below.",
    )
    assert "slow-rank" in set(told.healthy_table(found)["rule"])


def test_the_bug_report_stands_alone(run, found):
    finding = found.findings[0]
    report = bug_report(run, found, finding, version=__version__)
    for piece in (__version__, finding.rule, finding.title, "Thresholds:", "Files:", "Level1", "Not measured:"):
        assert piece in report
    assert all(f"{name} = " in report for name in finding.evidence)
    assert str(data_folder()) not in report


def test_a_slow_rank_is_the_first_finding_and_stands_beside_its_peers():
    run = load(simulated("slow_rank:5:1.4"))
    found = diagnose(run)
    assert told.finding_names(found.findings)[0] == "slow-rank"
    assert any("simulated" in note for note in found.told())
    parts = told.parts_beside(run, found.findings[0])
    assert 5 in told.ranks_of(found.findings[0])
    assert {5} < set(parts["rank"])
    assert parts["step"].nunique() == 1


def test_the_step_that_a_finding_names_is_the_one_shown(run):
    step = int(run.frame("step_parts")["step"].min())
    finding = Finding(rule="r", title="t", subject={"steps": (step,), "ranks": (1,)}, evidence={}, actions=())
    parts = told.parts_beside(run, finding)
    assert set(parts["step"]) == {step}
    assert set(parts["rank"]) == {0, 1}
