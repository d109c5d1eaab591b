"""TOML as dialects read it: its values, and the line of every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from perfkit.config.dialects.dialect import Parsed
from perfkit.core.errors import InputError

TABLE, KEY = re.compile(r"\s*\[+\s*([\w.\"-]+)\s*\]+"), re.compile(r"\s*([\w.\"-]+)\s*=")


def parse(text: str, name: str) -> Parsed:
    """Values and lines of a TOML document. Raises InputError for anything else."""
    try:
        return Parsed(tomllib.loads(text), _lines(text))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(name, [f"not TOML: {error}"]) from error


def _lines(text: str) -> Mapping[str, int]:
    """The line of every dotted key, as far as one key stands on one line."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := TABLE.match(line):
            table = found[1].replace('"', "")
            lines.setdefault(table, number)
        elif found := KEY.match(line):
            name = found[1].replace('"', "")
            lines.setdefault(f"{table}.{name}" if table else name, number)
    return lines
