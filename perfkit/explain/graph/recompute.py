"""Recomputation as configured and as it is in the graph: what is computed again, what is not, why, and what that saves.

An operator that is tagged `recompute: Bool(1)` is in effect if a copy of the same kind with the same `recompute_id` stands in the
backward pass (`duplicated: Bool(1)`). A tag without a copy saves nothing: either no backward operator needs the result, or another
operator keeps it alive, such as a Reshape between Mul and the next MatMul that is not recomputed itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.explain.graph.activations import Storage, kept_activations
from perfkit.explain.graph.communications import is_communication
from perfkit.explain.graph.links import Links, link
from perfkit.explain.graph.model import GraphFile, Node

_ON = ("Bool(1)", "true")
_CARRIERS = ("Reshape", "Transpose", "Cast", "AllGather", "Depend", "TupleGetItem", "MakeTuple", "Split", "Concat", "StridedSlice")
"""Operators whose result holds the same values as their argument, so that backward may read the one for the other."""

OUTSIDE = "copy seen, original outside the file"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recomputed:
    """A tagged operator, or a copy whose original the file does not hold (`node` is None). `fix` is a pattern to add."""

    node: Node | None
    copy: Node | None
    tag: str | None
    why: str
    fix: str | None = None

    @property
    def in_effect(self) -> bool:
        """Whether the operator is computed again in backward."""
        return self.copy is not None

    @property
    def shown(self) -> Node:
        """The operator, or its copy where the operator is missing."""
        found = self.node or self.copy
        assert found is not None
        return found

    def to_json(self) -> dict[str, Any]:
        """The operator as `perfkit graph --json` prints it."""
        shown = self.shown
        return {
            "node": self.node.label if self.node else None,
            "op": shown.op,
            "scope": shown.short_scope,
            "tag": self.tag,
            "recompute_id": shown.cnode_attrs.get("recompute_id"),
            "in_effect": self.in_effect,
            "duplicate": self.copy.label if self.copy else None,
            "why": self.why,
            "fix": self.fix,
            "out_bytes": shown.out.num_bytes,
            "line": shown.line,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputeReport:
    """All tagged operators, and what recomputation does to the file as a whole, in bytes a rank.

    `kept` and `kept_without` are the activations that backward reads, with recomputation as it is and undone; None without a
    backward pass. `repeated_communication_bytes` is moved once more a step, `num_copies` counts the operators that run again.
    """

    operators: tuple[Recomputed, ...]
    kept: Mapping[Storage, int | None] | None
    kept_without: Mapping[Storage, int | None] | None
    num_copies: int
    repeated_communication_bytes: int

    @property
    def kept_bytes(self) -> int | None:
        """Bytes of activations that backward reads; None if there is no backward pass or a shape is unknown."""
        return _total(self.kept)

    @property
    def saved_bytes(self) -> int | None:
        """Bytes that recomputation saves; negative if it keeps more than it drops."""
        with_it, without = _total(self.kept), _total(self.kept_without)
        return None if with_it is None or without is None else without - with_it


def find_recompute(file: GraphFile, links: Links | None = None) -> RecomputeReport:
    """What recomputation does in `file`."""
    links = links or link(file)
    nodes = file.nodes()
    copies = [node for node in nodes if node.is_copy]
    twins = {key: node for node in copies if (key := _identity(node)) is not None}
    originals = {key: node for node in nodes if not node.is_copy and (key := _identity(node)) is not None}
    kept = kept_activations(file)
    undone = {_storage(copy): _storage(original) for key, copy in twins.items() if (original := originals.get(key)) is not None}
    kept_without = kept_activations(file, undone) if undone else kept
    tagged = [(node, tag) for node in nodes if not node.is_copy and not node.is_backward and (tag := _tag(node)) is not None]
    context = _Context(file, links, kept is not None, bool(copies), set(kept or ()), set(kept_without or ()))
    found = [_entry(context, node, tag, twins.get(_identity(node) or ())) for node, tag in tagged]
    seen = {id(entry.copy) for entry in found}
    lost = [copy for copy in copies if id(copy) not in seen and _identity(copy) is not None and _identity(copy) not in originals]
    found += [Recomputed(node=None, copy=copy, tag=_tag(copy), why=OUTSIDE) for copy in lost]
    repeated = sum(_moved(copy) for copy in copies if is_communication(copy))
    return RecomputeReport(
        operators=tuple(found),
        kept=kept,
        kept_without=kept_without,
        num_copies=len(copies),
        repeated_communication_bytes=repeated,
    )


@dataclass(frozen=True, slots=True)
class _Context:
    file: GraphFile
    links: Links
    has_backward: bool
    has_copies: bool
    kept: set[Storage]
    kept_without: set[Storage]


def _entry(context: _Context, node: Node, tag: str, copy: Node | None) -> Recomputed:
    if copy is not None:
        return Recomputed(node=node, copy=copy, tag=tag, why=_effect(context, node))
    why, fix = _reason(context, node)
    return Recomputed(node=node, copy=None, tag=tag, why=why, fix=fix)


def _effect(context: _Context, node: Node) -> str:
    """What a copy achieves: its result is dropped, or a larger input is kept for it."""
    if _storage(node) in context.kept:
        return "in effect, but another backward operator still reads the first result, so it is kept as well"
    before = context.file.source(node, 0)
    mine, given = node.out.num_bytes, node.in_types[0].num_bytes if node.in_types else None
    if node.op == "Cast" and before is not None and mine is not None and given is not None and given > mine:
        held = {storage[:2] for storage in context.kept - context.kept_without}
        if (before.graph, before.id) in held:
            return f"in effect, but it keeps its input ({given} bytes) in place of its result ({mine} bytes)"
    return "in effect: a copy in backward computes it again"


def _reason(context: _Context, node: Node) -> tuple[str, str | None]:
    """Why a tagged operator has no copy, and the pattern that would give it one."""
    if not context.has_backward:
        return "the file has no backward pass; open a later file, *_validate_*.ir", None
    direct = [user for user, _ in context.links.readers(node) if user.is_backward and user.op not in ("Depend", "UpdateState")]
    carrier = None if direct else _carrier(context, node)
    if carrier is not None:
        place = pattern(carrier).rpartition("\\.")[0].replace("\\", "")
        what = f"{carrier.op} {carrier.label} behind it ({place})" if place else f"{carrier.op} {carrier.label} behind it"
        why = f"{what} is not recomputed and backward reads that, so the memory of {node.op} stays in use"
        return why, pattern(carrier)
    if direct and context.has_copies:
        return f"backward reads the first result ({direct[0].op} {direct[0].label}); the tag did not reach the recompute pass", None
    if direct:
        return "no operator of this file was copied: it was written before the recompute pass; open a later file", None
    return "nothing in backward needs its result, so there is nothing to save", None


def _carrier(context: _Context, node: Node) -> Node | None:
    """The operator that passes the values of `node` on and is itself read by backward, not being recomputed."""
    queue, seen = [user for user, _ in context.links.readers(node)], set()
    while queue:
        user = queue.pop(0)
        if user.op not in _CARRIERS or user.is_backward or (user.graph, user.id) in seen:
            continue
        seen.add((user.graph, user.id))
        readers = [reader for reader, _ in context.links.readers(user)]
        if any(reader.is_backward and reader.op not in ("Depend", "UpdateState") for reader in readers):
            return user
        queue += readers
    return None


def pattern(node: Node) -> str:
    r"""The pattern that selects `node` in a MindFormers recompute list, such as `feed_forward\.w2\.reshape`."""
    cells = [part.partition("-")[0] for part in node.short_scope.removeprefix("recompute_").split("/")[:-1]]
    layer = next((place for place, cell in enumerate(cells) if cell.isdecimal()), -1)
    own = node.instance_name if node.instance_name.isidentifier() and "_op_" not in node.instance_name else node.op.lower()
    return r"\.".join([*cells[layer + 1 :], own])


def block_of(node: Node) -> str:
    """The layer that `node` belongs to, such as "layers/0"; its outermost cell if it is in none."""
    parts = node.short_scope.removeprefix("recompute_").split("/")
    for place, part in enumerate(parts):
        if part.partition("-")[0].isdecimal():
            return "/".join(one.partition("-")[0] for one in parts[: place + 1])
    return parts[0].partition("-")[0] if len(parts) > 1 else "outside of layers"


def _tag(node: Node) -> str | None:
    if node.primitive_attrs.get("recompute") in _ON:
        return "primitive_attrs"
    return "cnode_attrs only" if node.cnode_attrs.get("recompute") in _ON else None


def _identity(node: Node) -> tuple[Any, ...] | None:
    """What an operator and its copy have in common; None for an operator that is part of no recomputation."""
    found = node.cnode_attrs.get("recompute_id")
    return None if found is None else (node.graph, node.op, node.cnode_attrs.get("recompute_sub_graph"), found)


def _storage(node: Node) -> Storage:
    return (node.graph, node.id, -1)


def _moved(node: Node) -> int:
    sizes = [node.in_types[0].num_bytes if node.in_types else None, node.out.num_bytes]
    return max((size for size in sizes if size is not None), default=0)


def _total(kept: Mapping[Storage, int | None] | None) -> int | None:
    if kept is None or any(size is None for size in kept.values()):
        return None
    return sum(size for size in kept.values() if size is not None)
