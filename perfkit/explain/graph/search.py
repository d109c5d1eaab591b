"""Search: the operators of a graph by words and class, and the one that is worth seeing first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from perfkit.core.errors import InputError
from perfkit.explain.graph.model import Node, short_scope
from perfkit.explain.graph.report import GraphAnalysis

Show = Literal["all", "communication", "not expected", "recomputed", "not in effect"]
_MAX_SEARCHED = 2_000
_SCOPES = ("Default/", "Gradients/", "recompute_Default/", "Gradients/recompute_Default/")
"""What the scopes of operators begin with."""


def search_graph(analysis: GraphAnalysis, search: str = "", show: Show = "all") -> tuple[Node, ...]:
    """Operators whose kind, scope, name, weight or source matches the regular expression, of the class to show, in file order.

    Raises InputError for a search that is no regular expression.
    """
    try:
        wanted = re.compile(search, re.IGNORECASE)
    except re.error as error:
        problem = f"{search!r} is no regular expression: {error}; write for example 'w2.*MatMul'"
        raise InputError("search", [problem]) from error
    communicating = {id(entry.node): entry.verdict for entry in analysis.communications}
    recomputed = {id(entry.shown): entry.in_effect for entry in analysis.recompute.operators}

    def shown(node: Node) -> bool:
        match show:
            case "communication":
                return id(node) in communicating
            case "not expected":
                return communicating.get(id(node), "expected") != "expected"
            case "recomputed":
                return id(node) in recomputed or node.is_copy
            case "not in effect":
                return recomputed.get(id(node)) is False
            case _:
                return True

    return tuple(node for node in analysis.file.nodes() if shown(node) and wanted.search(_searched(node)))


def worth_seeing(analysis: GraphAnalysis, found: Sequence[Node]) -> Node | None:
    """The operator of `found` to begin with: what should not be, what has no effect, any communication, the first one."""
    candidates = [entry.node for entry in analysis.communications if entry.verdict != "expected"]
    candidates += [entry.shown for entry in analysis.recompute.operators if not entry.in_effect and entry.fix]
    candidates += [entry.node for entry in analysis.communications]
    inside = {id(node) for node in found}
    return next((node for node in candidates if id(node) in inside), found[0] if found else None)


def search_of(kernel: str) -> str:
    """The search that finds in a graph the operator whose kernel a recording names by its scope; "" for a name without one.

    MindSpore names a kernel of graph mode by the full scope of its operator: "Default/network-X/layers-CellList/0/MatMul-op3".
    """
    scope = short_scope(kernel) if kernel.startswith(_SCOPES) else ""
    return re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", scope)


def _searched(node: Node) -> str:
    return " ".join((node.label, node.op, node.short_scope, node.instance_name, *node.sources))[:_MAX_SEARCHED]
