"""Communication that the declared strategies need and the graph does not have: results would be wrong, not slow.

Only files written after sharding can be judged. Where a file is cut off or shows an excerpt, an operator that no line reads is not
called unfinished: its reduction may stand outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from perfkit.explain.graph.activations import is_forward
from perfkit.explain.graph.communications import Communication, is_communication
from perfkit.explain.graph.links import Links, reached, weight_name
from perfkit.explain.graph.model import GraphFile, Node
from perfkit.explain.graph.sharding import CONTRACTIONS, LOOKUPS, REDUCTIONS, gradient_cut, in_strategy, reduced_cut

Missing = dict[str, Any]

_PASSES = frozenset({"Depend", "TupleGetItem", "MakeTuple"})
_OPTIMIZERS = ("Apply", "AdamW", "Adam", "FusedAdam", "FusedWeight", "Lamb", "Assign", "Muon", "AdamWeightDecay")


def find_missing(file: GraphFile, links: Links, found: Sequence[Communication]) -> list[Missing]:
    """What the strategies of `file` need and no operator does."""
    nodes = file.nodes()
    if not is_sharded(nodes):
        return []
    missing = _reductions(file, links, nodes)
    if any(node.scope.startswith("Gradients/") for node in nodes):
        missing += _backwards(file, links, found)
        missing += _gradients(file, links, found)
    return missing


def is_sharded(nodes: Iterable[Node]) -> bool:
    """Whether the compiler had cut the operators when the file was written: global shapes beside local ones, or communication."""
    sharded = False
    for node in nodes:
        if node.op == "_VirtualDataset":
            return False
        sharded = sharded or "origin_input_shapes" in node.primal_attrs or is_communication(node)
    return sharded


def unpaired_messages(named: Mapping[str, Sequence[Communication]]) -> list[Missing]:
    """Sends without a Receive of the same tag and shape in any file, and the reverse; nothing if one stage is there alone."""
    sent, received = Counter[Any](), Counter[Any]()
    for entries in named.values():
        for entry in entries:
            if entry.cause in ("pipeline_send", "pipeline_receive"):
                shape = entry.in_shape if entry.cause == "pipeline_send" else entry.out_shape
                key = (entry.node.attribute("sr_tag"), shape)
                (sent if entry.cause == "pipeline_send" else received)[key] += 1
    if not sent or not received:
        return []
    lost = [("Receive", key, count) for key, count in (sent - received).items()]
    lost += [("Send", key, count) for key, count in (received - sent).items()]
    return [
        {"file": "", "what": op, "node": None, "scope": "", "why": f"{count} messages of tag {tag} and shape {shape} have no {op}"}
        for op, (tag, shape), count in lost
    ]


def _reductions(file: GraphFile, links: Links, nodes: list[Node]) -> list[Missing]:
    """Operators that sum over a cut axis while nothing reduces their partial sums."""
    missing = []
    for node in nodes:
        if node.op not in (*CONTRACTIONS, *REDUCTIONS, *LOOKUPS) or not node.complete or node.is_backward:
            continue
        cut = reduced_cut(node)
        if cut is None or cut <= 1 or in_strategy(node) is None or (node.scope and not is_forward(node)):
            continue
        users = [user for user, _ in reached(links, links.readers(node), _PASSES)]
        if not users and not file.complete:
            continue
        if not any(is_communication(user) for user in users):
            why = f"its strategy cuts the axis that it sums over {cut} ways, but no reduction follows: ranks go on with parts"
            missing.append(_missing(file, f"AllReduce behind {node.op}", node, why))
    return missing


def _backwards(file: GraphFile, links: Links, found: Sequence[Communication]) -> list[Missing]:
    """Forward communication whose gradient does not communicate."""
    done = {(origin.graph, origin.id) for entry in found if (origin := links.forward_of(entry.node)) is not None}
    missing = []
    for entry in found:
        node = entry.node
        wants = entry.cause in ("forward", "redistribution") and node.complete and not node.is_copy
        if not wants or (entry.out_bytes or 0) <= 8 or (node.graph, node.id) in done or node.attribute("unique_id") is None:
            continue
        if file.complete:
            why = "it communicates in forward, but no communication of the backward pass belongs to it"
            missing.append(_missing(file, f"backward of {node.op}", node, why))
    return missing


def _gradients(file: GraphFile, links: Links, found: Sequence[Communication]) -> list[Missing]:
    """Weights that ranks with other data update without summing their gradients."""
    synced = {entry.parameter for entry in found if entry.cause in ("gradient_sync", "optimizer_gradient_scatter")}
    missing = []
    for parameter in file.parameters.values():
        name = weight_name(parameter.name)
        uses = links.weights.get(name, [])
        if not parameter.is_weight or name in synced or not any(node.op.startswith(_OPTIMIZERS) for node, _ in uses):
            continue
        for node, place in links.weight_uses(name):
            cut = gradient_cut(node, place) if node.op in CONTRACTIONS else None
            if cut is not None and cut > 1 and file.complete:
                why = f"{cut} ranks see other data, but the gradient of {name} is not summed: the copies drift apart"
                missing.append(_missing(file, "gradient AllReduce", node, why))
                break
    return missing


def _missing(file: GraphFile, what: str, node: Node, why: str) -> Missing:
    return {"file": file.name, "what": what, "node": node.label, "scope": node.short_scope, "why": why}


def num_devices(found: Sequence[Communication], nodes: Iterable[Node]) -> int | None:
    """Devices that the file speaks of: the largest rank of a group, or the most cuts of a strategy; None if there are none."""
    ranks = [max(entry.ranks) + 1 for entry in found if entry.ranks]
    cuts = [prod(layout) for node in nodes for layout in (in_strategy(node) or ())]
    return max([*ranks, *cuts], default=None)
