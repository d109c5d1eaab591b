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
SCOPES = ("Default/", "Gradients/", "recompute_Default/", "Gradients/recompute_Default/")
"""What the scopes of operators begin with."""
_NUMBERED = re.compile(r"(?:^|/)(?:(?<!/)stream_\d+_\d+_)?(?P<operator>[A-Za-z_][\w.]*-op\d+)(?=_\d+$|$)")
"""An operator with its number, before the turn of a collective."""
_NOT_LONGER = r"(?!\d)"
"""What follows the number of an operator, so that op1 does not find op10."""


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


def looked_at(analysis: GraphAnalysis, node: str, search: str = "", show: Show = "all") -> Node | None:
    """The operator named `node`, such as "%56"; where there is none, the first worth seeing of those that the search leaves."""
    return analysis.file.find(node) or worth_seeing(analysis, search_graph(analysis, search, show))


def operator_of(kernel: str) -> str:
    """The operator of a graph that a recording names, by its full scope or by its own name alone; "" for a name of none.

    MindSpore names what runs in graph mode by the full scope of its operator, "Default/network-X/layers-CellList/0/MatMul-op3",
    and a collective by that with its turn, "Default/AllReduce-op534_0", or with its stream, "stream_36_0_AllReduce-op4542".
    """
    named = _NUMBERED.search(kernel)
    if kernel.startswith(SCOPES):
        return kernel[: named.end()] if named else kernel
    return named["operator"] if named and "/" not in kernel else ""


def search_of(kernel: str) -> str:
    """The search that finds the operator of a kernel in a graph, or the kernels of an operator in a recording; "" for none."""
    operator = operator_of(kernel)
    ended = _NOT_LONGER if _NUMBERED.search(operator) else ""
    return re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", short_scope(operator)) + ended


def _searched(node: Node) -> str:
    return " ".join((node.label, node.op, node.short_scope, node.instance_name, *node.sources))[:_MAX_SEARCHED]
