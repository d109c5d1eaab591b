"""Graph files in memory: operators with their types and attributes, sub-graphs, and what could not be read.

Ids of operators restart in each sub-graph and shift between runs: within a file an operator is known by (sub-graph, id), between
files by its kind, scope and instance name. Attribute values are kept as printed; `attribute` reads one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfkit.explain.graph._text import ValueType, value

_REFERENCE = re.compile(r"^%(\d{1,9})(?:\[\d+\])?$")
_PARAMETER = re.compile(r"^(?:%|\$\(@.*?:%?)(para\d+_.*?)\)?$")
_WRAPPERS = ("network", "_network", "_backbone", "backbone", "model", "net")


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a graph. `line` is its line in the file, `sources` the lines of user code it comes from."""

    graph: int
    id: int
    name: str
    op: str
    arguments: tuple[str, ...]
    line: int
    instance_name: str = ""
    primitive_attrs: Mapping[str, str] = field(default_factory=dict)
    cnode_attrs: Mapping[str, str] = field(default_factory=dict)
    primal_attrs: Mapping[str, str] = field(default_factory=dict)
    in_types: tuple[ValueType, ...] = ()
    out_types: tuple[ValueType, ...] = ()
    scope: str = ""
    sources: tuple[str, ...] = ()
    complete: bool = True

    @property
    def label(self) -> str:
        """The id as printed, such as %35."""
        return f"%{self.id}"

    @property
    def out(self) -> ValueType:
        """The type of the result; empty if it is unknown."""
        return self.out_types[0] if self.out_types else ValueType()

    @property
    def short_scope(self) -> str:
        """The scope without the wrappers that all operators of a network share."""
        return short_scope(self.scope)

    @property
    def is_copy(self) -> bool:
        """Whether this is the copy that recomputes a forward operator in the backward pass."""
        return self.cnode_attrs.get("duplicated") in ("Bool(1)", "true")

    @property
    def is_backward(self) -> bool:
        """Whether the operator runs in the backward pass: a gradient, or a recomputed copy."""
        return self.is_copy or self.scope.startswith("Gradients/")

    @property
    def key(self) -> str:
        """How pages name the operator: its id, with the sub-graph in front where it is not the first."""
        return self.label if self.graph == 0 else f"{self.graph}:{self.label}"

    @property
    def result(self) -> str:
        """The type of the result in words, "" if the file does not say it."""
        if self.out.dtype is None:
            return ""
        return f"{self.out.dtype} {'?' if self.out.shape is None else self.out.shape}"

    @property
    def strategy(self) -> str:
        """The declared strategy as printed, "" if there is none."""
        text, out = (self.primitive_attrs.get(name, "") for name in ("in_strategy", "out_strategy"))
        return text + (f" out {out}" if out not in ("", "None") else "")

    def attribute(self, key: str) -> Any:
        """The value of `key` wherever it stands, None if nowhere."""
        for attrs in (self.primitive_attrs, self.cnode_attrs, self.primal_attrs):
            if key in attrs:
                return value(attrs[key])
        return None

    def flag(self, key: str) -> bool:
        """Whether the attribute `key` is set to true."""
        return self.attribute(key) is True


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: a weight (or optimizer state) of the graph, or an input such as the data."""

    name: str
    type: ValueType
    is_weight: bool
    line: int


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Operators in the order of execution, and the parameters that the sub-graph declares itself."""

    name: str
    nodes: Mapping[int, Node]
    parameters: tuple[str, ...]
    line: int
    returned: bool
    closed: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A line of the file that could not be used as it stands."""

    line: int
    what: str
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphFile:
    """One graph file. `problems` lists the first skipped, cut or repaired lines; the counts are of all."""

    name: str
    path: str
    subgraphs: tuple[Subgraph, ...]
    parameters: Mapping[str, Parameter]
    header: Mapping[str, str]
    problems: tuple[Problem, ...]
    node_lines: int
    skipped_lines: int
    repaired_lines: int
    num_lines: int
    version: str
    complete: bool

    def nodes(self) -> list[Node]:
        """All operators, sub-graph after sub-graph."""
        return [node for subgraph in self.subgraphs for node in subgraph.nodes.values()]

    def find(self, key: str) -> Node | None:
        """The operator of a `Node.key`; None if there is none of that name."""
        graph, _, label = key.rpartition(":")
        number, place = label.removeprefix("%"), int(graph) if graph.isdecimal() else 0
        if not number.isdecimal() or place >= len(self.subgraphs):
            return None
        return self.subgraphs[place].nodes.get(int(number))

    def source(self, node: Node, place: int) -> Node | None:
        """The operator that gives argument `place` of `node`, None for parameters and constants."""
        if place >= len(node.arguments):
            return None
        found = _REFERENCE.match(node.arguments[place])
        return self.subgraphs[node.graph].nodes.get(int(found[1])) if found else None

    def sources(self, node: Node) -> list[Node]:
        """The operators that give the arguments of `node`."""
        found = (self.source(node, place) for place in range(len(node.arguments)))
        return [source for source in found if source is not None]


def parameter_of(argument: str) -> str | None:
    """The name with which a parameter is printed ("para4_name"), of its own or of another sub-graph; None for other arguments."""
    found = _PARAMETER.match(argument)
    return found[1] if found else None


def short_scope(scope: str) -> str:
    """`scope` without the wrappers that all operators share: Default, the loss and training cells, the backbone."""
    rest = scope.removeprefix("Gradients/")
    mark = "recompute_" if rest != scope and rest.startswith("recompute_") else ""
    parts = rest.removeprefix("recompute_").split("/")
    start = 1 if parts[0] == "Default" and len(parts) > 1 else 0
    while start < len(parts) - 1 and parts[start].partition("-")[0] in _WRAPPERS and "-" in parts[start]:
        start += 1
    return mark + "/".join(parts[start:])
