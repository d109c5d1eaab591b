"""A JSON object with the line of every dotted key; of a program that reads it with Hjson also with comments and commas too many."""

from __future__ import annotations

import json
import re

from perfkit.config.dialects.dialect import Parsed
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
