"""A lint report on a terminal: one line a problem with its place, then what to do, then the counts."""

from __future__ import annotations

from typing import TextIO

from perfkit.config.lint import LintReport
from perfkit.face.cli._screen import Style, Styled, say

SEVERITIES: dict[str, Style] = {"error": "red", "warning": "yellow", "information": "cyan"}


def print_problems(report: LintReport, out: TextIO) -> None:
    """Print all problems by file and line, what was left out, and the counts."""
    for problem in report.problems:
        place = ":".join(
            str(part) for part in (problem.file, f"cell {problem.cell}" if problem.cell else "", problem.line or "") if part
        )
        say(out, f"{place}: ", Styled(problem.severity, SEVERITIES[problem.severity]), f" {problem.rule}: {problem.message}")
        if problem.fix:
            say(out, f"    {problem.fix}")
    for file, reason in report.skipped:
        say(out, f"{file}: left out, it {reason}")
    for rule, file, reason in report.failed:
        say(out, f"{file}: the check {rule} failed ({reason}); this is a bug of perfkit")
    counts = (
        ", ".join(f"{report.count(severity)} {severity}s" for severity in ("error", "warning"))
        + f", {report.count('information')} notes"
    )
    files = ", ".join(f"{count} {kind}" for kind, count in sorted(report.checked.items())) or "nothing"
    silenced = f"; {report.num_silenced} silenced" if report.num_silenced else ""
    say(out, f"{counts} (checked: {files}{silenced})")
