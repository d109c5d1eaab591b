"""What a kind of fragment is, the piece of text that it reads, and the part of an explanation that it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit.config.lint.check import Problem, Severity
from perfkit.core.figure import Figure
from perfkit.core.spec.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of pasted text of one kind: `line` is its first line in the paste, `plan` that of the project, if there is one."""

    text: str
    line: int = 1
    name: str = "pasted text"
    plan: Plan | None = None

    def problem(
        self, rule: str, severity: Severity, message: str, *, line: int | None = None, key: str = "", fix: str = ""
    ) -> Problem:
        """A problem of this piece; `line` counts from its start."""
        place = None if line is None else line + self.line - 1
        return Problem(rule=rule, severity=severity, file=self.name, line=place, key=key, message=message, fix=fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one piece of a paste is and means.

    It holds where the piece belongs, what it says, what follows in figures, what is wrong, and the corrected text where something
    was repaired or misplaced.
    """

    kind: str
    title: str
    line: int = 1
    belongs: str = ""
    says: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    problems: tuple[Problem, ...] = ()
    corrected: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FragmentKind:
    """A kind of fragment.

    `claims` says whether a line is one of it, `holds` whether lines of other kinds inside it are its own
    (JSON, a function), given the text so far and the next line; `read` explains a piece. Of two that claim a line, the one with
    the lower `order` has it. Of a kind that stands `alone` every claimed line begins a piece.
    """

    name: str
    title: str
    looks_for: str
    order: int
    claims: Callable[[str], bool]
    read: Callable[[Piece], Part]
    holds: Callable[[str, str], bool] = lambda text, line: False
    alone: bool = False
