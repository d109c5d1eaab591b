"""Reading foreign keys: typed getters over one section of a config, with every bad value noted and reading going on.

A `Reading` collects what one file gives: problems (with file line, key, value), keys used, defaults taken, notes. A `Section` is a
table of the file at a key path. A getter returns its default after a problem, so that all problems of a file are found; nothing is
built from a reading that has problems.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from perfkit.config.dialects.dialect import Document, Parsed
from perfkit.config.dialects.key_effects import left_over
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

T = TypeVar("T")
SHOWN = 60
HIGHEST = 10**9  # larger counts are typing errors, and loops over them would not end
ABSENT = ("auto", "None", "none", "null", "")


@dataclass(slots=True)
class Reading:
    """What was found while one document is read; `lines` gives the line of a dotted key, `names` its name there.

    `adapted` is set where adapters are counted.
    """

    document: Document
    lines: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    sections: set[str] = field(default_factory=set)
    defaulted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    adapted: bool = False

    @classmethod
    def of(cls, document: Document, parsed: Parsed) -> tuple[Reading, Section]:
        """The reading of a document, and the whole of it as a section."""
        reading = cls(document, lines=parsed.lines, notes=list(parsed.duplicates))
        return reading, Section(reading, "", parsed.values)

    def where(self, key: str) -> str:
        """The place of a key for a message: its line, if known, and its dotted name."""
        line, name = self.lines.get(key), self.names.get(key, key)
        return name if line is None else f"line {line}, {name}"

    def problem(self, key: str, text: str) -> None:
        """Note that the value of `key` cannot be used."""
        self.problems.append(f"{self.where(key)}: {text}")

    def note(self, text: str) -> None:
        """Note something that the user should know though the file can be used."""
        if text not in self.notes:
            self.notes.append(text)

    def default(self, name: str, value: object) -> None:
        """Note that the file leaves a field out and what is taken for it."""
        self.defaulted.append(f"{name} = {value}")

    def build(self, part: Callable[[], T]) -> T | None:
        """The value of `part`, or None after noting the problems that it raises."""
        before = len(self.problems)
        try:
            value = part()
        except InputError as error:
            if len(self.problems) == before:
                self.problems += [f"{error.subject}: {problem}" for problem in error.problems]
            return None
        return value if len(self.problems) == before else None

    def stop_if_problems(self) -> None:
        """Raise InputError with everything noted, if anything was."""
        if self.problems:
            raise InputError(self.document.name, dict.fromkeys(self.problems))

    def annotated(self, dialect: str, values: Any, read: Iterable[str] = ()) -> Document:
        """The document with what was found; every key that was neither asked for nor among `read` is sorted by what it decides."""
        left = left_over(dialect, values, self.used - self.sections | set(read), adapted=self.adapted)
        return replace(
            self.document,
            dialect=dialect,
            values=values,
            unknown=left.unknown,
            unread=left.unread,
            defaulted=tuple(self.defaulted),
            notes=tuple(self.notes),
        )

    def plan(self, **parts: Any) -> Plan:
        """The plan of all parts; raises InputError with the problems noted and, if there are none, with those between the parts."""
        self.stop_if_problems()
        try:
            return Plan(**parts)
        except InputError as error:
            raise InputError(self.document.name, error.problems) from error


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a config file at the key path `name` ("" is the whole file)."""

    reading: Reading
    name: str
    values: Mapping[str, Any]

    def path(self, key: str) -> str:
        """The dotted name of a key of this section."""
        return f"{self.name}.{key}" if self.name else key

    def has(self, *keys: str) -> str:
        """The first of `keys` that has a value, or an empty text; null and placeholders such as "auto" are no values."""
        for key in keys:
            value = self.values.get(key)
            if value is not None and not (isinstance(value, str) and value in ABSENT):
                return key
        return ""

    def raw(self, *keys: str) -> Any:
        """The value of the first of `keys` that has one, as the file gives it; None if none has."""
        for key in keys:
            if key in self.values:
                self.reading.used.add(self.path(key))
        found = self.has(*keys)
        return self.values[found] if found else None

    def asked(self, *keys: str) -> None:
        """Take keys as read that decide nothing beside the others of the file."""
        self.reading.used.update(self.path(key) for key in keys)

    def positive_int(self, *keys: str, default: int) -> int:
        """A whole number of at least 1."""
        return self.integer(*keys, default=default, low=1)

    def integer(self, *keys: str, default: int, low: int = 0) -> int:
        """A whole number of at least `low`; 8.0 counts as 8, a text or a flag does not."""
        value = self.raw(*keys)
        if value is None:
            return default
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._bad(keys, value, "a whole number", default)
        if value < low:
            return self._bad(keys, value, f"a whole number of at least {low}", default)
        return value if value <= HIGHEST else self._bad(keys, value, f"at most {HIGHEST}", default)

    def number(self, *keys: str, default: float) -> float:
        """A finite number greater than 0."""
        value = self.raw(*keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
            return self._bad(keys, value, "a number greater than 0", default)
        return float(value)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or False; 0 and 1 are taken too, as MindFormers writes them."""
        value = self.raw(*keys)
        if value is None:
            return default
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        return self._bad(keys, value, "True or False", default)

    def word(self, *keys: str, default: str, allowed: Iterable[str] = ()) -> str:
        """A text, one of `allowed` if that is given."""
        value, words = self.raw(*keys), tuple(allowed)
        if value is None:
            return default
        if not isinstance(value, str):
            return self._bad(keys, value, "a text", default)
        if words and value not in words:
            return self._bad(keys, value, f"one of {', '.join(words)}", default)
        return value

    def section(self, key: str) -> Section:
        """The section `key` of this one; empty if the file has none."""
        value = self.raw(key)
        self.reading.sections.add(self.path(key))
        if value is not None and not isinstance(value, Mapping):
            self._bad((key,), value, "a section with keys of its own", None)
            value = None
        return Section(self.reading, self.path(key), value or {})

    def only(self, known: Iterable[str]) -> None:
        """Note every key that is not one of `known` as a problem, with the nearest known one."""
        names = list(known)
        for key in self.values:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
                self.reading.problem(self.path(str(key)), f"unknown key {shown(key)}; {hint}")

    def missing(self, key: str, wanted: str) -> None:
        """Note that a key without a sensible default is missing."""
        self.reading.problem(self.path(key), f"is missing; {wanted} is needed")

    def _bad(self, keys: tuple[str, ...], value: object, wanted: str, default: T) -> T:
        text = f"{shown(value)} must be {wanted}"
        if isinstance(value, str) and "$" in value:
            text = f"{shown(value)} names a variable that the file does not set or decide; {wanted} is needed"
        self.reading.problem(self.path(self.has(*keys) or keys[0]), text)
        return default


def shown(value: object) -> str:
    """A foreign value for a message: as Python writes it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
