"""Fields: typed reading of one JSON document that notes every problem with its place instead of stopping at the first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError

MAX_FILE_BYTES = 16 * 2**20
_MISSING = object()


class Fields:
    """One object of the document; its problems go to the list that all objects of the document share."""

    def __init__(self, values: Any, place: str, problems: list[str]) -> None:
        self.place, self.problems = place, problems
        self._values = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            self._wrong(place, values, "an object")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, low: int = 0, high: int = 10**18) -> int:
        """A whole number from `low` to `high`."""
        value = self._values.get(name, _MISSING)
        if (value is _MISSING or value is None) and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._wrong(self._path(name), value, f"a whole number from {low} to {high}")
            return max(low, 1)
        return value

    def word(self, name: str, allowed: Iterable[str] = (), default: str | None = None) -> str:
        """A text, one of `allowed` if any are given."""
        value, words = self._values.get(name, default), tuple(allowed)
        if not isinstance(value, str) or (words and value not in words):
            self._wrong(self._path(name), value, f"one of {', '.join(words)}" if words else "a text")
            return words[0] if words else ""
        return value

    def table(self, name: str) -> tuple[tuple[int, ...], ...] | None:
        """A list of lists of whole numbers; None if the field is absent or null."""
        if not self.has(name):
            return None
        value = self._values[name]
        if isinstance(value, list) and all(isinstance(row, list) and all(type(cell) is int for cell in row) for row in value):
            return tuple(tuple(row) for row in value)
        self._wrong(self._path(name), value, "a list with a list of whole numbers for each chunk")
        return None

    def row(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None if the field is absent or null."""
        if not self.has(name):
            return None
        value = self._values[name]
        if isinstance(value, list) and all(type(cell) is int for cell in value):
            return tuple(value)
        self._wrong(self._path(name), value, "a list of whole numbers")
        return None

    def part(self, name: str) -> Fields | None:
        """A nested object; None if the field is absent or null."""
        return Fields(self._values[name], self._path(name), self.problems) if self.has(name) else None

    def parts(self, name: str) -> list[Fields]:
        """A list of objects with at least one entry."""
        value = self._values.get(name)
        if not isinstance(value, list) or not value:
            self._wrong(self._path(name), value, "a list of objects with at least one entry")
            return []
        return [Fields(entry, f"{self._path(name)}[{index}]", self.problems) for index, entry in enumerate(value)]

    def named_parts(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The objects of an object by name."""
        value = self._values.get(name)
        if not isinstance(value, dict) or not value:
            self._wrong(self._path(name), value, "an object with at least one entry")
            return
        for key, entry in value.items():
            yield key, Fields(entry, f"{self._path(name)}.{key}", self.problems)

    def _path(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _wrong(self, place: str, value: Any, need: str) -> None:
        where, is_missing = place or "the document", value is _MISSING or value is None
        self.problems.append(
            f"{where} is missing; {need} is needed" if is_missing else f"{where} = {_short(value)}; {need} is needed"
        )


def read_document(path: str | Path, formats: Iterable[str], text: str | None = None) -> dict[str, Any]:
    """The JSON object in a file ("-" is standard input) whose `format` is one of `formats`; raises InputError.

    With `text` that is read instead, and `path` only names it.
    """
    known = tuple(formats)
    text = _text(path) if text is None else text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), [f"is not JSON: {error}"]) from error
    found = document.get("format") if isinstance(document, dict) else None
    if found not in known:
        raise InputError(str(path), [f"format = {_short(found)}; a case file has format {' or '.join(map(repr, known))}"])
    return dict(document)


def _text(path: str | Path) -> str:
    try:
        if str(path) == "-":
            return sys.stdin.read(MAX_FILE_BYTES)
        if Path(path).stat().st_size > MAX_FILE_BYTES:
            raise InputError(str(path), [f"is larger than {MAX_FILE_BYTES} bytes; a case file is small"])
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), [f"cannot be read: {error}"]) from error


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
