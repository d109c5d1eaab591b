"""Two graph files compared: which operators appeared, went, moved or changed, and what that does to communication and memory.

Operators are matched by kind, scope and instance name; ids, the counters at the end of scopes and the hashes in instance names
shift from run to run and are left out. Of operators alike in all of these, those with equal types and strategies are paired first,
the others in order. The order of execution is compared over the paired ones: the fewest that must have moved are named.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfkit.explain.graph.model import Node
from perfkit.explain.graph.recompute import block_of
from perfkit.explain.graph.report import GraphAnalysis

_COUNTER = re.compile(r"-op\d+$")
_HASH = re.compile(r"\d{6,}")
_COMPARED = ("in_strategy", "out_strategy", "recompute", "group", "fusion", "recompute_comm_op")


class Pair(NamedTuple):
    """The same operator in both files."""

    before: Node
    after: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphDifference:
    """What is different in `after`. `relocated` changed their scope, `reordered` their place among the others."""

    before: GraphAnalysis
    after: GraphAnalysis
    added: tuple[Node, ...]
    removed: tuple[Node, ...]
    relocated: tuple[Pair, ...]
    reordered: tuple[Pair, ...]
    changed: tuple[tuple[Pair, tuple[str, ...]], ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.relocated or self.reordered or self.changed)

    def to_json(self) -> dict[str, Any]:
        """The document that `perfkit compare` prints for two graphs; amounts are bytes a rank."""
        parts = [
            {"path": path, "a": a, "b": b, "delta": None if a is None or b is None else b - a} for path, a, b in self._amounts()
        ]
        moved = [{**_entry(pair.after), "from": pair.before.short_scope, "to": pair.after.short_scope} for pair in self.relocated]
        moved += [{**_entry(pair.after), "from": pair.before.label, "to": pair.after.label} for pair in self.reordered]
        return {
            "a": self.before.file.name,
            "b": self.after.file.name,
            "kind": "graphs",
            "unit": "bytes",
            "total": {"a": len(self.before.file.nodes()), "b": len(self.after.file.nodes()), "unit": "operators"},
            "parts": parts,
            "added": [_entry(node) for node in self.added],
            "removed": [_entry(node) for node in self.removed],
            "moved": moved,
            "changed": [{**_entry(pair.after), "what": list(what)} for pair, what in self.changed],
        }

    def _amounts(self) -> list[tuple[str, int | None, int | None]]:
        sides = (self.before, self.after)
        causes = sorted({entry.cause for side in sides for entry in side.communications})
        rows: list[tuple[str, int | None, int | None]] = []
        for cause in causes:
            a, b = (sum(e.message_bytes or 0 for e in side.communications if e.cause == cause) for side in sides)
            rows.append((f"communication/{cause}", a, b))
        return [*rows, ("activations/kept", self.before.recompute.kept_bytes, self.after.recompute.kept_bytes)]


def compare_graphs(before: GraphAnalysis, after: GraphAnalysis) -> GraphDifference:
    """What is different in `after`."""
    old, new = before.file.nodes(), after.file.nodes()
    pairs, lost, fresh = _paired(old, new, lambda node: (*_identity(node), _shape(node)))
    more, lost, fresh = _paired(lost, fresh, _identity)
    relocated, lost, fresh = _paired(lost, fresh, lambda node: (node.op, _name(node), node.is_copy, block_of(node), _shape(node)))
    pairs += more
    places = {id(node): place for place, node in enumerate(new)}
    order = {id(node): place for place, node in enumerate(old)}
    pairs.sort(key=lambda pair: order[id(pair.before)])
    return GraphDifference(
        before=before,
        after=after,
        added=tuple(fresh),
        removed=tuple(lost),
        relocated=tuple(relocated),
        reordered=tuple(_out_of_order(pairs, [places[id(pair.after)] for pair in pairs])),
        changed=tuple((pair, what) for pair in pairs if (what := _changes(pair))),
    )


def _paired(old: Iterable[Node], new: Iterable[Node], key: Callable[[Node], Hashable]) -> tuple[list[Pair], list[Node], list[Node]]:
    """Pairs of operators with equal keys, first with first; and those left on both sides."""
    waiting: dict[Hashable, deque[Node]] = defaultdict(deque)
    for node in old:
        waiting[key(node)].append(node)
    pairs, fresh = [], []
    for node in new:
        queue = waiting.get(key(node))
        if queue:
            pairs.append(Pair(queue.popleft(), node))
        else:
            fresh.append(node)
    paired = {id(pair.before) for pair in pairs}
    return pairs, [node for node in old if id(node) not in paired], fresh


def _identity(node: Node) -> tuple[Hashable, ...]:
    # cell.recompute() puts "recompute_" in front of the scopes of all operators of a cell; they stay where they are.
    return (node.op, _COUNTER.sub("", node.scope.replace("recompute_Default/", "Default/", 1)), _name(node), node.is_copy)


def _name(node: Node) -> str:
    return _HASH.sub("*", node.instance_name)


def _shape(node: Node) -> tuple[Hashable, ...]:
    return (node.in_types, node.out_types, node.primitive_attrs.get("in_strategy"))


def _changes(pair: Pair) -> tuple[str, ...]:
    """What two paired operators differ in, in words."""
    before, after = pair
    found = [
        f"{key}: {_text(before, key)} -> {_text(after, key)}" for key in _COMPARED if before.attribute(key) != after.attribute(key)
    ]
    if [kind.shape for kind in before.out_types] != [kind.shape for kind in after.out_types]:
        found.append(f"result: {before.out.shape} -> {after.out.shape}")
    if before.out.dtype != after.out.dtype:
        found.append(f"type: {before.out.dtype} -> {after.out.dtype}")
    return tuple(found)


def _text(node: Node, key: str) -> str:
    found = node.attribute(key)
    return "none" if found is None else str(found)


def _out_of_order(pairs: list[Pair], places: list[int]) -> list[Pair]:
    """The pairs outside of a longest run whose places rise: the fewest that must have been moved."""
    tails: list[int] = []
    ends: list[int] = []
    previous = [-1] * len(places)
    for index, place in enumerate(places):
        at = bisect_left(tails, place)
        if at == len(tails):
            tails.append(place)
            ends.append(index)
        else:
            tails[at], ends[at] = place, index
        previous[index] = ends[at - 1] if at else -1
    kept = set()
    index = ends[-1] if ends else -1
    while index >= 0:
        kept.add(index)
        index = previous[index]
    return [pair for place, pair in enumerate(pairs) if place not in kept]


def _entry(node: Node) -> dict[str, Any]:
    return {"node": node.label, "op": node.op, "scope": node.short_scope}
