"""The engine sorts, explains, cuts and survives: whatever the rules say, the list stays true to the step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose import _docs, all_rules, diagnose, to_dict
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from tests.explain.diagnose.made import summaries

RUN = summaries(dict.fromkeys(range(4), 100))


def rule(name, check, **changes):
    plain = Rule(name=name, title=name, needs=frozenset({"steps"}), how_to_collect="record", thresholds=(), check=check)
    return replace(plain, **changes)


def saying(name, cost_ns, part="step", **changes):
    finding = Finding(rule=name, title=name, subject={}, evidence={}, actions=(), cost_ns=cost_ns, part=part)
    return rule(name, lambda case: Verdict((finding,), {"n": 1}), **changes)


def raising(error):
    def check(case):
        raise error

    return check


def test_findings_come_in_the_order_of_their_cost_with_severity_by_share():
    found = diagnose(RUN, only=[saying("a", 3_000_000), saying("b", 30_000_000), saying("c", 1_500_000)]).findings
    assert [(finding.rule, finding.severity) for finding in found] == [("b", "high"), ("a", "medium"), ("c", "low")]
    assert found[0].share_of_step == pytest.approx(0.15)


def test_what_costs_less_than_half_a_percent_is_healthy():
    result = diagnose(RUN, only=[saying("a", 900_000)])
    assert result.findings == ()
    assert [entry.rule for entry in result.healthy] == ["a"]


@given(st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(["step", "computing", "free", "communication"])), max_size=8))
def test_costs_of_one_step_never_sum_to_more_than_the_step(costs):
    found = diagnose(RUN, only=[saying(f"r{at}", cost, part) for at, (cost, part) in enumerate(costs)]).findings
    assert sum(finding.cost_ns for finding in found) <= 200_000_000
    assert sum(finding.cost_ns for finding in found if finding.part == "computing") <= 100_000_000
    assert sum(finding.cost_ns for finding in found if finding.part == "free") == 0


def test_a_rule_that_raises_is_reported_with_its_name_and_the_others_run():
    result = diagnose(RUN, only=[rule("broken", raising(ZeroDivisionError("x"))), saying("a", 3_000_000)])
    assert [(entry.rule, entry.error) for entry in result.failed] == [("broken", "ZeroDivisionError: x")]
    assert [finding.rule for finding in result.findings] == ["a"]


def test_a_missing_table_and_missing_data_are_not_measured_and_not_healthy():
    lacking = saying("a", 1, needs=frozenset({"steps", "kernels"}))
    asking = rule("b", raising(NotMeasuredError("shapes", how_to_collect="record shapes")))
    result = diagnose(RUN, only=[lacking, asking])
    assert [(entry.rule, entry.missing, entry.how_to_collect) for entry in result.not_measured] == [
        ("a", ("kernels",), "record"),
        ("b", ("shapes",), "record shapes"),
    ]
    assert result.healthy == ()


def test_a_symptom_goes_to_the_next_of_what_explains_it():
    cause = saying("cause", 20_000_000, explains=frozenset({"symptom"}))
    result = diagnose(RUN, only=[saying("symptom", 25_000_000), cause])
    assert [(finding.rule, finding.next) for finding in result.findings] == [("cause", ("symptom",))]


def test_a_small_cause_does_not_hide_a_large_symptom():
    cause = saying("cause", 2_000_000, explains=frozenset({"symptom"}))
    assert len(diagnose(RUN, only=[saying("symptom", 25_000_000), cause]).findings) == 2


@pytest.mark.parametrize(("exact_ms", "told"), [(12, "exact"), (25, "exact"), (2, "broad")])
def test_of_two_that_explain_each_other_the_more_exact_stays_unless_it_costs_little(exact_ms, told):
    exact = saying("exact", exact_ms * 1_000_000, explains=frozenset({"broad"}))
    broad = saying("broad", 20_000_000, explains=frozenset({"exact", "another"}))
    assert [finding.rule for finding in diagnose(RUN, only=[exact, broad]).findings] == [told]


@pytest.mark.parametrize(("cost_ns", "told"), [(3_000_000, ["rest", "part"]), (900_000, ["rest"])])
def test_what_a_finding_has_left_out_is_told_beside_it_if_it_is_worth_telling(cost_ns, told):
    def check(case):
        common = {"subject": {}, "evidence": {}, "actions": (), "part": "step"}
        part = Finding(rule="part", title="part", cost_ns=cost_ns, severity="low", **common)
        rest = Finding(rule="rest", title="rest", cost_ns=20_000_000, apart_from=frozenset({"part"}), **common)
        return Verdict((part, rest), {})

    found = diagnose(RUN, only=[rule("rest", check, explains=frozenset({"part"}))]).findings
    assert [finding.rule for finding in found] == told


def test_the_document_has_the_fixed_keys():
    document = to_dict(diagnose(RUN, only=[saying("a", 3_000_000)]))
    assert {"findings", "healthy", "not_measured", "failed"} <= set(document)
    keys = {"rule", "severity", "title", "subject", "evidence", "cost_ns", "share_of_step", "actions", "next"}
    assert set(document["findings"][0]) == keys


def test_limits_of_the_caller_replace_thresholds_and_steps_of_warm_up_are_left_out():
    loads = dict.fromkeys(range(8), 100) | {3: 105}
    (slow,) = [known for known in all_rules() if known.name == "slow-rank"]
    assert len(diagnose(summaries(loads), only=[slow]).findings) == 1
    assert diagnose(summaries(loads), only=[slow], limits={"slow-rank-excess": 0.1}).findings == ()


def test_the_page_of_the_rules_is_made_from_the_rules():
    from pathlib import Path

    written = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert written == _docs.page(), "run: python -m perfkit.explain.diagnose._docs > docs/rules.md"


def test_every_rule_has_needs_a_page_and_a_way_to_collect():
    for known in all_rules():
        assert known.how_to_collect
        assert known.title


def test_a_rule_that_says_the_same_less_exactly_gives_way_whatever_it_costs():
    vague = saying("vague", 50_000_000, symptom_of=frozenset({"exact"}))
    found = diagnose(RUN, only=[saying("exact", 2_000_000), vague]).findings
    assert [finding.rule for finding in found] == ["exact"]
    assert found[0].next == ("vague",)
    assert [finding.rule for finding in diagnose(RUN, only=[vague]).findings] == ["vague"]


def test_the_page_of_the_rules_names_tables_only_where_a_rule_needs_some():
    page = _docs.page()
    assert "Needs ." not in page
    assert page.count("To collect: ") == len(all_rules())
