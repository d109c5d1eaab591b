"""Command-line options out of a launch script, a flat list of arguments or JSON; nothing is executed.

A script is split into words as a shell does (quotes, comments, continued lines), and every `--name value...` counts, wherever it
stands: in the command, in an array `ARGS=(...)` or in a quoted variable. `$NAME` and `${NAME:-default}` are replaced by assignments
of the same file, `$((...))` is computed if it holds whole numbers only. What stays unresolved keeps its `$`. A script that is
sourced (`source models/a.sh`, `. "$DIR/env.sh"`) counts where it is sourced, if it lies in the folder of the script or below.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^{}]*))?\})")
SUM = re.compile(r"\$\(\(([\d\s+*/()-]+)\)\)")
SEPARATORS = frozenset(" \t\r\n;&|()")
ENDINGS, END = frozenset(";&|)"), ""
MAX_DEPTH, MAX_SOURCED, MAX_BYTES = 10, 4, 1_000_000
OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


Placed = tuple[str, int | None]
"""A word and the line that it starts on; None in a script that is sourced."""


@dataclass(slots=True)
class Arguments:
    """Options of a text: values by name with `_` (True for an option without a value), lines, what stood twice, what lacks."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, line: int | None) -> None:
        """Take an option; a second, different value replaces the first, as in the program, and is reported."""
        key = name.lstrip("-").replace("-", "_")
        if key in self.values and self.values[key] != value:
            self.repeated.append(f"--{key.replace('_', '-')} stands twice: {self.values[key]!r}, then {value!r}, which counts")
        self.values[key] = value
        if line is not None:
            self.lines[key] = line


def parse(text: str, name: str, flags: frozenset[str], lists: frozenset[str], path: Path | None = None) -> Arguments:
    """The options of a script, list or JSON document. Raises InputError if it is broken.

    Options in `flags` never take a value, those in `lists` take all words up to the next option, all others take one. `path` is
    where the script lies; what it sources is read from there, and has no lines.
    """
    stripped = text.lstrip()
    if stripped.startswith(("{", "[")):
        return _from_json(text, name, flags, lists)
    arguments = Arguments()
    words = list(_with_sourced(list(_words(text, name)), arguments, path, MAX_SOURCED))
    for word, _ in words:
        if found := ASSIGNMENT.fullmatch(word):
            arguments.variables[found[1]] = found[2].strip()
    flat: list[Placed] = []
    for word, line in words:
        found = ASSIGNMENT.fullmatch(word)
        if found and "--" in found[2]:
            flat += [*_pieces(found[2], line), (END, line)]
        elif not found:
            flat.append((word, line))
    _collect(arguments, flat, flags, lists)
    return arguments


def _with_sourced(words: list[Placed], arguments: Arguments, path: Path | None, depth: int) -> Iterator[Placed]:
    """The words, with those of every script that is sourced in its place."""
    for at, (word, line) in enumerate(words):
        yield word, line
        if word not in ("source", ".") or at + 1 == len(words) or (at and words[at - 1][1] == line and words[at - 1][0] != END):
            continue
        named = words[at + 1][0]
        file = _beside(path, named) if depth else None
        if file is None:
            arguments.absent.append(f"{named} is sourced and is not here; what it sets is not known")
            continue
        inner = list(_words(file.read_text(encoding="utf-8", errors="replace"), file.name))
        yield END, line
        yield from ((each, None) for each, _ in _with_sourced(inner, arguments, file, depth - 1))
        yield END, line


def _beside(path: Path | None, named: str) -> Path | None:
    """The script that is sourced: by the end of its path, since its beginning (`$SCRIPT_DIR/`) is known to the shell alone."""
    if path is None:
        return None
    folder, plain = path.resolve().parent, re.sub(r"^.*[$`){}][^/]*/", "", named)
    file = (folder / plain).resolve()
    return file if file.is_relative_to(folder) and file.is_file() and file.stat().st_size <= MAX_BYTES else None


def _from_json(text: str, name: str, flags: frozenset[str], lists: frozenset[str]) -> Arguments:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(name, [f"not JSON: {error}"]) from error
    arguments = Arguments()
    if isinstance(value, list):
        bad = [item for item in value if isinstance(item, list | dict) or item is None]
        if bad:
            raise InputError(name, [f"a list of arguments holds texts only, found {str(item)[:60]!r}" for item in bad])
        _collect(arguments, [(str(item), None) for item in value], flags, lists)
    elif isinstance(value, dict):
        for key, item in value.items():
            if item is not None and item is not False:
                arguments.add(key, item, None)
    else:
        raise InputError(name, ["JSON must be a list of arguments or an object of names and values"])
    return arguments


