"""What a declared strategy requires: which axes are cut, what a cut contraction leaves behind, who must sum which gradient.

A strategy has one tuple a tensor input with the number of cuts of every axis; ranks beyond the product of the cuts repeat the work.
A contraction whose axis is cut leaves partial sums, which a reduction over that many ranks must complete. The gradient of a weight
is partial over the ranks that saw other rows of the activation, so the sum needs exactly the cuts that the weight does not share.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfkit.explain.graph._text import value
from perfkit.explain.graph.model import GraphFile, Node

Layout = tuple[int, ...]

CONTRACTIONS = ("MatMul", "BatchMatMul", "MatMulExt", "BatchMatMulExt", "Dense", "Linear", "GroupedMatmul")
REDUCTIONS = ("ReduceMean", "ReduceSum", "SumExt", "MeanExt", "ReduceMax", "ReduceMin", "ReduceAll", "ReduceAny", "BiasAddGrad")
LOOKUPS = ("Gather", "GatherV2", "EmbeddingLookup", "Embedding")
LOSSES = ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "CrossEntropyLoss", "NLLLoss")
VIEWS = ("Reshape", "Cast", "Load", "Depend", "TupleGetItem", "MakeTuple")
TRANSPARENT = (*VIEWS, "Split", "SplitWithSize", "Concat", "StridedSlice", "AllGather")


@dataclass(frozen=True, slots=True)
class Contraction:
    """How a strategy cuts a matrix product: rows of the activation, the contracted axis, columns of the weight."""

    rows: int
    contraction: int
    columns: int


def in_strategy(node: Node) -> tuple[Layout, ...] | None:
    """The declared cuts, one tuple a tensor input; None if the file does not say."""
    return _layouts(node.attribute("in_strategy"))


def out_strategy(node: Node) -> tuple[Layout, ...] | None:
    """The declared cuts of the results; None if the file does not say."""
    return _layouts(node.attribute("out_strategy"))


def contraction(node: Node) -> Contraction | None:
    """How the product `node` is cut; None if it is no product or its strategy is unknown."""
    if node.op not in CONTRACTIONS:
        return None
    cuts = in_strategy(node)
    if cuts is None or len(cuts) < 2 or min(len(cuts[0]), len(cuts[1])) < 2:
        return _from_shapes(node)
    transposed_a, transposed_b = transposes(node)
    left, right = cuts[0], cuts[1]
    return Contraction(
        rows=prod(left[:-2]) * (left[-1] if transposed_a else left[-2]),
        contraction=left[-2] if transposed_a else left[-1],
        columns=right[-2] if transposed_b else right[-1],
    )


def transposes(node: Node) -> tuple[bool, bool]:
    """Whether the first and the second factor are transposed, from the arguments (2.3 and later) or the attributes."""
    flags = [argument == "Bool(1)" for argument in node.arguments if argument.startswith("Bool(")]
    if len(flags) >= 2:
        return flags[0], flags[1]
    if node.op in ("Dense", "Linear"):
        return False, True
    first = node.flag("transpose_a") or node.flag("transpose_x1")
    return first, node.flag("transpose_b") or node.flag("transpose_x2")


def output_layout(node: Node) -> Layout | None:
    """Cuts of the first result as the strategy gives them; None if unknown."""
    declared = out_strategy(node)
    if declared:
        return declared[0]
    cuts = in_strategy(node)
    if not cuts:
        return None
    if node.op in CONTRACTIONS and len(cuts) >= 2 and min(len(cuts[0]), len(cuts[1])) >= 2:
        transposed_a, transposed_b = transposes(node)
        row = cuts[0][-1] if transposed_a else cuts[0][-2]
        return (*cuts[0][:-2], row, cuts[1][-2] if transposed_b else cuts[1][-1])
    return max(cuts, key=len)


def reduced_cut(node: Node) -> int | None:
    """Into how many ranks the axes that `node` sums over are cut: 1 leaves nothing to reduce, None is unknown."""
    if node.op in CONTRACTIONS:
        product = contraction(node)
        return product.contraction if product else None
    cuts = in_strategy(node)
    if not cuts:
        return None
    if node.op in LOOKUPS:
        return cuts[0][0] if cuts[0] else 1
    if node.op in REDUCTIONS or node.op in LOSSES:
        axes = _axes(node)
        layout = cuts[0]
        chosen = layout if axes is None else [layout[axis] for axis in axes if -len(layout) <= axis < len(layout)]
        return prod(chosen)
    return 1


def gradient_cut(node: Node, weight: int) -> int | None:
    """Over how many ranks the gradient of input `weight` of `node` is partial, by the strategy of `node`; None is unknown."""
    cuts = in_strategy(node)
    if cuts is None or weight >= len(cuts):
        return None
    if node.op in CONTRACTIONS:
        product = contraction(node)
        return product.rows if product and weight == 1 else None
    if node.op in LOOKUPS:
        return prod(cuts[1]) if weight == 0 and len(cuts) > 1 else None
    widest = max(cuts, key=prod)
    return prod(widest) // max(1, prod(cuts[weight]))


def behind(file: GraphFile, node: Node | None, ops: tuple[str, ...] = TRANSPARENT) -> Node | None:
    """The first operator at or before `node` that is none of `ops`, following first arguments."""
    seen = set()
    while node is not None and node.op in ops and node.id not in seen:
        seen.add(node.id)
        before = file.source(node, 0)
        if before is None:
            return node
        node = before
    return node


def _from_shapes(node: Node) -> Contraction | None:
    """The cuts by comparing local with global shapes, for products whose strategy was dropped."""
    whole = _layouts(node.attribute("origin_input_shapes"))
    local = [found.shape for found in node.in_types[:2]]
    if not whole or len(whole) < 2 or len(local) < 2 or local[0] is None or local[1] is None:
        return None
    left, right = _cuts(whole[0], local[0]), _cuts(whole[1], local[1])
    if left is None or right is None:
        return None
    transposed_a, transposed_b = transposes(node)
    return Contraction(
        rows=prod(left[:-2]) * (left[-1] if transposed_a else left[-2]),
        contraction=left[-2] if transposed_a else left[-1],
        columns=right[-2] if transposed_b else right[-1],
    )


def _cuts(whole: Layout, local: Layout) -> Layout | None:
    if len(whole) != len(local) or len(whole) < 2 or min(local) < 1:
        return None
    return tuple(total // part for total, part in zip(whole, local, strict=True))


def _axes(node: Node) -> tuple[int, ...] | None:
    if len(node.arguments) < 2:
        return None
    found = value(node.arguments[1])
    axes = found if isinstance(found, tuple) else (found,)
    return tuple(axis for axis in axes if isinstance(axis, int)) or None


def _layouts(found: object) -> tuple[Layout, ...] | None:
    if not isinstance(found, tuple) or not found:
        return None
    if all(isinstance(axis, int) for axis in found):
        return (found,)
    if all(isinstance(one, tuple) and all(isinstance(axis, int) and axis > 0 for axis in one) for one in found):
        return found
    return None
