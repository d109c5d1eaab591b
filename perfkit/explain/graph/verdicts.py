"""Whether the declared strategies need a communication operator, and which strategy would do without it.

A verdict compares what the strategy requires (`sharding`) with what the operator does. What cannot be compared, because the file
holds no strategy, is never called avoidable.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from perfkit.explain.graph.links import Links, reached
from perfkit.explain.graph.model import GraphFile, Node
from perfkit.explain.graph.sharding import (
    CONTRACTIONS,
    LOOKUPS,
    LOSSES,
    REDUCTIONS,
    TRANSPARENT,
    Layout,
    behind,
    contraction,
    gradient_cut,
    in_strategy,
    out_strategy,
    output_layout,
    reduced_cut,
    transposes,
)

EXPECTED, AVOIDABLE, UNEXPECTED = "expected", "avoidable", "unexpected"

_LOCAL = frozenset(TRANSPARENT) - {"AllGather"}
_ATTENTION = ("FlashAttentionScore", "BatchMatMul", "BatchMatMulExt", "Softmax", "PromptFlashAttention")
_NORMS = ("Rsqrt", "RmsNorm", "LayerNorm", "LayerNormExt", "BatchNorm", "Softmax", "Gather", "Embedding")
MAX_WALK = 60


class Verdict(NamedTuple):
    """The judgement of one communication operator."""

    verdict: str
    why: str
    fix: str | None = None


def copied(cause: str) -> Verdict:
    """A communication that recomputation repeats."""
    if cause == "optimizer_weight_gather":
        fix = "keep the gathered weights: optimizer_level 'level2', or parallel_optimizer_comm_recompute: False"
    else:
        fix = "keep its result: recompute(mp_comm_recompute=False), or leave it out of select_comm_recompute"
    return Verdict(AVOIDABLE, "communication repeated in backward because its forward node is recomputed", fix)


def fixed(cause: str) -> Verdict:
    """A communication whose cause alone decides."""
    known = {
        "optimizer_weight_gather": "weights are sharded by the parallel optimizer",
        "optimizer_gradient_scatter": "gradients of sharded weights",
        "pipeline_send": "boundary of a pipeline stage",
        "pipeline_receive": "boundary of a pipeline stage",
    }
    if cause in known:
        return Verdict(EXPECTED, known[cause])
    return Verdict(UNEXPECTED, "the compiler did not insert it for a strategy: user code or a later pass did")


def forward(file: GraphFile, node: Node, size: int | None) -> Verdict:
    """A reduction behind a forward operator: needed if that operator sums over an axis that is cut over this group."""
    source = behind(file, file.source(node, 0), ("Depend", "TupleGetItem", "MakeTuple", "Load"))
    if source is None:
        return Verdict(EXPECTED, "forward reduction; the operator that asks for it is outside the file, so it was not checked")
    cut = reduced_cut(source)
    name = f"{source.op} {source.short_scope}".strip()
    if source.op not in (*CONTRACTIONS, *REDUCTIONS, *LOOKUPS, *LOSSES):
        return Verdict(EXPECTED, f"forward reduction behind {name}; its strategy does not say which sums are partial")
    if cut is None:
        return Verdict(EXPECTED, f"forward reduction behind {name}; the file holds no strategy for it, so it was not checked")
    if cut == 1:
        fix = f"remove the reduction: no axis that {name} sums over is cut"
        return Verdict(UNEXPECTED, f"nothing that {name} sums over is cut, so its result is already whole", fix)
    if size is not None and cut != size:
        return Verdict(UNEXPECTED, f"wrong group: {name} leaves partial sums on {cut} ranks, the group has {size}")
    if source.op in CONTRACTIONS:
        if node.op == "ReduceScatter":
            return Verdict(EXPECTED, f"row MatMul with out_strategy {out_strategy(source)}: partial sums scattered by rows")
        return Verdict(EXPECTED, f"row-sharded contraction leaves partial sums: both contracted axes are cut {cut} ways")
    if source.op in LOOKUPS:
        return Verdict(EXPECTED, f"the rows of the table are cut {cut} ways; each rank looks up its part only")
    scalar = source.out.num_bytes is not None and source.out.num_bytes <= 8
    return Verdict(EXPECTED, f"{'loss mean' if scalar else 'reduction'} over a sharded tensor ({source.out.num_bytes} bytes)")


def backward(cause: str, origin: Verdict | None) -> Verdict:
    """The gradient of a communication: as needed as its forward operator."""
    what = "forward reduction" if cause == "backward_of_forward" else "redistribution"
    if origin is None:
        return Verdict(EXPECTED, f"backward of a {what} that is outside the file")
    if origin.verdict == EXPECTED and cause == "backward_of_forward":
        return Verdict(EXPECTED, "backward of the forward reduction")
    if origin.verdict == EXPECTED:
        return Verdict(EXPECTED, origin.why)
    return Verdict(origin.verdict, f"backward of an {origin.verdict} {what}", origin.fix)


def gradient_sync(file: GraphFile, links: Links, parameter: str | None, size: int | None, gathered: int) -> Verdict:
    """The sum of a weight's gradient: needed over the ranks that saw other data, not over those that repeat the same work."""
    uses = links.weight_uses(parameter or "")
    matrix = next(((node, place) for node, place in uses if node.op in (*CONTRACTIONS, *LOOKUPS)), None)
    if matrix is None:
        if parameter and "norm" in parameter.lower():
            return Verdict(EXPECTED, "gradient sum of a replicated norm weight over all ranks that hold it")
        return Verdict(EXPECTED, "gradient sum of a replicated weight over all ranks that hold it")
    node, place = matrix
    needed = gradient_cut(node, place)
    if needed is None or size is None:
        return Verdict(EXPECTED, "data-parallel gradient sum; the file holds no strategy to check it with")
    if size * gathered == needed or size == needed:
        return Verdict(EXPECTED, "data-parallel gradient sum")
    if size > needed:
        repeat = size // needed
        why = f"{parameter} is not sharded, so {repeat} ranks compute the same and sum weight gradients"
        return Verdict(AVOIDABLE, why, _shard_weight(file, node, repeat))
    return Verdict(UNEXPECTED, f"sums over {size} ranks, but {needed} ranks hold gradients of other data for {parameter}")


