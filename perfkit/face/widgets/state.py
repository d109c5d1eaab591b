"""State: reading and changing one value of a panel's state by its path.

A state is a frozen dataclass, a mapping or a tuple, nested as needed; a path is written with dots, as in
"parallel.pipeline_parallel_size" or "layers.0". Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from perfkit.core.errors import InputError


def read(state: Any, path: str) -> Any:
    """The value at `path`. Raises InputError that names what exists if there is none."""
    value = state
    for name in path.split("."):
        if name not in _names(value):
            raise InputError("state", [f"{path!r}: {name!r} does not exist; there are {', '.join(_names(value)) or 'no parts'}"])
        value = _part(value, name)
    return value


def write(state: Any, path: str, value: Any) -> Any:
    """A copy of `state` with `value` at `path`; a mapping takes a new key, everything else must exist."""
    name, _, rest = path.partition(".")
    if isinstance(state, Mapping):
        return {**state, name: write(state[name], rest, value) if rest else value}
    inner = write(_part(state, name), rest, value) if rest else value
    if name not in _names(state):
        read(state, name)
    if isinstance(state, tuple):
        return (*state[: int(name)], inner, *state[int(name) + 1 :])
    return replace(state, **{name: inner})


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(value)
    if isinstance(value, tuple):
        return tuple(str(index) for index in range(len(value)))
    return tuple(value.__dataclass_fields__) if is_dataclass(value) else ()


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value[name]
    return value[int(name)] if isinstance(value, tuple) else getattr(value, name)
