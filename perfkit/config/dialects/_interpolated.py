"""References of OmegaConf in parsed YAML: `${model.hidden_size}`, `${.hidden_size}`, and `${multiply:4, ${.hidden_size}}`.

A value that refers to what the file does not state stays as it is written; `???`, which somebody has yet to give, is no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from perfkit.config.dialects.splice import Path, value_at

INNERMOST = re.compile(r"\$\{([^${}]*)\}")
PLACE = re.compile(r"(\.*)([\w-]+(?:\.[\w-]+)*)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SUMS: Mapping[str, Callable[[list[float]], float]] = {
    "multiply": prod,
    "add": sum,
    "sum": sum,
    "divide": lambda numbers: numbers[0] / numbers[1],
    "int_div": lambda numbers: numbers[0] // numbers[1],
}
"""Functions that the program registers for its files (`nemo/core/config`, `nemo/collections/nlp`)."""
MANDATORY = "???"
DEEPEST = 20
"""References from one to the next; more of them go round in a ring."""


def resolved(values: Mapping[str, Any], root: str = "") -> dict[str, Any]:
    """The values with every reference that the file answers replaced; absolute ones may begin with the name `root`."""
    return {key: _resolved(value, (key,), values, root) for key, value in values.items()}


def _resolved(value: Any, path: Path, values: Mapping[str, Any], root: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _resolved(part, (*path, str(key)), values, root) for key, part in value.items()}
    if isinstance(value, str):
        return None if value == MANDATORY else _text(value, path, values, root, DEEPEST)
    return value


def _text(text: str, path: Path, values: Mapping[str, Any], root: str, left: int) -> Any:
    """The value of a text: innermost references first, each as a word of the rest or, where it is all of it, as it is."""
    while left and (found := INNERMOST.search(text)):
        value = _reference(found[1].strip(), path, values, root, left - 1)
        if value is None or isinstance(value, Mapping | list):
            return text
        if found[0] == text.strip():
            return value
        text = text[: found.start()] + str(value) + text[found.end() :]
    return text


def _reference(text: str, path: Path, values: Mapping[str, Any], root: str, left: int) -> Any:
    name, mark, arguments = text.partition(":")
    if mark:
        return _computed(SUMS.get(name.strip()), [one.strip() for one in arguments.split(",")])
    found = PLACE.fullmatch(text)
    if found is None:
        return None
    keys = tuple(found[2].split("."))
    depth = len(path) - len(found[1])  # one dot is the section that the value stands in
    place = (*path[: max(0, depth)], *keys) if found[1] else keys[keys[0] == root :]
    value = value_at(values, place)
    return _text(value, place, values, root, left) if isinstance(value, str) and value != MANDATORY else value


def _computed(function: Callable[[list[float]], float] | None, arguments: list[str]) -> float | None:
    if function is None or len(arguments) < 2 or not all(map(NUMBER.fullmatch, arguments)):
        return None
    numbers = [float(one) for one in arguments]
    if not numbers[1] and function in (SUMS["divide"], SUMS["int_div"]):
        return None
    value = function(numbers)
    return int(value) if value.is_integer() else value
