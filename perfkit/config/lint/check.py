"""What a check is: one problem of configurations, environments, code or logs, with an example that has it and one that has not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from perfkit.core.texts import say

Severity = Literal["error", "warning", "information"]
Kind = Literal["config", "config-text", "environment", "code", "log"]

MODEL = """model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
"""
"""The model of the examples whose problem is elsewhere."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "information")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a check sees at one place: the message with its numbers, the line or key, and what to write instead.

    `line` counts from 1; without one the line of `key` is looked up. `severity` and `fix` override those of the check.
    """

    message: str
    key: str = ""
    line: int | None = None
    fix: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One problem that can be seen without running anything.

    `check` gets the subject of its `kind` (`subjects.py`): Config, Text (of a configuration that may not parse, or of a log),
    Environment or Code.
    `why` says what it costs, `fix` what to do. `bad` is the text of a file in which the check must find something, `repair`
    what to replace in it and by what, so that it must not (`good`); both are its test and its documentation.
    `example` is the name such a file has, `source` says where a threshold comes from.
    """

    name: str
    title: str
    kind: Kind
    severity: Severity
    check: Callable[[Any], Iterable[Found]]
    why: str
    fix: str
    bad: str
    repair: tuple[str, str]
    example: str
    source: str = ""

    @property
    def good(self) -> str:
        """The bad example, repaired."""
        return self.bad.replace(*self.repair, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A finding of a check in a file: `where` has `file`, `line` (or None) and `key` (or "")."""

    rule: str
    severity: Severity
    file: str
    line: int | None
    key: str
    message: str
    fix: str
    cell: int | None = None

    @property
    def place(self) -> str:
        """File, cell and line, in short."""
        parts = [Path(self.file).name, f"cell {self.cell}" if self.cell else "", str(self.line or "")]
        return ":".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of a problem; `cell` only in notebooks."""
        where: dict[str, Any] = {"file": self.file, "line": self.line, "key": self.key}
        if self.cell is not None:
            where["cell"] = self.cell
        return {"rule": self.rule, "severity": self.severity, "where": where, "message": self.message, "fix": self.fix}


@dataclass(frozen=True, kw_only=True, slots=True)
class LintReport:
    """All problems, by file and line; how many files of each kind were checked; what was left out and why; silenced problems.

    `failed` names checks that raised, with file and reason: a defect of perfkit, not of the file. `num_hidden` problems were left
    out by their level (`at_least`).
    """

    problems: tuple[Problem, ...]
    checked: dict[str, int] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()
    num_silenced: int = 0
    failed: tuple[tuple[str, str, str], ...] = ()
    num_hidden: int = 0

    def joined(self, other: LintReport) -> LintReport:
        """Both reports as one."""
        checked = {kind: self.checked.get(kind, 0) + other.checked.get(kind, 0) for kind in (*self.checked, *other.checked)}
        return LintReport(
            problems=(*self.problems, *other.problems),
            checked=checked,
            skipped=(*self.skipped, *other.skipped),
            num_silenced=self.num_silenced + other.num_silenced,
            failed=(*self.failed, *other.failed),
            num_hidden=self.num_hidden + other.num_hidden,
        )

    def at_least(self, severity: Severity) -> LintReport:
        """The report with problems of this level and above."""
        kept = SEVERITIES[: SEVERITIES.index(severity) + 1]
        problems = tuple(problem for problem in self.problems if problem.severity in kept)
        return replace(self, problems=problems, num_hidden=self.num_hidden + len(self.problems) - len(problems))

    def told(self) -> tuple[str, ...]:
        """How much was found and the first of it in a sentence, and what is not shown."""
        files = sum(self.checked.values())
        notes = [say("{num} of lower level are not shown.", num=str(self.num_hidden))] if self.num_hidden else []
        if self.num_silenced:
            notes.append(say("{num} are silenced by comments in the files.", num=str(self.num_silenced)))
        if not self.problems:
            nothing = say("Nothing was found in {files}.", files=_number(files, "file"))
            return nothing if files else "There is nothing here that can be checked.", *notes
        errors, warnings, others = (
            _number(self.count(level), word) for level, word in zip(SEVERITIES, ("error", "warning", "note"), strict=True)
        )
        first = next((problem for problem in self.problems if problem.severity != "information"), self.problems[0])
        text = say(
            "{errors}, {warnings} and {others} in {files}. First: {place}, {message}.",
            errors=errors,
            warnings=warnings,
            others=others,
            files=_number(files, "file"),
            place=first.place,
            message=first.message,
        )
        return text, *notes

    def to_frame(self) -> pd.DataFrame:
        """One row a problem: `place`, `level`, `rule`, `what`, `instead`."""
        rows = [(one.place, one.severity, one.rule, one.message, one.fix) for one in self.problems]
        frame = pd.DataFrame(rows, columns=["place", "level", "rule", "what", "instead"])
        frame.attrs = {"title": "By file and line; choose one to see how to write it"}
        return frame

    def left_out(self) -> pd.DataFrame:
        """What was not checked: `file`, `reason`; a check that failed is a defect of perfkit and says so."""
        failed = [(file, f"the check {rule} failed: {reason}; this is a bug of perfkit") for rule, file, reason in self.failed]
        return pd.DataFrame([*self.skipped, *failed], columns=["file", "reason"])

    def count(self, severity: Severity) -> int:
        """How many problems have this severity."""
        return sum(problem.severity == severity for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `perfkit lint --json`."""
        return {
            "problems": [problem.to_dict() for problem in self.problems],
            "checked": dict(self.checked),
            "skipped": [{"file": file, "reason": reason} for file, reason in self.skipped],
            "silenced": self.num_silenced,
            "failed": [{"rule": rule, "file": file, "reason": reason} for rule, file, reason in self.failed],
        }


def _number(count: int, word: str) -> str:
    one, several = _COUNTED[word]
    return say(one if count == 1 else several, num=str(count))


_COUNTED = {
    "file": ("{num} file", "{num} files"),
    "error": ("{num} error", "{num} errors"),
    "warning": ("{num} warning", "{num} warnings"),
    "note": ("{num} note", "{num} notes"),
}
