"""Syntax: sources of Python as trees, in whatever thread they are read."""

from __future__ import annotations

import ast
from contextlib import suppress

_TRIES = 5


def tree_of(text: str, *, file: str = "<unknown>") -> ast.Module:
    """`ast.parse`, which before CPython 3.11.5 fails with a SystemError if another thread parses meanwhile, tried again then.

    Raises what `ast.parse` does (https://github.com/python/cpython/issues/106905: the depth is counted for all threads at once).
    """
    for _ in range(_TRIES - 1):
        with suppress(SystemError):
            return ast.parse(text, filename=file)
    return ast.parse(text, filename=file)
