"""What holds for every rule: silent on a healthy run, not measured without data, and pointing at pages and rules that exist."""

import ast
import importlib
from pathlib import Path

import pytest

import perfkit
from perfkit.explain.diagnose import all_rules
from perfkit.record.format import Sink
from tests.explain.diagnose.made import healthy, judged, lacks, run_of

RULES = all_rules()
ROOT = Path(perfkit.__file__).parents[1]
PAGES = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_healthy_run_gives_no_finding_but_numbers_or_what_is_missing(rule):
    result = judged(rule, healthy())
    assert result.findings == result.failed == ()
    assert [entry.rule for entry in (*result.healthy, *result.not_measured)] == [rule.name]
    assert all(entry.evidence for entry in result.healthy)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_run_without_data_is_not_measured(rule):
    assert lacks(rule, run_of(Sink()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_points_at_exists(rule):
    source = Path(str(importlib.import_module(rule.check.__module__).__file__)).read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword) and node.arg == "next"]
    named = {part.value for call in calls for part in ast.walk(call.value) if isinstance(part, ast.Constant)}
    named |= set(rule.explains | rule.symptom_of)
    assert {name for name in named if isinstance(name, str)} <= PAGES | {known.name for known in RULES} | {"reduction"}


def test_every_rule_answers_a_question_of_the_documentation():
    text = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in text] == []
