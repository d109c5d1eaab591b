"""Who reads what: the users of every operator and weight, and which forward operator a backward one belongs to."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from perfkit.explain.graph.model import GraphFile, Node, parameter_of

Key = tuple[int, int]

_WEIGHT_PATH = frozenset({"Load", "Cast", "AllGather", "Depend", "MakeTuple", "TupleGetItem"})
_NUMBER = re.compile(r"^para\d+_")


@dataclass(frozen=True, slots=True)
class Links:
    """`users` has, for each operator, those that read it and at which argument; `weights` the same for parameters by name."""

    users: dict[Key, list[tuple[Node, int]]]
    weights: dict[str, list[tuple[Node, int]]]
    by_unique_id: dict[str, Node]
    _uses: dict[str, list[tuple[Node, int]]] = field(default_factory=dict)

    def readers(self, node: Node) -> list[tuple[Node, int]]:
        """The operators that read `node`, each with the place of the argument."""
        return self.users.get((node.graph, node.id), [])

    def weight_uses(self, name: str) -> list[tuple[Node, int]]:
        """The forward operators that compute with the weight `name`, whatever casts and gathers it first."""
        if name not in self._uses:
            uses = reached(self, self.weights.get(name, []), _WEIGHT_PATH)
            self._uses[name] = [(node, place) for node, place in uses if not node.is_backward]
        return self._uses[name]

    def forward_of(self, node: Node) -> Node | None:
        """The forward operator whose gradient `node` is, None if the file does not hold it."""
        found = node.attribute("forward_unique_id")
        return self.by_unique_id.get(str(found)) if found is not None else None


def link(file: GraphFile) -> Links:
    """The links of all operators of `file`."""
    users: dict[Key, list[tuple[Node, int]]] = {}
    weights: dict[str, list[tuple[Node, int]]] = {}
    unique: dict[str, Node] = {}
    for node in file.nodes():
        for place, argument in enumerate(node.arguments):
            if not argument.startswith(("%", "$")):
                continue
            source = file.source(node, place)
            if source is not None:
                users.setdefault((source.graph, source.id), []).append((node, place))
            elif (name := parameter_of(argument)) is not None:
                weights.setdefault(weight_name(name), []).append((node, place))
        identity = node.attribute("unique_id")
        if identity is not None and not node.is_copy:
            unique.setdefault(str(identity), node)
    return Links(users, weights, unique)


def weight_name(parameter: str) -> str:
    """The name of a parameter without the number that printing adds: "para4_lm_head.weight" is "lm_head.weight"."""
    return _NUMBER.sub("", parameter)


def reached(links: Links, start: list[tuple[Node, int]], through: frozenset[str]) -> list[tuple[Node, int]]:
    """The readers behind `start` that are none of the operators `through`, which are followed."""
    found, queue, seen = [], deque(start), set()
    while queue:
        node, place = queue.popleft()
        if (node.graph, node.id, place) in seen:
            continue
        seen.add((node.graph, node.id, place))
        if node.op in through:
            queue += links.readers(node)
        else:
            found.append((node, place))
    return found