def _collect(arguments: Arguments, flat: list[Placed], flags: frozenset[str], lists: frozenset[str]) -> None:
    for index, (word, line) in enumerate(flat):
        if not re.match(r"--[A-Za-z]", word):
            continue
        name, equals, inline = word.partition("=")
        key = name.lstrip("-").replace("-", "_")
        words = [inline] if equals else _following(flat, index + 1, 0 if key in flags else None if key in lists else 1)
        values = [_typed(_resolve(value, arguments.variables)) for value in words]
        arguments.add(name, (values if key in lists else values[0]) if values else True, line)


def _following(flat: list[Placed], start: int, most: int | None) -> list[str]:
    """The words after an option up to the next one, at most `most` of them."""
    words: list[str] = []
    for word, _ in flat[start:] if most is None else flat[start : start + most]:
        if word == END or (word.startswith("-") and not re.match(r"-[\d.]", word)):
            break
        words.append(word)
    return words


def _pieces(text: str, line: int | None) -> Iterator[Placed]:
    """Words of an unquoted text with their lines."""
    for offset, row in enumerate(text.split("\n")):
        for piece in row.replace("\\", " ").split():
            yield piece, None if line is None else line + offset


def _words(text: str, name: str) -> Iterator[Placed]:
    """Words of a script with the line that each starts on; comments and separators are left out."""
    position, line = 0, 1
    while position < len(text):
        char = text[position]
        if char == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif char in SEPARATORS or text.startswith(("\\\n", "\\\r\n"), position):
            if char in ENDINGS:
                yield END, line
            line += char == "\n" or (char == "\\" and text[position + 1] == "\n")
            position += 2 if text.startswith("\\\n", position) else 1
        else:
            word, end = _word(text, position, line, name)
            yield word, line
            line += text.count("\n", position, end)
            position = end


def _word(text: str, start: int, line: int, name: str) -> tuple[str, int]:
    """The word that starts at `start`, without its quotes, and where it ends."""
    pieces: list[str] = []
    position = start
    while position < len(text) and text[position] not in SEPARATORS:
        char = text[position]
        if char in "'\"`":
            end = _closing_quote(text, position)
            if end < 0:
                raise InputError(name, [f"line {line + text.count(chr(10), start, position)}: the quote {char} is never closed"])
            pieces.append(text[position : end + 1] if char == "`" else text[position + 1 : end])
            position = end + 1
        elif text.startswith("$(", position):
            end = _closing_bracket(text, position + 1)
            pieces.append(text[position:end])
            position = end
        elif char == "\\":
            if text.startswith(("\\\n", "\\\r\n"), position):
                break
            pieces.append(text[position + 1 : position + 2])
            position += 2
        else:
            pieces.append(char)
            position += 1
    return "".join(pieces), max(position, start + 1)


def _closing_quote(text: str, start: int) -> int:
    quote, position = text[start], start + 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" and quote != "'" else 1
    return position if position < len(text) else -1


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)


def resolve_variable(name: str, variables: Mapping[str, str]) -> Any:
    """The typed value of a variable of the file; None if it is not assigned there or does not resolve."""
    value = _typed(_resolve(variables[name], variables)) if name in variables else None
    return None if isinstance(value, str) and ("$" in value or "`" in value) else value


def _resolve(text: str, variables: Mapping[str, str]) -> str:
    for _ in range(MAX_DEPTH):
        replaced = VARIABLE.sub(lambda found: _value(found, variables), _bare_names_in_sums(text))
        replaced = SUM.sub(lambda found: _computed(found[0], found[1]), replaced)
        if replaced == text or len(replaced) > 10_000:
            break
        text = replaced
    return text


def _bare_names_in_sums(text: str) -> str:
    return re.sub(r"\$\(\(.*?\)\)", lambda found: "$((" + re.sub(r"(?<![\w${])([A-Za-z_]\w*)", r"$\1", found[0][3:]), text)


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    value = variables.get(found[1] or found[2], found[3])
    return found[0] if value is None else value


def _computed(original: str, text: str) -> str:
    try:
        return str(_evaluate(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return original


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise ValueError("not whole-number arithmetic")


def _typed(text: str) -> Any:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
