"""Meanings: what a key of a dialect or an environment variable is for, and its default (`data/config_keys.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfkit.core.resources import data_folder

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One key: its dotted place in a file of its dialect, its default as text, and what it is for."""

    dialect: str
    key: str
    default: str
    text: str


@cache
def meanings(dialect: str) -> Mapping[str, Meaning]:
    """All keys of a dialect that perfkit can explain, by dotted key; "environment" has the variables."""
    tables = tomllib.loads((data_folder() / "config_keys.toml").read_text(encoding="utf-8"))
    return {found.key: found for found in _leaves(dialect, tables.get(dialect, {}), "")}


def dialects_explained() -> tuple[str, ...]:
    """The dialects whose keys can be explained."""
    return ("mindformers", "mindspeed-core")


def _leaves(dialect: str, table: Mapping[str, Any], parent: str) -> Iterator[Meaning]:
    for name, value in table.items():
        key = f"{parent}.{name}" if parent else name
        if isinstance(value, Mapping):
            yield from _leaves(dialect, value, key)
        else:
            default, _, text = str(value).partition(" | ")
            yield Meaning(dialect, key, default, text)
