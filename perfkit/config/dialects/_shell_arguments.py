"""The arguments of a script or function of a shell, as its variables `1`, `2`, ..., `#`, `@` and `*`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfkit.config.dialects._shell_words import Value


def named_arguments(arguments: Sequence[str]) -> dict[str, Value]:
    """Arguments as variables."""
    numbered: dict[str, Value] = {str(number): text for number, text in enumerate(arguments, 1)}
    return {**numbered, "#": str(len(arguments)), "@": tuple(arguments), "*": tuple(arguments)}


def given(variables: Mapping[str, Value]) -> dict[str, Value]:
    """Those of the variables that are arguments."""
    return {name: value for name, value in variables.items() if name in "#@*" or name.isdigit()}


def put(variables: dict[str, Value], arguments: Mapping[str, Value]) -> None:
    """Put arguments in the place of those that there are."""
    for name in given(variables):
        del variables[name]
    variables.update(arguments)


def all_arguments(variables: Mapping[str, Value]) -> tuple[str, ...]:
    """The arguments in their order."""
    value = variables.get("@", ())
    return value if isinstance(value, tuple) else (value,)
