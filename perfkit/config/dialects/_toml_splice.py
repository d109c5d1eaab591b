"""Changing values of a TOML text in place: statements are found with their spans, and only the addressed ones change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.config.dialects.dialect import Changes, Document
from perfkit.core.errors import InputError

Path = tuple[str, ...]
HEADER = re.compile(r"[ \t]*\[([^\[\]\n]+)\][^\n]*")
KEY = re.compile(r"[ \t]*((?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')(?:[ \t]*\.[ \t]*(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*'))*)[ \t]*=[ \t]*")
PART = re.compile(r"[\w-]+|\"([^\"\n]*)\"|'([^'\n]*)'")
STRINGS = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A header (`value_start` < 0) or a key with its value: spans of the whole lines and of the value."""

    path: Path
    start: int
    end: int
    value_start: int = -1
    value_end: int = -1


def value_text(value: Any) -> str:
    """A value as TOML on one line; texts with a backslash stand in single quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        plain = "'" not in value and value.isprintable()
        return f"'{value}'" if "\\" in value and plain else _basic(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_text(str(key))} = {value_text(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(item) for item in value)}]"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def key_text(key: str) -> str:
    """A key, quoted where it is no bare word."""
    return key if BARE.fullmatch(key) else value_text(key)


def edit(document: Document, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The text of a document with values changed; comments and order stay."""
    return splice(document.text, document.name, changes), ()


def splice(text: str, name: str, changes: Changes) -> str:
    """The text with values replaced, added, or removed where the new value is None. Raises InputError if more would change."""
    before = tomllib.loads(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    for path, value in changes.items():
        text = _changed(text, path, value, newline)
    _check(name, before, tomllib.loads(text), changes)
    return text


def statements(text: str) -> Iterator[Statement]:
    """Headers and keys in order."""
    table: Path = ()
    position = 0
    while position < len(text):
        end = _line_end(text, position)
        if found := HEADER.match(text, position):
            table = _parts(found[1])
            yield Statement(table, position, end)
        elif found := KEY.match(text, position):
            value_end = _value_end(text, found.end())
            end = _line_end(text, value_end)
            yield Statement((*table, *_parts(found[1])), position, end, found.end(), value_end)
        position = end


def _changed(text: str, path: Path, value: Any, newline: str) -> str:
    all_of_them = list(statements(text))
    same = [one for one in all_of_them if one.path == path and one.value_start >= 0]
    if value is not None and same:
        return text[: same[-1].value_start] + value_text(value) + text[same[-1].value_end :]
    below = [one for one in all_of_them if one.path[: len(path)] == path]
    for one in reversed(below):
        text = text[: one.start] + text[one.end :]
    return text if value is None else _added(text, path, value, newline)


def _added(text: str, path: Path, value: Any, newline: str) -> str:
    """A new key after the last one of its table, or in a new table at the end."""
    table, line = path[:-1], f"{key_text(path[-1])} = {value_text(value)}{newline}"
    own: Statement | None = None
    for one in statements(text):
        if (one.value_start < 0 and one.path == table) or (one.value_start >= 0 and own and one.path[: len(table)] == table):
            own = one
        elif own and one.value_start < 0:
            break
    if own:
        lead = "" if text[: own.end].endswith("\n") else newline
        return text[: own.end] + lead + line + text[own.end :]
    gap = newline if not text or text.endswith("\n") else newline * 2
    return f"{text}{gap}[{'.'.join(map(key_text, table))}]{newline}{line}"


def _check(name: str, before: Any, after: Any, changes: Changes) -> None:
    problems = []
    for path, value in changes.items():
        found: Any = after
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found != _plain(value):
            problems.append(f"{'.'.join(path)}: {value!r} would be read as {found!r}")
    problems += [
        f"{'.'.join(path)}: would change though it was not asked for; the file is left alone"
        for path in _differences(before, after)
        if not any(path[: len(place)] == place or place[: len(path)] == path for place in changes)
    ]
    if problems:
        raise InputError(name, problems)


def _differences(before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from _differences(before.get(key), after.get(key), (*path, key))
    elif before != after:
        yield path


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _parts(text: str) -> Path:
    return tuple(next((group for group in found.groups() if group is not None), found[0]) for found in PART.finditer(text))


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def _value_end(text: str, position: int) -> int:
    """Where the value that starts at `position` ends: at the end of its line, outside of brackets and strings; no comment."""
    depth, end = 0, position
    while position < len(text):
        char = text[position]
        if string := STRINGS.match(text, position):
            position = end = string.end()
            continue
        if char in "#\n":
            if depth == 0:
                break
            position = _line_end(text, position) if char == "#" else position + 1
            continue
        depth += (char in "[{") - (char in "]}")
        position += 1
        if not char.isspace():
            end = position
    return end


def _basic(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
    return f'"{escaped}"'
