"""Words of a launch script with their variables put in; nothing is executed.

What is not known here stays as it is written, with its `$`: variables that are not set, arguments of the script, what a command
prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perfkit.config.dialects._shell_sums import computed
from perfkit.config.dialects._shell_syntax import expansion_end

Value = str | tuple[str, ...]
"""A variable: a text, or the words of an array."""

_MAX_DEPTH, _MAX_CHARS, _MAX_TEXT, _MAX_DIGITS = 10, 10_000, 50_000, 100
_PLAIN = re.compile(r"\$(\w+|[#@*])")
_BRACED = re.compile(r"(#?)(\w+|[#@*])(?:\[([@*]|\d+)\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_BARE = re.compile(r"(?<![\w$])([A-Za-z_]\w*)")
_STANDS = re.compile(r"[^$`]+")
_UNQUOTED = re.compile(r"[^$`'\"\\]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def expanded(text: str, variables: Mapping[str, Value], depth: int = 0) -> str:
    """A text with its variables and sums put in; what is long (`_MAX_TEXT`) or would grow so (`_MAX_CHARS`) stays as it is."""
    if "$" not in text or depth > _MAX_DEPTH or len(text) > _MAX_TEXT:
        return text
    found: list[str] = []
    position = length = 0
    while position < len(text):
        if length > max(_MAX_CHARS, len(text)):
            return text
        if stands := _STANDS.match(text, position):
            end = stands.end()
            found.append(stands[0])
        elif (end := expansion_end(text, position)) > position:
            found.append(_replaced(text[position:end], variables, depth))
        elif plain := _PLAIN.match(text, position):
            end = plain.end()
            value = _value(plain[1], None, variables)
            found.append(plain[0] if value is None else value)
        else:
            end = position + 1
            found.append(text[position])
        length += len(found[-1])
        position = end
    return "".join(found) if length <= max(_MAX_CHARS, len(text)) else text


def unquoted(text: str, put_in: Callable[[str], str]) -> str:
    """A word without its quotes; `put_in` replaces what a shell would: all but what stands in single quotes."""
    found: list[str] = []
    position = start = 0

    def flush(end: int) -> None:
        found.append(put_in(_ESCAPED.sub(_escaped, text[start:end])))

    while position < len(text):
        if plain := _UNQUOTED.match(text, position):
            position = plain.end()
            continue
        char = text[position]
        if char == "'":
            flush(position)
            end = text.find("'", position + 1)
            end = len(text) if end < 0 else end
            found.append(text[position + 1 : end])
            position = start = end + 1
        elif char == '"':
            flush(position)
            end = position + 1
            while end < len(text) and text[end] != '"':
                end = max(expansion_end(text, end), end + 1 + (text[end] == "\\"))
            start = position + 1
            flush(end)
            position = start = end + 1
        else:
            position = max(expansion_end(text, position), position + 1 + (char == "\\"))
    flush(len(text))
    return "".join(found)


def is_known(text: str) -> bool:
    """Whether nothing is left in a text that a shell would replace."""
    return "$" not in text and "`" not in text


def _escaped(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _replaced(text: str, variables: Mapping[str, Value], depth: int) -> str:
    if text.startswith("$((") and text.endswith("))"):
        inner = expanded(text[3:-2], variables, depth + 1)
        number = computed(_BARE.sub(lambda name: _number(name[1], variables), inner))
        return text if number is None else str(number)
    found = _BRACED.fullmatch(text[2:-1]) if text.startswith("${") else None
    if found is None:
        return text
    if found[1]:
        held = variables.get(found[2])
        return text if held is None else str(len(held))
    value, operation, other = _value(found[2], found[3], variables), found[4] or "", found[5] or ""
    is_set = value is not None and (bool(value) or not operation.startswith(":"))
    if operation.endswith("+"):
        return _operand(other, variables, depth) if is_set else ""
    if is_set and value is not None:
        return value
    if operation[-1:] in ("-", "="):
        return _operand(other, variables, depth)
    return text if value is None else value


def _number(name: str, variables: Mapping[str, Value]) -> str:
    value = _value(name, None, variables)
    return value if value and len(value) <= _MAX_DIGITS else name


def _operand(text: str, variables: Mapping[str, Value], depth: int) -> str:
    return unquoted(text, lambda part: expanded(part, variables, depth + 1))


def _value(name: str, index: str | None, variables: Mapping[str, Value]) -> str | None:
    value = variables.get(name)
    if value is None or isinstance(value, str):
        return value
    if index in ("@", "*"):
        return " ".join(value)
    place = int(index or 0)
    return value[place] if place < len(value) else ""