def redistribution(file: GraphFile, links: Links, node: Node, size: int | None, *, paired: bool) -> Verdict:
    """A change of layout between two operators: needed for sequence and context parallelism, else a mismatch of strategies."""
    source = file.source(node, 0)
    producer = behind(file, source, TRANSPARENT) if source is not None else None
    given = output_layout(producer) if producer is not None else None
    readers = [(user, place) for user, place in reached(links, links.readers(node), _LOCAL) if not user.is_backward]
    reader, place = next(((user, place) for user, place in readers if in_strategy(user)), (None, 0))
    wanted = _input_layout(reader, place) if reader is not None else None
    if producer is None or reader is None or given is None or wanted is None:
        return Verdict(UNEXPECTED, "layouts differ, but the file holds no strategy of both sides to say why")
    if paired and _gathers_rows(node, given, wanted, size) and _column_cut(reader) == size:
        rows = prod(given[:-1])
        needed = prod(wanted[:-1])
        why = f"sequence parallel: {_name(producer)} output sharded {rows} ways by rows, column MatMul needs {needed} ways"
        return Verdict(EXPECTED, why)
    if node.op in ("AlltoAll", "AllToAll", "AlltoAllV") and _swaps_for_attention(producer, reader, given, wanted):
        pair = f"{_name(producer)} and {_name(reader)}"
        return Verdict(EXPECTED, f"context parallel: cuts move from the sequence to the heads between {pair}")
    why = f"{_name(producer)} gives layout {given} but {_name(reader)} asks for {wanted}"
    return Verdict(AVOIDABLE, why, _agree(producer, reader, place, given, wanted))


