"""Parts: two breakdowns on the same leaves, and what each leaf adds to the difference.

Leaves that only one side tells apart are merged until both speak of the same things, so that no difference is one of wording.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from perfkit.core.breakdown import Amount, Breakdown, align
from perfkit.core.units import format_change
from perfkit.explain.compare._measure import WHOLE

EXPOSED = "communication/exposed"
BUBBLE = "bubble"


@dataclass(frozen=True, slots=True)
class Part:
    """A leaf on both sides, in the unit of the comparison; `delta` is b - a."""

    path: str
    a: Amount
    b: Amount

    @property
    def delta(self) -> Amount:
        """What the leaf adds to the difference of the totals."""
        return self.b - self.a

    def row(self, unit: str) -> dict[str, Any]:
        """The part as a row of `Comparison.to_frame`."""
        change = format_change(float(self.delta / self.a)) if self.a else "new" if self.b else "-"
        return {"part": self.path, f"a_{unit}": self.a, f"b_{unit}": self.b, f"delta_{unit}": self.delta, "change": change}


def common(a: Breakdown, b: Breakdown) -> tuple[Breakdown, Breakdown, tuple[str, ...]]:
    """Both on the same leaves, with notes on what had to be merged for it."""
    notes: list[str] = []
    if (list(a.parts) == [WHOLE]) != (list(b.parts) == [WHOLE]):
        return *align(_whole(a), _whole(b)), ("one side knows only the length of its steps",)
    if _hides_bubble(a, b) or _hides_bubble(b, a):
        a, b = _merge_bubble(a), _merge_bubble(b)
        notes.append("one side does not tell the pipeline bubble from exposed communication: both are compared together")
    for prefix in _disjoint(a, b):
        a, b = _cut(a, prefix), _cut(b, prefix)
    a, b = align(a, b)
    return a, b, tuple(notes)


def parts(a: Breakdown, b: Breakdown) -> tuple[Part, ...]:
    """The leaves of two aligned breakdowns; one that a side lacks took none of its time."""
    zero = 0 if a.unit == "ns" else 0.0
    return tuple(Part(path, a.parts.get(path, zero), b.parts.get(path, zero)) for path in dict.fromkeys([*a.parts, *b.parts]))


def _whole(breakdown: Breakdown) -> Breakdown:
    return replace(breakdown, parts={WHOLE: breakdown.total}, unmeasured=frozenset())


def _hides_bubble(without: Breakdown, other: Breakdown) -> bool:
    """Whether a recording has no bubble because it cannot tell, while the other side has one."""
    return without.source.kind != "computed" and not _has(without, BUBBLE) and other.amount(BUBBLE) > 0


def _has(breakdown: Breakdown, prefix: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for path in breakdown.parts)


def _merge_bubble(breakdown: Breakdown) -> Breakdown:
    cut = _cut(breakdown, EXPOSED)
    kept: dict[str, Amount] = {path: amount for path, amount in cut.parts.items() if path.split("/")[0] != BUBBLE}
    kept[EXPOSED] = kept.get(EXPOSED, 0) + breakdown.amount(BUBBLE)
    return replace(cut, parts=kept, unmeasured=frozenset(path for path in cut.unmeasured if path.split("/")[0] != BUBBLE))


def _disjoint(a: Breakdown, b: Breakdown) -> list[str]:
    """Prefixes below which the two sides name nothing in common: they divide the same time in other ways."""
    found = []
    prefixes = sorted({prefix for path in a.parts for prefix in _parents(path)})
    for prefix in prefixes:
        mine, theirs = _children(a.parts, prefix), _children(b.parts, prefix)
        if mine and theirs and not mine & theirs:
            found.append(prefix)
    return found


def _parents(path: str) -> list[str]:
    pieces = path.split("/")
    return ["/".join(pieces[:depth]) for depth in range(1, len(pieces))]


def _children(paths: Iterable[str], prefix: str) -> set[str]:
    start = f"{prefix}/"
    return {path[len(start) :].split("/")[0] for path in paths if path.startswith(start)}


def _cut(breakdown: Breakdown, prefix: str) -> Breakdown:
    """Everything below `prefix` as one leaf; its amount is 0 where the side has none of it."""
    start = f"{prefix}/"
    kept: dict[str, Amount] = {}
    for path, amount in breakdown.parts.items():
        key = prefix if path.startswith(start) else path
        kept[key] = kept.get(key, 0) + amount
    return replace(breakdown, parts=kept, unmeasured=frozenset(path for path in breakdown.unmeasured if not path.startswith(start)))
