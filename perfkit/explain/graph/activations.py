"""Which results of the forward pass the backward pass still reads, and how many bytes they hold on a rank.

An operator that only renames a result (Reshape, Depend, TupleGetItem, MakeTuple, Load) owns no memory and is followed to its
source. Results that depend on weights alone, such as their casts, are no activations. The sum is a static lower bound of what must
survive the forward pass, over all micro batches of the file; it is not a peak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfkit.explain.graph._text import ValueType, tensor_bytes, value
from perfkit.explain.graph.model import GraphFile, Node, parameter_of

Storage = tuple[int, int, int]
"""A result: sub-graph, operator, and its place among the results (-1: the only one)."""

_RENAMES = ("Reshape", "Depend", "Load")
_FIRST_ONLY = ("Depend", "Load")
_ORDER_ONLY = ("UpdateState",)
_OUTSIDE = ("optimizer", "grad_scale", "loss_scaling")


def kept_activations(file: GraphFile, originals: Mapping[Storage, Storage] | None = None) -> dict[Storage, int | None] | None:
    """Forward results that backward reads, with their bytes (None: unknown shape); None if the file has no backward pass.

    With `originals`, a map from the results of recomputed copies to those of the operators they repeat, the copies are undone: the
    answer is what would be kept without recomputation.
    """
    nodes = file.nodes()
    if not any(node.scope.startswith("Gradients/") for node in nodes):
        return None
    data = _depends_on_data(file, nodes)
    undone = originals or {}
    kept: dict[Storage, int | None] = {}
    for node in nodes:
        if not node.is_backward or node.op in _ORDER_ONLY or (originals is not None and node.is_copy):
            continue
        for place in range(1 if node.op in _FIRST_ONLY else len(node.arguments)):
            for storage in storages(file, node, place):
                found = undone.get(storage, storage)
                producer = file.subgraphs[found[0]].nodes[found[1]]
                if is_forward(producer) and found[:2] in data:
                    kept[found] = _bytes(producer, found[2])
    return kept


def storages(file: GraphFile, node: Node, place: int) -> list[Storage]:
    """The results that argument `place` of `node` names, followed through operators that only rename."""
    first = file.source(node, place)
    found: list[Storage] = []
    queue: list[tuple[Node | None, int]] = [(first, -1)]
    seen: set[Storage] = set()
    while queue:
        at, index = queue.pop()
        if at is None or (at.graph, at.id, index) in seen:
            continue
        seen.add((at.graph, at.id, index))
        if at.op in _RENAMES:
            queue.append((file.source(at, 0), index))
        elif at.op == "TupleGetItem":
            queue.append((file.source(at, 0), _index(at)))
        elif at.op == "MakeTuple":
            places = range(len(at.arguments)) if index < 0 else [index]
            queue += [(file.source(at, one), -1) for one in places]
        else:
            found.append((at.graph, at.id, index))
    return found


def is_forward(node: Node) -> bool:
    """Whether `node` belongs to the forward pass of the network: no gradient, no recomputed copy, no optimizer."""
    parts = node.scope.split("/", 2)
    inside = len(parts) > 1 and parts[0] in ("Default", "recompute_Default") and parts[1].partition("-")[0] not in _OUTSIDE
    return inside and not node.is_copy


def by_operator(file: GraphFile, kept: Mapping[Storage, int | None]) -> dict[str, dict[str, int]]:
    """Count and bytes of kept results by the kind of operator that made them."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for (graph, identity, _), num_bytes in kept.items():
        op = file.subgraphs[graph].nodes[identity].op
        count[op] += 1
        size[op] += num_bytes or 0
    return {op: {"count": count[op], "bytes": size[op]} for op in sorted(count)}


def _depends_on_data(file: GraphFile, nodes: list[Node]) -> set[tuple[int, int]]:
    """The operators that read the input data, directly or not; what the file does not define counts as data."""
    found: set[tuple[int, int]] = set()
    for node in nodes:
        arguments = node.arguments[:1] if node.op in _FIRST_ONLY else node.arguments
        for place, argument in enumerate(arguments):
            source = file.source(node, place)
            if source is None:
                name = parameter_of(argument)
                known = file.parameters.get(name) if name else None
                unknown = argument[:1] == "%" and name is None
                if unknown or (name is not None and (known is None or not known.is_weight)):
                    found.add((node.graph, node.id))
            elif (source.graph, source.id) in found or source.id > node.id:
                found.add((node.graph, node.id))
    return found


def _index(node: Node) -> int:
    found = value(node.arguments[1]) if len(node.arguments) > 1 else None
    return found if isinstance(found, int) and found >= 0 else -1


def _bytes(node: Node, index: int) -> int | None:
    kind: ValueType = node.out
    if index < 0:
        return kind.num_bytes
    return tensor_bytes(*kind.tensors[index]) if index < len(kind.tensors) else None
