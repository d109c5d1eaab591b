"""Sources of newer Python than the one that runs: spelled as older ones have it, line by line, so that they can be parsed.

Type parameters and `type` statements (3.12), their defaults (3.13) and quotes of an f-string inside its own braces (3.12) mean
nothing to any check.
"""

from __future__ import annotations

import ast
import re

from perfkit.core.syntax import tree_of

_ALIAS = re.compile(r"^(\s*)type\s+([A-Za-z_]\w*)\s*(?:\[[^=\n]*\])?\s*=", re.MULTILINE)
_PARAMETERS = re.compile(r"^(\s*(?:async\s+def|def|class)\s+[A-Za-z_]\w*)\s*\[")
_STRING = re.compile(r"\b[fF][rR]?(\"|')(?!\1\1)|\b[rR][fF](\"|')(?!\2\2)")


def parse_python(text: str, file: str) -> ast.Module:
    """The tree of a source of Python 3.8 to 3.13. Raises SyntaxError with the line of the text as it is."""
    try:
        return tree_of(text, file=file)
    except SyntaxError:
        older = "\n".join(_older(line) for line in _ALIAS.sub(r"\1\2 =", text).split("\n"))
        if older == text:
            raise
        try:
            return tree_of(older, file=file)
        except SyntaxError:
            pass
        raise


def _older(line: str) -> str:
    if found := _PARAMETERS.match(line):
        end = _closing(line, found.end() - 1)
        line = found[1] + line[end:] if end else line
    return _quotes_apart(line)


def _closing(line: str, start: int) -> int:
    """The place behind the bracket that closes the one at `start`; 0 if the line does not."""
    depth = 0
    for place in range(start, len(line)):
        depth += {"[": 1, "]": -1}.get(line[place], 0)
        if depth == 0:
            return place + 1
    return 0


def _quotes_apart(line: str) -> str:
    """Quotes inside the braces of an f-string as the other kind, where they are those that enclose it."""
    found = _STRING.search(line)
    if found is None:
        return line
    quote = found[1] or found[2]
    other, out, depth, place = "'" if quote == '"' else '"', list(line), 0, found.end()
    while place < len(line):
        char = line[place]
        if char == "\\" and depth == 0:
            place += 1
        elif char == "{":
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
        elif char == quote and depth:
            out[place] = other
        elif char == quote:
            return "".join(out[: place + 1]) + _quotes_apart(line[place + 1 :])
        place += 1
    return line
