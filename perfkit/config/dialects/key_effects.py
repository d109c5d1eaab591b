"""Key effects: what the keys decide that a reader does not ask for (`data/key_effects.toml`), so that none is ignored in silence.

A key of a configuration is read into a plan, or has no effect on time and memory, or has one that no part of a plan expresses, or
is not known. The last two are named wherever a prediction says what it assumes.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from perfkit.core.resources import data_folder

EVERYTHING = ""
OFF: tuple[Any, ...] = (None, False, 0, 0.0, "", "None", "none", "null", "OFF", "off", [], {})
"""Values with which a switch does nothing."""
SOME_TRAINED = "time and memory, both estimated too high: only some parameters are trained, gradients and states of all are counted"
BESIDE_ADAPTERS = "time and memory: what else is trained, or how; the adapters that are read are counted alone"
"""What a key of the former kind decides where adapters are counted."""
MAX_KEYS = 4096
"""Keys of which it is kept what they decide: a configuration has hundreds, and each is held against as many patterns."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Keys that were not asked for: those that decide something, with what, and those not known."""

    unread: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Effect:
    """Keys of one pattern: why they have no effect, or what they decide, and the values with which they do not."""

    pattern: re.Pattern[str]
    why: str
    off: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _Effects:
    """A dialect's keys without effect, and those with one; in its groups are keys of the dialect that it is `like`.

    `under` says where that dialect has a group; a group that it does not name is that dialect's own top level.
    """

    none: tuple[_Effect, ...]
    some: tuple[_Effect, ...]
    like: _Effects | None = None
    under: Mapping[str, str] = field(default_factory=dict)

    def without(self, key: str) -> _Effect | None:
        """Why a key has no effect; None where it may have one."""
        if (found := _found(self.none, key)) or _found(self.some, key) or self.like is None:
            return found
        return self.like.without(self._there(key))

    def decisive(self, key: str) -> _Effect | None:
        """What a key decides; None where that is not known."""
        return _found(self.some, key) or (self.like.decisive(self._there(key)) if self.like else None)

    def _there(self, key: str) -> str:
        group, _, rest = key.partition(".")
        return f"{self.under[group]}.{rest}" if group in self.under else rest or key


def left_over(dialect: str, values: Any, used: Collection[str], *, adapted: bool = False) -> LeftOver:
    """The keys with a value that `used` does not have, sorted; EVERYTHING in it stands for all.

    `adapted` says that adapters are counted, and frozen weights as such.
    """
    if EVERYTHING in used or not isinstance(values, Mapping):
        return LeftOver((), ())
    unread: list[tuple[str, str]] = []
    unknown: list[str] = []
    for key, value in leaves(values):
        if _covered(key, used) or reason_of(dialect, key) is not None:
            continue
        decides = _decisive(dialect, key)
        if decides is None:
            unknown.append(key)
        elif not any(value is off or (type(value) is type(off) and value == off) for off in (*OFF, *decides.off)):
            unread.append((key, BESIDE_ADAPTERS if adapted and decides.why == SOME_TRAINED else decides.why))
    return LeftOver(tuple(unread), tuple(unknown))


@lru_cache(maxsize=MAX_KEYS)
def reason_of(dialect: str, key: str) -> str | None:
    """Why a key has no effect on time and memory; None where it may have one."""
    found = _effects(dialect).without(key)
    return None if found is None else found.why


@lru_cache(maxsize=MAX_KEYS)
def _decisive(dialect: str, key: str) -> _Effect | None:
    return _effects(dialect).decisive(key)


def leaves(values: Mapping[Any, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; lists are one value."""
    for name, value in values.items():
        key = f"{parent}.{name}" if parent else str(name)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, key)
        else:
            yield key, value


def _covered(key: str, used: Collection[str]) -> bool:
    while key:
        if key in used:
            return True
        key = key.rpartition(".")[0]
    return False


def _found(effects: tuple[_Effect, ...], key: str) -> _Effect | None:
    return next((effect for effect in effects if effect.pattern.match(key)), None)


@cache
def _effects(dialect: str) -> _Effects:
    tables = tomllib.loads((data_folder() / "key_effects.toml").read_text(encoding="utf-8")).get(dialect, {})
    none, some = (
        tuple(
            _Effect(re.compile(fnmatch.translate(place + pattern)), entry["why"], tuple(entry.get("off", ())))
            for entry in tables.get(kind, ())
            for pattern in str(entry["keys"]).split()
            for place in ("", *(f"{section}." for section in tables.get("inside", ())))
        )
        for kind in ("none", "some")
    )
    return _Effects(none, some, _effects(tables["like"]) if "like" in tables else None, tables.get("under", {}))
