r"""Recompute patterns: which operators of a layer each one names, and what was probably meant where it names none.

A pattern is split at `\.`; every piece is a regular expression for a full match of one name, and naming a cell takes all below
it. A pattern that matches nothing has no effect and MindFormers does not say so.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from perfkit.core.recomputed import matches
from perfkit.core.resources import data_folder

LLAMA = "mindformers-llama"
MOST, LIKENESS = 3, 0.75
COSTLY = ("attention.flash_attention", "attention.batch_matmul", "attention.batch_matmul_q_k")


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternCheck:
    """A pattern, the paths that it names, and if there are none the pattern that was probably meant.

    `candidates` are the nearest known paths, best first; `repaired` is the best of them that the block does not name yet.
    """

    pattern: str
    matched: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    repaired: str = ""

    @property
    def is_costly(self) -> bool:
        """Whether the pattern repeats the attention kernel, which costs more than most of what it frees."""
        return any(path in COSTLY for path in self.matched)


@cache
def layer_paths(model: str = LLAMA) -> tuple[str, ...]:
    """Known paths of a model's layer (`data/layer_paths.toml`)."""
    tables = tomllib.loads((data_folder() / "layer_paths.toml").read_text(encoding="utf-8"))
    return tuple(tables[model]["paths"])


def check_patterns(patterns: Sequence[str], paths: Collection[str] | None = None) -> list[PatternCheck]:
    """Every pattern with what it names in `paths`; without them those of MindFormers' Llama layer."""
    known = list(layer_paths() if paths is None else paths)
    named = {path for pattern in patterns for path in known if matches(pattern, path)}
    return [_check(pattern, known, named) for pattern in patterns]


def pattern_of(path: str) -> str:
    r"""The pattern that names exactly this path: the dots become `\.`."""
    return path.replace(".", r"\.")


def _check(pattern: str, known: list[str], named: Collection[str]) -> PatternCheck:
    matched = tuple(path for path in known if matches(pattern, path))
    if matched:
        return PatternCheck(pattern=pattern, matched=matched)
    spelled = pattern.replace(r"\.", ".").replace(" ", "_").lower()
    near = difflib.get_close_matches(spelled, known, n=MOST, cutoff=LIKENESS)
    if not near:
        return PatternCheck(pattern=pattern, matched=())
    best = _likeness(near[0], spelled)
    # Among equally near ones the path that nothing in the block names yet is the one that is missing.
    alike = [path for path in known if _likeness(path, spelled) == best] if best < 1 else near[:1]
    meant = next((path for path in [*near, *alike] if path in alike and path not in named), near[0])
    return PatternCheck(pattern=pattern, matched=(), candidates=tuple(near), repaired=pattern_of(meant))


def _likeness(path: str, spelled: str) -> float:
    return difflib.SequenceMatcher(None, path, spelled).ratio()
