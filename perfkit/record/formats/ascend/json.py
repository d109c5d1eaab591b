"""JSON of Ascend profilers, also when it was cut short: every whole entry before the break is kept.

Decimals stay decimals (`Decimal`), so that times reach ns without a float.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec

from perfkit.core.errors import InputError
from perfkit.record.listing import File

_FAST = msgspec.json.Decoder(float_hook=Decimal)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def read_json(file: File, *, depth: int = 0) -> tuple[Any, int]:
    """The content of a JSON file, and how many bytes after the break were dropped (0: the file is whole).

    Of a broken file the entries nested at most `depth` objects deep are kept as far as they are whole; with `depth` 0 none are.
    Raises InputError if the file is empty, cannot be opened or holds nothing whole.
    """
    if file.size_bytes == 0:
        raise InputError(file.label, ["the file is empty (0 bytes)"])
    try:
        with file.open() as stream:
            data = stream.read()
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    try:
        return _FAST.decode(data), 0
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        return _read_with_care(file, data.decode("utf-8-sig", "replace"), depth)


def _read_with_care(file: File, text: str, depth: int) -> tuple[Any, int]:
    """What the fast decoder refuses: other encodings, NaN, lone surrogates, and files with an end that is missing."""
    try:
        return json.loads(text, parse_float=Decimal), 0
    except RecursionError as error:
        raise InputError(file.label, ["is nested too deeply"]) from error
    except json.JSONDecodeError as error:
        content, end = _whole_entries(text, error.pos, depth)
        if content is None:
            raise InputError(file.label, [f"is no JSON: {error.msg} at line {error.lineno}, column {error.colno}"]) from error
        return content, len(text[end:].encode())
    except (ValueError, ArithmeticError) as error:
        raise InputError(file.label, [f"is no JSON that can be read: {error}"]) from error


def _whole_entries(text: str, limit: int, depth: int) -> tuple[Any, int]:
    """The text up to the last entry that ends before `limit`, with its brackets closed, read; and where that entry ends."""
    open_brackets: list[str] = []
    end, closing = 0, ""
    for token in _TOKEN.finditer(text, 0, limit):
        if token[0] in "{[":
            open_brackets.append("}" if token[0] == "{" else "]")
        elif token[0] in "}]" and open_brackets:
            open_brackets.pop()
            if 0 < len(open_brackets) <= depth:
                end, closing = token.end(), "".join(reversed(open_brackets))
    if not end:
        return None, 0
    try:
        return json.loads(text[:end] + closing, parse_float=Decimal), end
    except (ValueError, ArithmeticError):
        return None, 0
