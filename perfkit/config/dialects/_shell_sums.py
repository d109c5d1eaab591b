"""Whole-number arithmetic of the shell: what stands in `$((...))` and `((...))`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

_TOKEN = re.compile(r"\s*(\d+|\*\*|&&|\|\||[<>=!]=|[-+*/%<>!?:()])")
_MAX_BITS, _MAX_DEPTH, _MAX_CHARS = 64, 50, 2000
_BINARY: Mapping[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "==": (3, lambda a, b: int(a == b)),
    "!=": (3, lambda a, b: int(a != b)),
    "<": (4, lambda a, b: int(a < b)),
    ">": (4, lambda a, b: int(a > b)),
    "<=": (4, lambda a, b: int(a <= b)),
    ">=": (4, lambda a, b: int(a >= b)),
    "+": (5, operator.add),
    "-": (5, operator.sub),
    "*": (6, operator.mul),
    "/": (6, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "%": (6, lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1)),
    "**": (7, lambda a, b: a**b if 0 <= b <= _MAX_BITS else _refused()),
}
_UNARY: Mapping[str, Callable[[int], int]] = {"-": operator.neg, "+": operator.pos, "!": lambda a: int(not a)}


def computed(text: str) -> int | None:
    """The value of an expression of whole numbers, None if it is none, is too long, divides by zero or leaves 64 bits."""
    if len(text) > _MAX_CHARS:
        return None
    tokens = _TOKEN.findall(text)
    if re.sub(r"\s", "", text) != "".join(tokens):
        return None
    try:
        value = _choice(tokens, 0)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return None if tokens else value


def _choice(tokens: list[str], depth: int) -> int:
    value = _binary(tokens, 1, depth)
    if not tokens or tokens[0] != "?":
        return value
    tokens.pop(0)
    if_so = _choice(tokens, depth + 1)
    if tokens.pop(0) != ":":
        _refused()
    otherwise = _choice(tokens, depth + 1)
    return if_so if value else otherwise


def _binary(tokens: list[str], least: int, depth: int) -> int:
    value = _single(tokens, depth)
    while tokens and tokens[0] in _BINARY and _BINARY[tokens[0]][0] >= least:
        binding, operate = _BINARY[tokens.pop(0)]
        value = operate(value, _binary(tokens, binding + 1, depth + 1))
        if value.bit_length() > _MAX_BITS:
            _refused()
    return value


def _single(tokens: list[str], depth: int) -> int:
    if depth > _MAX_DEPTH:
        _refused()
    token = tokens.pop(0)
    if token in _UNARY:
        return _UNARY[token](_single(tokens, depth + 1))
    if token == "(":
        value = _choice(tokens, depth + 1)
        if tokens.pop(0) != ")":
            _refused()
        return value
    return int(token)


def _refused() -> NoReturn:
    raise ValueError("not a sum of whole numbers")
