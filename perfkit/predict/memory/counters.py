"""Counters: what a published figure of memory counts, and of which pipeline stage.

A figure may be what is allocated between two steps, allocated at most, held by the pool, in use by the driver, or the tensors of
a formula (`memory_kind` of a table); it may be of the first, the last or the fullest stage (`memory_scope`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

import numpy as np

from perfkit.core.plan_columns import Coded, Floats, PlanColumns
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.table import stage_peaks

Counter = Literal["static", "allocated", "pool", "device", "tensors"]
Scope = Literal["first", "last", "fullest"]

LAYER_PARTS = ("norm", "attention", "ffn", "experts", "recomputed_layers")
"""Activations inside of layers: all that published formulas count."""

COUNTED: Mapping[Counter, tuple[str, ...]] = {
    "static": ("static", "dynamic/communication_buffers/pipeline", "reserved/workspace"),
    "allocated": ("static", "dynamic", "reserved/workspace"),
    "pool": ("static", "dynamic", "reserved/workspace", "reserved/fragmentation"),
    "tensors": ("static", *(f"dynamic/activations/{part}" for part in LAYER_PARTS)),
    "device": ("static", "dynamic", "reserved"),
}
"""The paths of a stage's breakdown that a counter sees."""


KINDS: Mapping[str, Counter] = {
    **{"static": "static", "analytical": "tensors", "allocated": "allocated", "pool": "pool", "printed in the card": "pool"},
    **dict.fromkeys(("device", "driver", "smi", "out of memory", "used", "peak"), "device"),
}
"""Words of `memory_kind` and what they mean; the first that a cell has counts."""

SCOPES: Mapping[str, Scope] = {
    **dict.fromkeys(("largest", "fullest", "highest", "max"), "fullest"),
    **{"first": "first", "rank 0": "first", "last": "last", "per device": "fullest", "not stated": "fullest"},
}
"""Words of `memory_scope` and what they mean; the first that a cell has counts."""


def counter_of(kind: str) -> Counter:
    """The counter that a cell of `memory_kind` names; what a device has in use where it names none.

    Model cards of MindFormers print what MindSpore does, the peak of its pool with fragments.
    """
    return next((counter for word, counter in KINDS.items() if word in _plain(kind)), "device")


def scope_of(scope: str) -> Scope:
    """The stage that a cell of `memory_scope` names; the fullest where it names none."""
    return next((stage for word, stage in SCOPES.items() if word in _plain(scope)), "fullest")


def problem_of(text: str, words: Mapping[str, object]) -> str:
    """What is wrong with a cell that has none of `words` (`KINDS` or `SCOPES`); "" if it has one or is empty."""
    if not text or any(word in _plain(text) for word in words):
        return ""
    near = difflib.get_close_matches(_plain(text), words, n=2, cutoff=0.4)
    return f"must name one of {', '.join(words)}" + (f"; nearest is {' or '.join(near)}" if near else "")


def _plain(words: str) -> str:
    return words.strip().lower()


def counted_bytes(plans: PlanColumns, settings: Coded[MemorySettings], counters: Coded[Counter], scopes: Coded[Scope]) -> Floats:
    """Bytes of every plan that its counter sees on its stage."""
    found = np.zeros(len(plans))
    for piece in stage_peaks(plans, settings):
        counter, scope = counters.take(piece.plans), scopes.take(piece.plans)
        amounts = np.zeros(len(piece.plans))
        for value in counter.values:
            amounts = np.where(counter.is_(value), piece.peaks.amount(*COUNTED[value]), amounts)
        outside = (scope.is_("first") & ~piece.first) | (scope.is_("last") & ~piece.last)
        rows, most = piece.fullest(np.where(outside, 0.0, amounts))
        found[rows] = most
    return found
