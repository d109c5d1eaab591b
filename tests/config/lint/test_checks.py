"""Every check finds its own problem in its bad example, and nothing of its own in the good one."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from perfkit.config.lint import Check, all_checks, lint_text

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
