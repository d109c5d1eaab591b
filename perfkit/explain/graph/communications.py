"""Every communication operator of a graph: what caused it, whom it joins, how much it moves, and whether the strategy needs it.

The cause is the instance name that the compiler gives. Bytes are per rank: an AllReduce moves its shape, an AllGather its result, a
ReduceScatter its argument. The verdict says whether the declared strategies need the operator ("expected"), another strategy would
do without ("avoidable", with the change in `fix`), or nothing in the file explains it ("unexpected").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from perfkit.explain.graph import verdicts
from perfkit.explain.graph._text import value
from perfkit.explain.graph.links import Links, link
from perfkit.explain.graph.model import GraphFile, Node, parameter_of
from perfkit.explain.graph.verdicts import Verdict

OPERATORS = frozenset(
    {
        "AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "AllToAll", "AlltoAllV", "AllToAllv", "Send", "Receive", "Broadcast",
        "Reduce", "Barrier", "CollectiveScatter", "CollectiveGather", "NeighborExchange", "NeighborExchangeV2", "AllGatherV",
        "ReduceScatterV", "MatMulAllReduce", "MatmulAllReduce", "MatMulReduceScatter", "MatmulReduceScatter", "AllGatherMatmul",
        "AllGatherMatMul",
    }
)  # fmt: skip
PLUMBING = frozenset({"Depend", "Load", "UpdateState", "MakeTuple", "TupleGetItem", "Return", "Partial", "Switch"})

_CAUSES = (
    ("grad_parallel_optimizer_allgather", "optimizer_gradient_scatter"),
    ("parallel_optimizer_allgather", "optimizer_weight_gather"),
    ("grad_mirror", "gradient_sync"),
    ("grad_redistribution_op", "backward_of_redistribution"),
    ("gradredistribution_op", "backward_of_redistribution"),
    ("redistribution_op", "redistribution"),
    ("gradforward_op", "backward_of_forward"),
    ("grad_forward_op", "backward_of_forward"),
    ("forward_op", "forward"),
)
_PIPELINE = {"Send": "pipeline_send", "Receive": "pipeline_receive"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """One communication operator. `parameter` is the weight that it serves; `trigger` the operator whose strategy asks for it."""

    node: Node
    cause: str
    group: str
    group_size: int | None
    ranks: tuple[int, ...] | None
    fusion: str | None
    producer_op: str | None
    producer_scope: str | None
    parameter: str | None
    in_shape: tuple[int, ...] | None
    out_shape: tuple[int, ...] | None
    in_bytes: int | None
    out_bytes: int | None
    verdict: str = "unexpected"
    why: str = ""
    fix: str | None = None
    predicted_s: float | None = None

    @property
    def op(self) -> str:
        """The kind of operator."""
        return self.node.op

    @property
    def message_bytes(self) -> int | None:
        """Bytes a rank contributes or receives, whichever is more."""
        known = [size for size in (self.in_bytes, self.out_bytes) if size is not None]
        return max(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """The operator as `perfkit graph --json` prints it."""
        node = self.node
        return {
            "node": node.label,
            "op": node.op,
            "instance_name": node.instance_name or None,
            "cause": self.cause,
            "group": self.group or None,
            "group_size": self.group_size,
            "ranks": None if self.ranks is None else list(self.ranks),
            "fusion": self.fusion,
            "scope": node.short_scope,
            "producer_op": self.producer_op,
            "producer_scope": self.producer_scope,
            "parameter": self.parameter,
            "dtype": (node.in_types[0].dtype if node.in_types else None) or node.out.dtype,
            "in_shape": None if self.in_shape is None else list(self.in_shape),
            "out_shape": None if self.out_shape is None else list(self.out_shape),
            "in_bytes": self.in_bytes,
            "out_bytes": self.out_bytes,
            "duplicated": node.is_copy,
            "verdict": self.verdict,
            "why": self.why,
            "fix": self.fix,
            "predicted_s": self.predicted_s,
            "complete": node.complete,
            "line": node.line,
        }


def is_communication(node: Node) -> bool:
    """Whether `node` moves data between ranks."""
    if node.op in OPERATORS:
        return True
    return "group" in node.primitive_attrs and node.op not in PLUMBING and not node.op.startswith("_")


def cause_of(node: Node) -> str:
    """What made the compiler insert `node`, by its instance name; "unknown" if that says nothing."""
    for prefix, cause in _CAUSES:
        if node.instance_name.startswith(prefix):
            return cause
    return _PIPELINE.get(node.op, "unknown")


def find_communications(file: GraphFile, links: Links | None = None) -> tuple[Communication, ...]:
    """All communication operators of `file` with cause and verdict, in the order of the file."""
    links = links or link(file)
    found = tuple(_describe(file, node) for node in file.nodes() if is_communication(node))
    scattered = {entry.ranks or entry.group for entry in found if entry.cause == "forward" and entry.op == "ReduceScatter"}
    gathers = {entry.parameter: entry.group_size or 1 for entry in found if entry.cause == "optimizer_weight_gather"}
    judged: dict[tuple[int, int], Verdict] = {}
    # The backward of an operator has the verdict of its forward, so the forward ones are judged first.
    for entry in sorted(found, key=lambda entry: entry.cause.startswith("backward_of_")):
        judged[entry.node.graph, entry.node.id] = _judge(entry, _Context(file, links, scattered, gathers, judged))
    return tuple(replace(entry, **judged[entry.node.graph, entry.node.id]._asdict()) for entry in found)


class _Context(NamedTuple):
    """What a judgement looks at: groups with forward ReduceScatters, group sizes of weight gathers, earlier judgements."""

    file: GraphFile
    links: Links
    scattered: set[Any]
    gathers: dict[str | None, int]
    judged: dict[tuple[int, int], Verdict]


def _judge(entry: Communication, context: _Context) -> Verdict:
    file, links, scattered, gathers, judged = context
    node, size = entry.node, entry.group_size
    if node.is_copy:
        return verdicts.copied(entry.cause)
    if entry.cause == "forward":
        return verdicts.forward(file, node, size)
    if entry.cause == "redistribution":
        return verdicts.redistribution(file, links, node, size, paired=(entry.ranks or entry.group) in scattered)
    if entry.cause in ("backward_of_forward", "backward_of_redistribution"):
        origin = links.forward_of(node)
        return verdicts.backward(entry.cause, judged.get((origin.graph, origin.id)) if origin else None)
    if entry.cause == "gradient_sync":
        return verdicts.gradient_sync(file, links, entry.parameter, size, gathers.get(entry.parameter, 1))
    return verdicts.fixed(entry.cause)


def _describe(file: GraphFile, node: Node) -> Communication:
    group = str(value(node.primitive_attrs.get("group", '""')))
    ranks = _ranks(node)
    in_type, out_type = (node.in_types[0] if node.in_types else None), node.out
    shape, in_bytes, out_bytes = (in_type.shape if in_type else None), (in_type.num_bytes if in_type else None), out_type.num_bytes
    out_shape = out_type.shape
    if node.op == "Receive" and out_type.shape is None:
        stated = node.attribute("shape")
        out_shape = stated if isinstance(stated, tuple) else None
    producer_op, producer_scope = _producer(file, node)
    parameter = node.attribute("mirror_user_id")
    return Communication(
        node=node,
        cause=cause_of(node),
        group=group,
        group_size=2 if node.op in _PIPELINE else _group_size(group, ranks),
        ranks=ranks,
        fusion=node.primitive_attrs.get("fusion"),
        producer_op=producer_op,
        producer_scope=producer_scope,
        parameter=parameter if isinstance(parameter, str) else None,
        in_shape=shape,
        out_shape=out_shape,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
    )


def _ranks(node: Node) -> tuple[int, ...] | None:
    for key in ("group_rank_ids", "rank_list"):
        found = node.attribute(key)
        if isinstance(found, tuple) and found and all(isinstance(rank, int) for rank in found):
            return found
    text = value(node.primitive_attrs.get("group_ranks", "")) if "group_ranks" in node.primitive_attrs else ""
    parts = str(text).split("-")
    return tuple(int(part) for part in parts) if len(parts) > 1 and all(part.isdigit() for part in parts) else None


def _group_size(group: str, ranks: tuple[int, ...] | None) -> int | None:
    if ranks:
        return len(ranks)
    prefix = group.partition("-")[0]
    return int(prefix) if prefix.isdigit() and len(prefix) < 8 and "-" in group else None


def _producer(file: GraphFile, node: Node) -> tuple[str | None, str | None]:
    source = file.source(node, 0)
    argument = node.arguments[0] if node.arguments else ""
    if source is not None and source.op == "Load" and source.arguments:
        argument = source.arguments[0]
    if parameter_of(argument):
        return "Parameter", argument
    return (source.op, source.short_scope) if source is not None else (None, None)
