"""A lint report on a terminal: one line a problem with its place, then what to do, then the counts."""

from __future__ import annotations

from typing import TextIO

from perfkit.config.lint import LintReport
from perfkit.record.listing import printable


def print_problems(report: LintReport, out: TextIO) -> None:
    """Print all problems by file and line, what was left out, and the counts."""
    for problem in report.problems:
        place = ":".join(
            str(part) for part in (problem.file, f"cell {problem.cell}" if problem.cell else "", problem.line or "") if part
        )
        print(f"{printable(place)}: {problem.severity} {problem.rule}: {printable(problem.message)}", file=out)
        if problem.fix:
            print(f"    {printable(problem.fix)}", file=out)
    for file, reason in report.skipped:
        print(f"{printable(file)}: left out, it {reason}", file=out)
    for rule, file, reason in report.failed:
        print(f"{printable(file)}: the check {rule} failed ({printable(reason)}); this is a bug of perfkit", file=out)
    counts = (
        ", ".join(f"{report.count(severity)} {severity}s" for severity in ("error", "warning"))
        + f", {report.count('information')} notes"
    )
    files = ", ".join(f"{count} {kind}" for kind, count in sorted(report.checked.items())) or "nothing"
    silenced = f"; {report.num_silenced} silenced" if report.num_silenced else ""
    print(f"{counts} (checked: {files}{silenced})", file=out)
