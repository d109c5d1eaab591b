"""Explaining a paste: secrets masked, damage repaired, pieces told apart, each read by its kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.config.dialects.manifests import manifest_of
from perfkit.config.fragments.repair import braced, readable
from perfkit.config.fragments.secrets import masked
from perfkit.config.lint.check import SEVERITIES, Problem
from perfkit.core.discover import constants
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.figure import Figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import joined, say, t, told
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

MAX_CHARACTERS = 1_000_000
COUNTED = ("", "steps", "sequences")
_RULED = re.compile(r"\s*(?:-{3,}|\.{3}|={3,}|\*{3,})\s*")
"""Lines between two documents or two sections, which say nothing themselves."""
COLUMNS = ("part", "kind", "what", "value", "source")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """A paste explained: its parts in their order, lines that are no fragment (`prose`, by number), and what was repaired first."""

    parts: tuple[Part, ...]
    prose: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, by line, errors first."""
        found = [problem for part in self.parts for problem in part.problems]
        return tuple(sorted(found, key=lambda one: (one.line or 0, SEVERITIES.index(one.severity), one.rule)))

    @property
    def table(self) -> pd.DataFrame:
        """All figures: `part` (its line), `kind`, `what`, `value` (text with unit) and `source`."""
        rows = [(part.line, part.kind, figure.name, shown(figure), figure.source) for part in self.parts for figure in part.figures]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "\n".join(_lines(self)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `perfkit explain --json`."""
        return {
            "parts": [
                {
                    "kind": part.kind,
                    "title": part.title,
                    "line": part.line,
                    "belongs": part.belongs or None,
                    "says": list(part.says),
                    "figures": [{"name": one.name, **one.to_dict()} for one in part.figures],
                    "problems": [one.to_dict() for one in part.problems],
                    "corrected": part.corrected or None,
                }
                for part in self.parts
            ],
            "prose": [{"line": line, "text": text} for line, text in self.prose],
            "notes": list(self.notes),
        }


def shown(found: Figure) -> str:
    """A figure for people; counts are whole numbers."""
    if found.value is not None and found.unit in COUNTED and found.value == int(found.value):
        return f"{int(found.value)} {found.unit}".rstrip()
    return found.text(absent="not known")


def all_kinds() -> tuple[FragmentKind, ...]:
    """All kinds in the order in which they are asked."""
    return tuple(sorted(constants("perfkit.explain.fragments.kinds", "FRAGMENT"), key=lambda kind: (kind.order, kind.name)))


def explain_fragment(text: str, plan: Plan | None = None, *, name: str = "pasted text") -> Explained:
    """What a pasted text means: configuration keys, environment, launch lines, logs, graphs, tables, formulas, in any mixture.

    With the `plan` of a project keys are put into it and computed there. Values of secrets are masked before anything reads them.
    Raises InputError for a text that is empty or has more than a million characters.
    """
    if not text.strip():
        raise InputError(name, ["there is nothing in it"])
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            name, [f"has {len(text)} characters; a fragment has at most {MAX_CHARACTERS}. Load a file with perfkit.load"]
        )
    manifest = manifest_of(text)
    shown, num_secrets = masked(manifest.placed)
    read = readable(shown)
    shown, num_torn = masked(read.text)  # of names that invisible characters had torn
    num_secrets += num_torn
    repaired = braced(shown)
    notes = (
        [say("secrets masked, of which the value is neither kept nor shown: {number}", number=num_secrets)] if num_secrets else []
    )
    if manifest.script != text:
        notes.append(say("a manifest of containers, read as the script that they run"))
    if manifest.unknown:
        notes.append(manifest.told())
    parts: list[Part] = []
    prose: list[tuple[int, str]] = []
    for kind, piece in _pieces(repaired.text, replace(Piece(text="", name=name), plan=plan)):
        if kind is None:
            prose += [(piece.line + offset, line) for offset, line in enumerate(piece.text.split("\n")) if line.strip()]
        else:
            parts.append(replace(_part(kind, piece), line=piece.line))
    prose = [one for one in prose if not parts or not _RULED.fullmatch(one[1])]
    return Explained(parts=tuple(parts), prose=tuple(prose), notes=(*notes, *read.notes, *repaired.notes))


def _part(kind: FragmentKind, piece: Piece) -> Part:
    """The piece read by its kind; one that its reader refuses is part of something."""
    try:
        return kind.read(piece)
    except (InputError, NotMeasuredError) as error:
        why = joined(error.problems, "; ") if isinstance(error, InputError) else str(error)
        problem = piece.problem("cut-off", "information", why, fix="paste all of it")
        return Part(kind=kind.name, title=say("part of {kind}", kind=kind.title), problems=(problem,))


def _pieces(text: str, empty: Piece) -> Iterator[tuple[FragmentKind | None, Piece]]:
    """Stretches of lines of one kind; blank lines and lines that are indented below a piece belong to it."""
    kinds = all_kinds()
    whole = next((kind for kind in kinds if kind.order == 0 and kind.claims(text)), None)
    if whole is not None:
        yield whole, replace(empty, text=text)
        return
    kind: FragmentKind | None = None
    lines: list[str] = []
    first, indent = 1, 0
    for number, line in enumerate(text.split("\n"), 1):
        held = kind is not None and bool(lines) and kind.holds("\n".join(lines), line)
        found = kind if held else _claimed(kinds, line)
        depth, remark = len(line) - len(line.lstrip()), line.lstrip().startswith("#")
        inside = kind is not None and (not line.strip() or remark or (found is None and depth > indent))
        if inside or (found is kind and lines and (held or kind is None or not kind.alone)):
            lines.append(line)
            continue
        if any(one.strip() for one in lines):
            yield kind, replace(empty, text="\n".join(lines).rstrip(), line=first)
        kind, lines, first, indent = found, [line], number, depth
    if any(one.strip() for one in lines):
        yield kind, replace(empty, text="\n".join(lines).rstrip(), line=first)


def _claimed(kinds: tuple[FragmentKind, ...], line: str) -> FragmentKind | None:
    return next((kind for kind in kinds if kind.order and kind.claims(line)), None) if line.strip() else None


def _lines(explained: Explained) -> Iterator[str]:
    """All of it in the language of this process."""
    yield from map(told, explained.notes)
    for part in explained.parts:
        yield told(say("line {line}: {change}", line=str(part.line), change=part.title))
        if part.belongs:
            yield "  " + told(say("belongs: {place}", place=part.belongs))
        yield from (f"  {told(line)}" for line in part.says)
        yield from (f"  {told(figure.name)}: {shown(figure)} ({told(figure.source)})" for figure in part.figures)
        for problem in part.problems:
            place = told(say("line {line}: {change}", line=str(problem.line), change="")) if problem.line else ""
            yield f"  {t(problem.severity)}: {place}{told(problem.message)}" + (f"; {told(problem.fix)}" if problem.fix else "")
        if part.corrected:
            yield "  " + t("corrected") + ":"
            yield from (f"    {line}" for line in part.corrected.rstrip("\n").split("\n"))
    if explained.prose:
        lines = ", ".join(str(line) for line, _ in explained.prose[:10]) + (", ..." if len(explained.prose) > 10 else "")
        yield told(say("no fragment that perfkit knows, lines: {lines}", lines=lines))
