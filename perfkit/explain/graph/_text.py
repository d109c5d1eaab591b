"""Text of graph files: brackets, values and types, read without ever raising on what they hold.

Intact text, the usual case, is taken apart by one possessive expression that cannot backtrack. Where it does not match, brackets
are counted whatever their kind, because damaged copies swap them; quotes hide brackets, and `->` is no bracket. Values stay text
until asked for: `value("((2, 1), (1))")` is ((2, 1), (1,)), since the compiler prints a one-element tuple without a comma.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

MAX_DEPTH = 64
"""Nesting of one value; deeper text is kept as text."""

_PARENS = r'\((?:[^()"]++|\((?:[^()"]++|\((?:[^()"]++|\([^()"]*+\))*+\))*+\))*+\)'
_INTACT = {"(": re.compile(_PARENS), "{": re.compile(r'\{(?:[^{}"]++|"[^"]*+")*+\}')}
_PART = re.compile(r'(?:[^,()\[\]{}<>"]++|"[^"]*+"|' + _PARENS + r'|\[[^\[\]"]*+\])++')
_BRACKET = re.compile(r'->|[()\[\]{}<>]|"[^"]*"')
_TOP = re.compile(r'->|[()\[\]{}<>,]|"[^"]*"')
_TOKEN = re.compile(r'"[^"]*"|[()\[\],]|[^()\[\],"]+|"')
_SCALAR = re.compile(r"^(?:Bool|[IU](?:8|16|32|64)|[IU]nt\d+|F(?:16|32|64)|BF16)\(([^()]*)\)$")
_DAMAGED_INT = re.compile(r"^(?:1|l|I)(?:64|32)\((-?\d+)\)$")
_NUMBER = re.compile(r"^-?\d{1,18}$")
_TENSOR = re.compile(r"Tensor[\[(](\w+)[\])](?:\*(\d{1,4}))?")
_SHAPE = re.compile(r"\((-?\d[\d, -]*|)\)")
_OLD_SHAPE = re.compile(r"x\[const vector\]\[([\d, -]*)\]")

ELEMENT_BYTES = {
    "Bool": 1, "Int4": 1, "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4, "Int64": 8, "UInt64": 8,
    "Float8E4M3FN": 1, "Float8E5M2": 1, "HiFloat8": 1, "Float16": 2, "BFloat16": 2, "Float32": 4, "Float64": 8,
    "Complex64": 8, "Complex128": 16,
    "F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I8": 1, "U8": 1, "I16": 2, "I32": 4, "I64": 8,
}  # fmt: skip
_LONG_NAME = {"F16": "Float16", "BF16": "BFloat16", "F32": "Float32", "F64": "Float64", "I32": "Int32", "I64": "Int64"}


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of one value: its tensors as (element type, shape). A scalar has the shape (); None: not printed."""

    tensors: tuple[tuple[str, tuple[int, ...] | None], ...] = ()

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor."""
        return self.tensors[0][0] if self.tensors else None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the first tensor."""
        return self.tensors[0][1] if self.tensors else None

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all tensors together, None where a shape is dynamic or an element type is unknown."""
        sizes = [tensor_bytes(dtype, shape) for dtype, shape in self.tensors]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def tensor_bytes(dtype: str, shape: tuple[int, ...] | None) -> int | None:
    """Bytes of one tensor; None if its shape is dynamic or its element type is unknown."""
    size = ELEMENT_BYTES.get(dtype)
    return None if size is None or shape is None or any(axis < 0 for axis in shape) else size * prod(shape)


def closing(text: str, start: int) -> int:
    """Position after the bracket that closes the one at `start`, or -1 if the text ends first."""
    intact = _INTACT.get(text[start : start + 1])
    if intact is not None and (whole := intact.match(text, start)):
        return whole.end()
    depth = 0
    for found in _BRACKET.finditer(text, start):
        mark = found[0]
        if mark in "([{<":
            depth += 1
        elif mark in ")]}>":
            depth -= 1
            if depth <= 0:
                return found.end()
    return -1


def split_top(text: str) -> list[str]:
    """`text` split at the commas that no bracket holds."""
    intact = _PART.findall(text)
    if ",".join(intact) == text:
        return [part.strip() for part in intact]
    parts, depth, start = [], 0, 0
    for found in _TOP.finditer(text):
        mark = found[0]
        if mark == ",":
            if depth == 0:
                parts.append(text[start : found.start()].strip())
                start = found.end()
        elif mark in "([{<":
            depth += 1
        elif mark in ")]}>":
            depth = max(0, depth - 1)
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def attributes(text: str) -> dict[str, str]:
    """`key: value, ...` as a mapping; blanks in keys, a mark of damaged copies, become underscores."""
    pairs = (part.partition(":") for part in split_top(text))
    return {key.strip().replace(" ", "_"): found.strip() for key, colon, found in pairs if colon}


@lru_cache(maxsize=4096)
def value(text: str) -> Any:
    """An attribute value as Python: numbers, booleans, text, nested tuples. What is none of these is given back as text."""
    text = text.strip()
    if text.startswith(("(", "[")):
        return _tuple(text)
    return _scalar(text)


def _scalar(text: str) -> Any:
    text = text.strip()
    if found := _SCALAR.match(text):
        inner = found[1].strip()
        if text.startswith("Bool"):
            return inner in ("1", "true", "True")
        text = inner
    elif found := _DAMAGED_INT.match(text):
        text = found[1]
    if text in ("true", "false"):
        return text == "true"
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    return int(text) if _NUMBER.match(text) else text


def _tuple(text: str) -> Any:
    stack: list[list[Any]] = [[]]
    word = ""
    for token in _TOKEN.findall(text):
        if token in "([" and not word.strip():
            if len(stack) > MAX_DEPTH:
                return text
            stack.append([])
            word = ""
        elif token in ")]" and not _open_call(word):
            if word.strip():
                stack[-1].append(_scalar(word))
            word = ""
            if len(stack) == 1:
                return text
            done = tuple(stack.pop())
            stack[-1].append(done)
        elif token == "," and not _open_call(word):
            if word.strip():
                stack[-1].append(_scalar(word))
            word = ""
        else:
            word += token
    return stack[0][0] if len(stack) == 1 and len(stack[0]) == 1 else text


def _open_call(word: str) -> bool:
    return word.count("(") > word.count(")")


@lru_cache(maxsize=16384)
def types(text: str) -> tuple[ValueType, ...]:
    """The types of a bracketed list such as `(<Tensor[Float16], (32, 64)>, <Bool, NoShape>)`."""
    return tuple(_type(part) for part in split_top(text.strip()[1:-1]))


def _type(text: str) -> ValueType:
    if old := _OLD_SHAPE.search(text):
        found = _TENSOR.search(text)
        return ValueType(((_long(found[1]), _shape(old[1])),)) if found else ValueType()
    dtypes = [_long(found[1]) for found in _TENSOR.finditer(text) for _ in range(int(found[2] or 1))]
    if not dtypes:
        return ValueType()
    shapes = [_shape(found[1]) for found in _SHAPE.finditer(text, text.find(","))] if "," in text else []
    return ValueType(tuple((dtype, shapes[place] if place < len(shapes) else None) for place, dtype in enumerate(dtypes)))


def _long(name: str) -> str:
    return _LONG_NAME.get(name, name)


def _shape(text: str) -> tuple[int, ...] | None:
    axes = [axis.strip() for axis in text.split(",") if axis.strip()]
    return tuple(int(axis) for axis in axes) if all(_NUMBER.match(axis) for axis in axes) else None
