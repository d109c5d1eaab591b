"""Checks that the specs share: each gives a list of problems, so that a spec can report all of them."""

from __future__ import annotations

from collections.abc import Iterable


def positive(spec: object, names: Iterable[str]) -> list[str]:
    """Problems of the fields that must be greater than 0."""
    return [f"{name} = {value} must be positive" for name in names if not (value := getattr(spec, name)) > 0]


def not_negative(spec: object, names: Iterable[str]) -> list[str]:
    """Problems of the fields that must be at least 0."""
    return [f"{name} = {value} must not be negative" for name in names if not (value := getattr(spec, name)) >= 0]


def one_of(spec: object, name: str, allowed: Iterable[str]) -> list[str]:
    """The problem of a field that must be one of a few words."""
    value, words = getattr(spec, name), tuple(allowed)
    return [] if value in words else [f"{name} = {value!r} must be one of {', '.join(words)}"]
