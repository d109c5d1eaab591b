"""A lint report on a terminal: one line a problem with its place, then what to do, then the counts; in the language of pages."""

from __future__ import annotations

from typing import TextIO

from perfkit.config.lint import LintReport
from perfkit.core import texts
from perfkit.core.texts import t, told
from perfkit.face.cli._screen import Style, Styled, say

SEVERITIES: dict[str, Style] = {"error": "red", "warning": "yellow", "information": "cyan"}


def print_problems(report: LintReport, out: TextIO) -> None:
    """Print all problems by file and line, what was left out, and the counts."""
    for problem in report.problems:
        place = ":".join(
            str(part) for part in (problem.file, f"cell {problem.cell}" if problem.cell else "", problem.line or "") if part
        )
        named = Styled(t(problem.severity), SEVERITIES[problem.severity])
        say(out, f"{place}: ", named, f" {problem.rule}: {told(problem.message)}")
        if problem.fix:
            say(out, f"    {told(problem.fix)}")
    for file, reason in report.skipped:
        say(out, texts.say("{file}: left out, it {reason}", file=file, reason=reason))
    for rule, file, reason in report.failed:
        failed = "{file}: the check {rule} failed ({reason}); this is a bug of perfkit"
        say(out, texts.say(failed, file=file, rule=rule, reason=reason))
    counts = texts.say(
        "{errors} errors, {warnings} warnings, {notes} notes",
        errors=str(report.count("error")),
        warnings=str(report.count("warning")),
        notes=str(report.count("information")),
    )
    files = ", ".join(f"{count} {kind}" for kind, count in sorted(report.checked.items())) or "nothing"
    silenced = texts.say("; {num} silenced", num=str(report.num_silenced)) if report.num_silenced else ""
    say(out, texts.say("{counts} (checked: {files}{silenced})", counts=counts, files=files, silenced=silenced))
