"""A lint report as SARIF 2.1.0, which code hosts and editors show beside the lines."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from perfkit.config.lint._engine import PLACE, SYNTAX, UNREADABLE, all_checks
from perfkit.config.lint.check import LintReport, Problem

LEVELS = {"error": "error", "warning": "warning", "information": "note"}


def to_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """The report as one SARIF run; `version` is that of perfkit."""
    rules = [
        {
            "id": check.name,
            "shortDescription": {"text": check.title},
            "fullDescription": {"text": check.why},
            "help": {"text": f"{check.fix}\n\nInstead of:\n{check.bad}\nwrite:\n{check.good}"},
            "defaultConfiguration": {"level": LEVELS[check.severity]},
        }
        for check in all_checks()
    ]
    rules += [{"id": name, "shortDescription": {"text": "A file that cannot be parsed"}} for name in (SYNTAX, UNREADABLE)]
    rules.append({"id": PLACE, "shortDescription": {"text": "A key stands without the section that it belongs to"}})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "perfkit", "version": version, "rules": rules}},
                "results": [_result(problem) for problem in report.problems],
            }
        ],
    }


def _result(problem: Problem) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(PurePath(problem.file).as_posix())}}
    if problem.line is not None and problem.cell is None:
        place["region"] = {"startLine": problem.line}
    text = problem.message if not problem.fix else f"{problem.message}. {problem.fix}"
    return {
        "ruleId": problem.rule,
        "level": LEVELS[problem.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
