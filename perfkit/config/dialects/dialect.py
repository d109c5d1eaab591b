"""What a configuration dialect is, the document that a reader hands on, and the text that a writer gives."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

MARK = "\ufeff"

Changes = Mapping[tuple[str, ...], Any]
"""New values by key path; options without sections have paths of one key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A configuration file as it was found: its name, its text, the parsed values, and what is worth telling the user.

    `unread` are keys that decide time or memory but no part of a plan, each with what it decides, `unknown` keys of which that is
    not known; what is in neither is read or has no effect (`key_effects`). `defaulted` are the spec fields that the file leaves
    out with the value taken, `is_open` the names in the text of those that are to be solved (`perfkit.predict.unstated`). `marked`
    says that the file starts with a byte order mark, which `text` leaves out, and `held` are texts of files that it brings along,
    by their paths.
    """

    name: str
    text: str
    dialect: str = ""
    values: Any = None
    unknown: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    defaulted: tuple[str, ...] = ()
    is_open: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    path: Path | None = None
    marked: bool = False
    write: Callable[..., Written] | None = None
    held: Mapping[str, str] = field(default_factory=dict)

    def came_with(self, named: str) -> str | None:
        """The text of a file that came along, by its path, else by the last part of it if only one has that.

        Commands name files from folders of their own.
        """
        if named in self.held:
            return self.held[named]
        alike = [text for path, text in self.held.items() if path.rpartition("/")[2] == named.rpartition("/")[2]]
        return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A configuration as a writer gives it; nothing is on disk yet.

    `before` is the text that was changed, empty for a new file. `lost` names every field of the plan that the text cannot express
    or that reads back differently, with both values; `notes` is what else the user should know.
    """

    dialect: str
    name: str
    text: str
    before: str = ""
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    marked: bool = False
    source: Path | None = None

    def diff(self) -> str:
        """The changed lines as a unified diff; empty if nothing changes."""
        before, after = (text.replace("\r\n", "\n").splitlines() for text in (self.before, self.text))
        lines = difflib.unified_diff(before, after, fromfile=self.name if self.before else "nothing", tofile=self.name, lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def to_bytes(self) -> bytes:
        """The file's content; unchanged text gives the bytes that were read."""
        return ((MARK if self.marked else "") + self.text).encode("utf-8", "surrogatepass")

    def save(self, target: str | Path) -> Path:
        """Write the file. Raises InputError if `target` is the file that was read: an input is never changed."""
        file = Path(target)
        if self.source is not None and file.exists() and self.source.exists() and file.samefile(self.source):
            raise InputError(str(target), ["this is the file that was read, which is never changed; give another name"])
        try:
            file.write_bytes(self.to_bytes())
        except OSError as error:
            raise InputError(str(target), [f"the file cannot be written: {error.strerror}"]) from error
        return file


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says before it is a plan: nested values, the line of every dotted key, and its duplicate keys as sentences."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    duplicates: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """A configuration dialect.

    `detect` looks at the text, `read` gives a plan whose `document` is the annotated document, and `parse` what a text (with the
    name of its file) says also where it makes no plan. `settings` gives what a plan says by key path, `edit` changes such values
    in the text of a document, `new` makes a text of settings. `sizes` says which dotted keys state what checks compare; without it
    they look at the plan alone. `launched_with` are options and variables of what starts a file that its plan reads as keys. One
    that `yields` gives way where another one recognises a text too.
    """

    name: str
    title: str
    looks_for: str
    detect: Callable[[Document], bool]
    read: Callable[[Document], Plan]
    settings: Callable[[Plan], dict[tuple[str, ...], Any]]
    edit: Callable[[Document, Changes], tuple[str, tuple[str, ...]]]
    new: Callable[[Changes], str]
    suffix: str
    parse: Callable[[str, str], Parsed]
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    launched_with: tuple[str, ...] = ()
    yields: bool = False

    @property
    def language(self) -> str:
        """The language that its text is coloured as."""
        return {".yaml": "yaml", ".toml": "toml", ".json": "json", ".py": "python"}.get(self.suffix, "sh")
