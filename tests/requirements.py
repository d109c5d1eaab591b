"""The requirements of the guides: where each lives and which test proves it; `python -m tests.requirements` writes the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST, DOCUMENT = ROOT / "tests" / "requirements.txt", ROOT / "docs" / "requirements.md"
HEAD = """# Requirements of the guides

What the four tuning guides ask of a workbench, by number: where it lives and which tests prove it. {met} of {count} are met,
{partly} in part, {none} not. Written by `python -m tests.requirements` from `tests/requirements.txt`; a test fails when a place or
a test is lost.

| | asked for | where | proved by | not met |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the list; `lacks` says what is not met."""

    number: str
    what: str
    where: tuple[str, ...]
    tests: tuple[str, ...]
    lacks: str


def requirements() -> Iterator[Requirement]:
    """All requirements in their order."""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("R"):
            number, what, where, tests, lacks = (cell.strip() for cell in line.split("|"))
            yield Requirement(number, what, _paths(where), _paths(tests), lacks)


def document() -> str:
    """The page as text."""
    found = list(requirements())
    none = sum(not one.where for one in found)
    partly = sum(bool(one.lacks) for one in found) - none
    head = HEAD.format(count=len(found), met=len(found) - partly - none, partly=partly, none=none)
    rows = (f"| {one.number} | {one.what} | {_shown(one.where)} | {_shown(one.tests)} | {one.lacks} |" for one in found)
    return head + "\n".join(rows) + "\n"


def _paths(cell: str) -> tuple[str, ...]:
    return () if cell == "-" else tuple(cell.split())


def _shown(paths: tuple[str, ...]) -> str:
    return "<br>".join(f"`{path}`" for path in paths) or "-"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
