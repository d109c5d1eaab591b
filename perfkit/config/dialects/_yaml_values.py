"""Values as YAML text: one line each in flow style, or indented blocks for sections; a YAML 1.1 loader reads the value back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

INDENT = "  "
PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
NO_PLAIN_KEYS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


def flow(value: Any) -> str:
    """A value on one line: True, 4, [4, 0], "58GB". A text in quotes of its own is taken as it stands."""
    if isinstance(value, bool):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(item) for item in value)}]"
    raise TypeError(f"{type(value).__name__} has no form in YAML")


def block(values: Mapping[str, Any], indent: str = "", newline: str = "\n") -> str:
    """A mapping as lines, sections indented by two spaces; every line ends with `newline`."""
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{key_text(key)}:{newline}{block(value, indent + INDENT, newline)}")
        else:
            lines.append(f"{indent}{key_text(key)}: {flow(value)}{newline}")
    return "".join(lines)


def nested(settings: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Values by key path as a tree of dicts, in the order given."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        level = tree
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = value
    return tree


def new_file(header: str, settings: Mapping[tuple[str, ...], Any]) -> str:
    """A file of the values by key path that are stated, below the comment `header`."""
    return header + block(nested({path: value for path, value in settings.items() if value is not None}))


def key_text(key: object) -> str:
    """A key as YAML text, quoted where it would not be a plain word."""
    text = str(key)
    return text if PLAIN_KEY.fullmatch(text) and text.lower() not in NO_PLAIN_KEYS else _quoted(text)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    # YAML 1.1 reads a number with an exponent only with a point before it and a sign behind it.
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _quoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text
    if "\\" in text and text.isprintable():
        doubled = text.replace("'", "''")
        return f"'{doubled}'"
    escaped = "".join(f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
    return f'"{escaped}"'
