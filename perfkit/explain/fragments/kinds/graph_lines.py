"""Lines of a compiler graph (IR): each operator with its shapes, work and bytes, why data are moved, what is computed again."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from perfkit.config.lint.check import Problem
from perfkit.core.figure import Figure, figure
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.parse import read_stream
from perfkit.explain.graph.report import GraphAnalysis, analyse
from perfkit.explain.graph.sharding import contraction

_LINE = re.compile(
    r"^\s*(?:%(?:para)?(?=[\dOolI]*\d)[\dOolI]+\s*[(_=]|:\s*\(<|#\s*(?:Fullname|[Ss]cope|IR entry|In file)"
    r"|\((?:Default|Gradients|recompute_Default)/|subgraph )"
)
SHOWN = 40


def _read(piece: Piece) -> Part:
    text = piece.text.encode()
    found = analyse(read_stream(io.BytesIO(text), name=piece.name, size=len(text)), piece.plan.hardware if piece.plan else None)
    nodes = found.file.nodes()
    says = [_said(node) for node in nodes[:SHOWN]]
    if len(nodes) > SHOWN:
        says.append(say("and {number} more operators", number=len(nodes) - SHOWN))
    return Part(
        kind=FRAGMENT.name,
        title=say("compiler graph (IR), operators: {number}", number=len(nodes)),
        belongs="a file of the folder that save_graphs_path names",
        says=(*says, *_moves(found), *_again(found)),
        figures=tuple(_figures(nodes, found)),
        problems=tuple(_problems(found, piece)),
    )


def _said(node: Node) -> str:
    inputs = " x ".join(str(list(one.shape)) for one in node.in_types if one.shape)
    out = f"{list(node.out.shape)} {node.out.dtype}" if node.out.shape is not None else "a result of unknown shape"
    strategy = node.attribute("in_strategy")
    form = "{node} {op}: {inputs} -> {out}, cut {strategy}" if strategy else "{node} {op}: {inputs} -> {out}"
    shapes = inputs or "inputs of unknown shape"
    return say(form, node=node.label, op=node.op.removeprefix("PrimFunc_"), inputs=shapes, out=out, strategy=str(strategy))


def _moves(found: GraphAnalysis) -> Iterator[str]:
    for entry in found.communications:
        size = say(" of {message_bytes}", message_bytes=entry.message_bytes) if entry.message_bytes else ""
        ranks = say(" over {number} devices", number=entry.group_size) if entry.group_size else ""
        form, cause = "{node} {op}{size}{ranks}: {verdict}, because of {cause}: {why}", entry.cause.replace("_", " ")
        named = {"node": entry.node.label, "op": entry.op, "size": size, "ranks": ranks}
        yield say(form, **named, verdict=str(entry.verdict), cause=cause, why=entry.why)


def _again(found: GraphAnalysis) -> Iterator[str]:
    for one in found.recompute.operators:
        state = "computed again" if one.in_effect else "configured, but not computed again"
        form = "{node} {op}: {state}; {why}; add {fix}" if one.fix else "{node} {op}: {state}; {why}"
        yield say(form, node=one.shown.label, op=one.shown.op, state=state, why=one.why, fix=one.fix or "")


def _figures(nodes: list[Node], found: GraphAnalysis) -> Iterator[Figure]:
    for node in nodes[:SHOWN]:
        product = _flops(node)
        if product is not None:
            yield figure(
                say("work of {node} {op}", node=node.label, op=node.op), product, "FLOP", "computed", "2 x m x n x p of the shapes"
            )
        if node.op.removeprefix("PrimFunc_") == "Cast" and node.in_types:
            for form, size in (("bytes into {node}", node.in_types[0].num_bytes), ("bytes out of {node}", node.out.num_bytes)):
                if size is not None:
                    yield figure(say(form, node=node.label), size, "bytes", "computed", "elements x size of the type")
    for entry in found.communications:
        if entry.message_bytes is not None:
            yield figure(
                say("message of {node} {op}", node=entry.node.label, op=entry.op),
                entry.message_bytes,
                "bytes",
                "computed",
                "elements x size of the type",
            )


def _flops(node: Node) -> float | None:
    """The multiply-adds of a product, twice; None for other operators."""
    if "MatMul" not in node.op or contraction(node) is None or node.out.shape is None or not node.in_types:
        return None
    first, out = node.in_types[0].shape, node.out.shape
    if not first or not out:
        return None
    elements = 1
    for size in out:
        elements *= size
    inner = first[-2] if node.flag("transpose_a") else first[-1]
    return 2.0 * elements * inner


def _problems(found: GraphAnalysis, piece: Piece) -> Iterator[Problem]:
    for one in found.file.problems:
        message = say("{what}: {text}", what=one.what, text=one.text[:60]) if one.text else one.what
        yield piece.problem("damaged-line", "information", message, line=one.line)
    for entry in found.communications:
        if entry.verdict == "unexpected" and entry.cause != "unknown":
            yield piece.problem(
                "unexpected-communication",
                "warning",
                say("{what}: {text}", what=entry.op, text=entry.why),
                line=entry.node.line,
                fix=entry.fix or "",
            )
    devices, plan = found.num_devices, piece.plan
    if devices is not None and plan is not None and devices > plan.num_devices:
        message = say("the graph is of {listed} devices, the plan of {number}", listed=devices, number=plan.num_devices)
        yield piece.problem("device-count", "warning", message)


FRAGMENT = FragmentKind(
    name="graph_lines",
    title="lines of a compiler graph",
    looks_for="lines such as `%13(x) = MatMul(%1, %2) ...`",
    order=10,
    claims=lambda line: _LINE.match(line) is not None,
    read=_read,
)
