"""A JSON object with the line of every dotted key; of a program that reads it with Hjson also with comments and commas too many."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects.dialect import Changes, Parsed
from perfkit.core.errors import InputError

_TEXT = r'("(?:[^"\\\n]|\\[^\n])*"?)'
_REMARK = re.compile(_TEXT + r"|//[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(_TEXT + r"|,(?=\s*[}\]])")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\n]')


def parse(text: str, name: str) -> Parsed:
    """Values and lines of a JSON object. Raises InputError for anything else."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(name, [f"not JSON: {error}"]) from error
    if not isinstance(values, dict):
        raise InputError(name, ["the JSON must be an object of names and values"])
    return Parsed(values, _lines(text))


def plain(text: str) -> str:
    """A text without its comments and the commas behind last members, each by as many spaces, so that all places stay."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        bare = _REMARK.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
        return _LAST_COMMA.sub(lambda found: found[1] or " ", bare)
    return text


def edit(text: str, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The object with values changed by key path, indented as it was found."""
    bare = plain(text)
    values = json.loads(bare)
    indent = re.search(r"\n([ \t]+)\"", text)
    layout: dict[str, Any] = {"indent": indent[1] if indent else None, "ensure_ascii": False}
    tail = text[len(text.rstrip()) :]
    same = json.dumps(values, **layout) == text.strip()
    notes = ("the JSON is laid out anew" + ("" if text == bare else ", without its comments"),)
    return json.dumps(_changed(values, changes), **layout) + tail, () if same else notes


def new(changes: Changes) -> str:
    """A new object of values by key path."""
    return json.dumps(_changed({}, changes), indent=2) + "\n"


def _changed(values: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values))
    for path, value in changes.items():
        place = found
        for key in path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        if value is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = value
    return found


def _lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    line, key, inside = 1, "", list[str]()
    for found in _TOKEN.finditer(text):
        match found[0]:
            case "\n":
                line += 1
            case "{":
                inside.append(key)
            case "}":
                del inside[-1:]
            case _ if found[2]:
                key = ".".join([*filter(None, inside[-1:]), found[1]])
                lines[key] = line
                line += found[0].count("\n")
    return lines