def _name(node: Node) -> str:
    parts = node.short_scope.split("/")
    cells = (part.partition("-")[0] for part in reversed(parts[:-1]) if "-" in part)
    inside = next(cells, "")
    if not inside[:1].isalpha():
        return node.instance_name or node.op
    return f"{inside} {node.op}".strip()


def _input_layout(node: Node, place: int) -> Layout | None:
    cuts = in_strategy(node)
    return cuts[place] if cuts is not None and place < len(cuts) else None


def _gathers_rows(node: Node, given: Layout, wanted: Layout, size: int | None) -> bool:
    same_rank = len(given) == len(wanted) and given[-1] == wanted[-1]
    return node.op == "AllGather" and same_rank and size is not None and prod(given) == prod(wanted) * size


def _column_cut(node: Node) -> int | None:
    product = contraction(node)
    return product.columns if product is not None and product.contraction == 1 else None


def _swaps_for_attention(producer: Node, reader: Node, given: Layout, wanted: Layout) -> bool:
    return (producer.op in _ATTENTION or reader.op in _ATTENTION) and prod(given) == prod(wanted)


def _agree(producer: Node, reader: Node, place: int, given: Layout, wanted: Layout) -> str:
    """The change of one strategy after which producer and reader agree."""
    if producer.op in CONTRACTIONS and len(wanted) == len(given) and given[-1] > wanted[-1] and given[:-1] == wanted[:-1]:
        freed = given[-1] // wanted[-1]
        left = (in_strategy(producer) or ((),))[0]
        activation = (*left[:-1], left[-1] * freed)
        return f"{_name(producer)}: in_strategy {_product_strategy(producer, activation, wanted[-1])}, followed by one AllReduce"
    if reader.op in CONTRACTIONS and place == 0 and len(given) == len(wanted):
        product = contraction(reader)
        columns = 1 if product is None or given[-1] > 1 else product.columns
        text = f"{_name(reader)}: in_strategy {_product_strategy(reader, given, columns)}"
        return text + (", followed by one AllReduce" if given[-1] > 1 else "")
    cuts = in_strategy(reader) or ()
    if len(given) == len(wanted) and all(len(layout) == len(given) for layout in cuts):
        return f"{_name(reader)}: in_strategy {tuple(given for _ in cuts)}"
    return f"give {_name(producer)} and {_name(reader)} the same cuts: {given} or {wanted}"


def _product_strategy(node: Node, activation: Layout, columns: int) -> tuple[Layout, Layout]:
    _, transposed = transposes(node)
    inner = activation[-1]
    return activation, ((columns, inner) if transposed else (inner, columns))


def _shard_weight(file: GraphFile, node: Node, repeat: int) -> str:
    """The strategy that spreads a replicated weight over the `repeat` ranks that hold the same copy."""
    cuts = in_strategy(node)
    if node.op in LOOKUPS or cuts is None or len(cuts[0]) < 2:
        return f"cut its weight {repeat} ways"
    left = cuts[0]
    if _follows_a_product(file, node):
        strategy = _product_strategy(node, (*left[:-1], left[-1] * repeat), 1)
        return f"{_name(node)}: in_strategy {strategy}, followed by one AllReduce"
    product = contraction(node)
    return f"{_name(node)}: in_strategy {_product_strategy(node, left, (product.columns if product else 1) * repeat)}"


def _follows_a_product(file: GraphFile, node: Node) -> bool:
    """Whether the activation comes from another product without a norm between: the second of a column and row pair."""
    first = file.source(node, 0)
    queue: list[Node] = [first] if first else []
    seen: set[int] = set()
    while queue and len(seen) < MAX_WALK:
        at = queue.pop(0)
        if at.id in seen:
            continue
        seen.add(at.id)
        if at.op in (*CONTRACTIONS, *_ATTENTION):
            return True
        if at.op in _NORMS:
            return False
        queue += file.sources(at)
    return False
