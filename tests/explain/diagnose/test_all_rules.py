"""What holds for every rule: silent on a healthy run, not measured without data, and pointing at pages and rules that exist."""

import ast
import importlib
import operator
import re
from pathlib import Path

import pytest

import perfkit
from perfkit.explain.diagnose import all_rules, diagnose
from perfkit.record.format import Sink
from tests.explain.diagnose.made import healthy, lacks, run_of

RULES = all_rules()
ROOT = Path(perfkit.__file__).parents[1]
PAGES = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_a_healthy_run_gives_no_finding_but_of_every_rule_numbers_or_what_is_missing():
    result = diagnose(healthy())
    assert result.findings == result.failed == ()
    assert sorted(entry.rule for entry in (*result.healthy, *result.not_measured)) == sorted(rule.name for rule in RULES)
    assert [entry.rule for entry in result.healthy if not entry.evidence] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_run_without_data_is_not_measured(rule):
    assert lacks(rule, run_of(Sink()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_points_at_exists(rule):
    source = Path(str(importlib.import_module(rule.check.__module__).__file__)).read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword) and node.arg == "next"]
    compared = {
        id(part) for call in calls for test in ast.walk(call.value) if isinstance(test, ast.Compare) for part in ast.walk(test)
    }
    parts = [part for call in calls for part in ast.walk(call.value) if isinstance(part, ast.Constant) and id(part) not in compared]
    named = {part.value for part in parts}
    named |= set(rule.explains | rule.symptom_of)
    assert {name for name in named if isinstance(name, str)} <= PAGES | {known.name for known in RULES} | {"reduction"}


def test_every_rule_answers_a_question_of_the_documentation():
    text = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in text] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_threshold_that_a_rule_uses_is_told_with_it(rule):
    module = importlib.import_module(rule.check.__module__)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    used = {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func).endswith("case.limit")}
    told = {operator.attrgetter(name)(module) for name in used - {"LEAST_SHARE", "HIGH_SHARE", "MEDIUM_SHARE"}}
    assert told <= set(rule.thresholds)


THRESHOLDS = sorted({known for rule in RULES for known in rule.thresholds}, key=str)


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda known: known.name)
def test_every_threshold_has_a_reason(threshold):
    who, _, why = threshold.origin.partition(": ")
    assert who in {"chosen", "guide"} or "MindInsight" in threshold.origin or "(1993)" in who
    assert threshold.origin not in {"chosen", "guide"}
    assert why or "MindInsight" in threshold.origin


LISTED = re.compile("MOST_|FEW_TOLD|SHOWN|NUM_SUSPECTS")
"""How many of something are looked at or told, which decides no verdict."""


@pytest.mark.parametrize("path", sorted((ROOT / "perfkit" / "explain" / "diagnose").rglob("*.py")), ids=lambda path: path.stem)
def test_every_number_that_decides_has_its_reason_beside_it(path: Path):
    text = path.read_text(encoding="utf-8")
    body, lines = ast.parse(text).body, text.splitlines()
    numbers = [
        (node.targets[0].id, place, lines[node.lineno - 1])
        for place, node in enumerate(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if all(
            isinstance(part, ast.Constant | ast.BinOp | ast.operator | ast.UnaryOp | ast.unaryop) for part in ast.walk(node.value)
        )
        if not isinstance(getattr(node.value, "value", 0), str)
    ]
    told = [name for name, place, line in numbers if "#" in line or isinstance(body[place + 1], ast.Expr)]
    assert [name for name, *_ in numbers if name not in told and not LISTED.match(name)] == []


def test_no_threshold_has_two_values():
    assert len(THRESHOLDS) == len({known.name for known in THRESHOLDS})
