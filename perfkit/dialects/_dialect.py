"""What a configuration dialect is, and the document that a reader hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.spec.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A configuration file as it was found: its name, its text, the parsed values, and what is worth telling the user.

    `unknown` lists keys that no reader uses, `defaulted` the spec fields that the file leaves out with the value taken.
    """

    name: str
    text: str
    dialect: str = ""
    values: Any = None
    unknown: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    path: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """A configuration dialect: `detect` looks at the text, `read` gives a plan whose `document` is the annotated document."""

    name: str
    title: str
    looks_for: str
    detect: Callable[[Document], bool]
    read: Callable[[Document], Plan]
