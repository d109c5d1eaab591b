"""Breakdown: named parts of one whole, the one shape for steps, memory, FLOPs and parameter counts.

A breakdown maps slash-paths to non-negative amounts of one unit. Only leaves carry amounts: no path begins another, so a plain
sum never counts twice and the leaves sum to the total by construction. Integer amounts stay integers (int64 ns, bytes, counts).
Paths in `unmeasured` belong to the whole but were not told apart: they are neither zero nor drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from perfkit.core.display import amount_text, breakdown_rows, text_table
from perfkit.core.errors import InputError
from perfkit.core.shown import Shown
from perfkit.core.source import Source
from perfkit.core.units import NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

Amount = int | float


@dataclass(frozen=True, slots=True, repr=False)
class Breakdown(Shown):
    """Amounts of one `unit` by leaf path; `parts` is stored read-only in the given order.

    Raises InputError that lists every negative or non-finite amount and every path that begins another.
    """

    unit: str
    parts: Mapping[str, Amount]
    source: Source
    unmeasured: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        problems = [
            f"{path} = {amount} must be a finite amount of at least 0"
            for path, amount in self.parts.items()
            if not 0 <= amount < math.inf
        ]
        paths = {*self.parts, *self.unmeasured}
        for path in self.parts:
            if not path or path != path.strip("/") or "//" in path:
                problems.append(f"path {path!r} has an empty part")
            parents = _parents(path)
            if not paths.isdisjoint(parents):
                problems += [f"{parent!r} carries an amount and also contains {path!r}" for parent in parents if parent in paths]
        problems += [f"{path!r} is measured and unmeasured" for path in self.unmeasured if path in self.parts]
        if problems:
            raise InputError(f"Breakdown in {self.unit}", problems)
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __repr__(self) -> str:
        return text_table(self._title(), breakdown_rows(self.parts, self.unmeasured, self.unit))

    def _title(self) -> str:
        return f"Breakdown of {amount_text(self.total, self.unit)} ({self.source})"

    @property
    def total(self) -> Amount:
        """Sum of all leaves, in `unit`."""
        return sum(self.parts.values())

    @property
    def complete(self) -> bool:
        """Whether every part of the whole was told apart."""
        return not self.unmeasured

    @property
    def unmeasured_text(self) -> str:
        """A sentence on the parts that were not told apart; empty if there are none."""
        return "" if self.complete else f"Not told apart by this recording: {', '.join(sorted(self.unmeasured))}."

    def collapse(self, depth: int) -> Breakdown:
        """The same total with paths cut to `depth` levels; parts that become one are added."""
        parts: dict[str, Amount] = {}
        for path, amount in self.parts.items():
            key = "/".join(path.split("/")[:depth])
            parts[key] = parts.get(key, 0) + amount
        unmeasured = {"/".join(path.split("/")[:depth]) for path in self.unmeasured}
        return replace(self, parts=parts, unmeasured=frozenset(path for path in unmeasured if path not in parts))

    def scale(self, factor: float) -> Breakdown:
        """Every amount times `factor`; integer amounts become floats unless the factor is an integer."""
        return replace(self, parts={path: amount * factor for path, amount in self.parts.items()})

    def under(self, prefix: str) -> Breakdown:
        """The part below `prefix`, with the prefix removed from its paths; empty if there is none."""
        start = f"{prefix}/"
        return replace(
            self,
            parts={path.removeprefix(start): amount for path, amount in self.parts.items() if path.startswith(start)},
            unmeasured=frozenset(path.removeprefix(start) for path in self.unmeasured if path.startswith(start)),
        )

    def amount(self, prefix: str) -> Amount:
        """Sum of the leaf `prefix` or of all leaves below it; 0 if there is none."""
        return sum(amount for path, amount in self.parts.items() if path == prefix or path.startswith(f"{prefix}/"))

    def to_frame(self) -> pd.DataFrame:
        """One row a leaf: `path`, `amount` (in `unit`), `share` (0 to 1 of the total)."""
        import pandas as pd  # noqa: PLC0415  (a run opens before pandas is there)

        total = self.total
        return pd.DataFrame(
            {
                "path": list(self.parts),
                "amount": list(self.parts.values()),
                "share": [amount / total if total else 0.0 for amount in self.parts.values()],
            }
        )


@lru_cache(maxsize=4096)
def _parents(path: str) -> tuple[str, ...]:
    """The paths that contain `path`; kept, as the parts of a step or of memory have the same names every time."""
    pieces = path.split("/")
    return tuple("/".join(pieces[:depth]) for depth in range(1, len(pieces)))


def join(pieces: Iterable[tuple[str, Breakdown]], source: Source) -> Breakdown:
    """One breakdown of several, each placed below its root; all must have one unit."""
    named = list(pieces)
    unit = one_unit(piece for _, piece in named)
    return Breakdown(
        unit,
        {f"{root}/{path}": amount for root, piece in named for path, amount in piece.parts.items()},
        source,
        frozenset(f"{root}/{path}" for root, piece in named for path in piece.unmeasured),
    )


def one_unit(breakdowns: Iterable[Breakdown]) -> str:
    """The unit that all share; raises InputError that names the units found otherwise."""
    units = sorted({breakdown.unit for breakdown in breakdowns})
    if len(units) != 1:
        raise InputError("breakdowns", [f"one unit is needed, found {', '.join(units) or 'no breakdown'}"])
    return units[0]


def align(a: Breakdown, b: Breakdown) -> tuple[Breakdown, Breakdown]:
    """Both collapsed to the deepest paths that they share, so that they can be compared leaf by leaf.

    Seconds meet nanoseconds here and nowhere else: if one is in "s" and the other in "ns", the former is converted to ns.
    A path that only one has is kept as long as it neither begins nor continues a path of the other. An unmeasured path stays
    unmeasured unless it was merged into a measured one.
    """
    if {a.unit, b.unit} == {"s", "ns"}:
        a, b = _to_ns(a), _to_ns(b)
    one_unit((a, b))
    paths = {*a.parts, *b.parts}
    cuts = {path: _shallowest(path, paths) for path in paths}
    return _regroup(a, cuts), _regroup(b, cuts)


def _to_ns(breakdown: Breakdown) -> Breakdown:
    if breakdown.unit == "ns":
        return breakdown
    return replace(breakdown, unit="ns", parts={path: round(amount * NS_PER_S) for path, amount in breakdown.parts.items()})


def _shallowest(path: str, paths: set[str]) -> str:
    pieces = path.split("/")
    for depth in range(1, len(pieces)):
        if (prefix := "/".join(pieces[:depth])) in paths:
            return prefix
    return path


def _regroup(breakdown: Breakdown, cuts: Mapping[str, str]) -> Breakdown:
    parts: dict[str, Amount] = {}
    for path, amount in breakdown.parts.items():
        parts[cuts[path]] = parts.get(cuts[path], 0) + amount
    apart = {path for path in breakdown.unmeasured if not any(_nested(path, kept) for kept in parts)}
    return replace(breakdown, parts=parts, unmeasured=frozenset(apart))


def _nested(path: str, other: str) -> bool:
    """Whether one of the paths is or begins the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
