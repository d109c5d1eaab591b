"""Every check finds its own problem in its bad example, and nothing of its own in the good one."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import perfkit.config.lint as lint_room
from perfkit.config.lint import Check, all_checks, lint_text
from perfkit.core.texts import told

WORDS = re.compile(r"(?<![\w./_-])[a-z]{2,}(?:,? [a-z]{2,}){2,}")
"""Three English words and more that stand together; terms have two."""
CALLED = re.compile(r"[\w.]+ ?=")
OF_OTHERS = ("plan-invalid", "key-not-counted")
"""Checks whose messages are those of whoever reads the file, or say what a table of keys says (`data/key_effects.toml`)."""
KINDS = {"config-text": "config"}


def kinds(check: Check) -> list[str]:
    return [KINDS.get(check.kind, check.kind)]


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_the_bad_example_has_the_problem_on_a_line(check):
    report = lint_text(check.example, check.bad, kinds(check))
    found = [problem for problem in report.problems if problem.rule == check.name]
    assert found, [problem.rule for problem in report.problems]
    assert all(problem.message for problem in found)
    assert report.failed == ()


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_the_good_example_has_not(check):
    report = lint_text(check.example, check.good, kinds(check))
    assert [problem for problem in report.problems if problem.rule == check.name] == []
    assert report.failed == ()
    assert sum(report.checked.values()) > 0


def test_names_are_those_of_the_modules():
    package = importlib.import_module("perfkit.config.lint.checks")
    modules = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    for name in modules:
        assert importlib.import_module(f"perfkit.config.lint.checks.{name}").CHECK.name == name.replace("_", "-")


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_a_check_says_why_and_what_to_do(check):
    assert check.why.endswith(".")
    assert check.fix
    assert check.title[0].isupper()
    assert check.bad != check.good


def test_megatrons_profile_is_judged_by_its_own_options():
    words = (
        "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 1 --vocab-size 1000 --profile"
    )
    for window, rules in (
        ("--profile-step-start 10 --profile-step-end 12", set()),
        ("--profile-step-start 2 --profile-step-end 4", {"profile-start-compile"}),
        ("--profile-step-start 10 --profile-step-end 30", {"profile-window-long"}),
    ):
        found = {
            one.rule
            for one in lint_text("run.sh", f"torchrun pretrain_gpt.py {words} --tensor-model-parallel-size 2 {window}").problems
        }
        assert {rule for rule in found if rule.startswith("profile-")} == rules


def test_no_sentence_with_a_value_in_it_is_one_that_cannot_be_told_in_another_language():
    """A sentence with values is made by `say`, which keeps its form; a formatted one cannot be looked up."""
    wrong = []
    for file in sorted(Path(lint_room.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Found"):
            for word in (word for word in call.keywords if word.arg in ("message", "fix")):
                for text in (node for node in ast.walk(word.value) if isinstance(node, ast.JoinedStr)):
                    form = "".join(part.value if isinstance(part, ast.Constant) else "0" for part in text.values)
                    wrong += [(file.name, form)] if WORDS.search(CALLED.sub("", form)) else []
    assert wrong == []


@pytest.mark.parametrize("check", [check for check in all_checks() if check.name not in OF_OTHERS], ids=lambda check: check.name)
def test_what_is_found_is_told_in_chinese(check):
    report = lint_text(check.example, check.bad, kinds(check))
    texts = [text for one in report.problems if one.rule == check.name for text in (one.message, one.fix)]
    left = {text: WORDS.findall(told(text, "zh")) for text in (*texts, check.fix)}
    assert {text: found for text, words in left.items() if (found := [one for one in words if one not in check.bad])} == {}
