"""Lesson: the blocks of a three-hour class as data/class/lesson.toml has them: when, what to say and to ask, which traps."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfkit.core.resources import data_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A part of the lesson, `from_min` to `to_min` after its begin.

    `group` names the exercises' group that is open in it, `exercises` those for all and `spare` those for the fast, `pages` what
    is on the projector, `say` the points to make, `ask` the question to the class, `traps` what the answers will show.
    """

    title: str
    from_min: int
    to_min: int
    pages: Sequence[str]
    say: Sequence[str]
    group: str = ""
    exercises: Sequence[str] = ()
    spare: Sequence[str] = ()
    ask: str = ""
    traps: Sequence[str] = ()

    @property
    def minutes(self) -> int:
        """How long the block is."""
        return self.to_min - self.from_min


@cache
def blocks() -> tuple[Block, ...]:
    """The blocks in their order."""
    table: dict[str, Any] = tomllib.loads((data_folder() / "class" / "lesson.toml").read_text(encoding="utf-8"))
    return tuple(Block(**block) for block in table["block"])
