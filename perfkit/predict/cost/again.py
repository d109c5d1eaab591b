r"""Again: what every layer of a plan computes again in its backward pass, by chunk and stage of the pipeline.

Counts name the first layers of a position (a chunk of a stage). A layer that repeats less than all of its forward pass repeats
products, the core of attention, and element-wise operators. What those move is the memory model's: an operator that multiplies or
adds reads two inputs and writes its output, any other reads one, and a view moves nothing; so what is freed and what is repeated
are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

from perfkit.core.params import attention_weights
from perfkit.core.recomputed import recomputed_parts, repeated
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.trained import Span
from perfkit.predict.memory import activations
from perfkit.predict.memory.activations import Saved
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.memory.sizes import of_plan
from perfkit.predict.memory.waiting import expert_layers_in

VIEWS = frozenset({"reshape", "transpose", "merger_head_transpose", "tile_kv"})
PRODUCTS = frozenset({"matmul", "flash_attention", "batch_matmul", "batch_matmul_q_k"})
MULTIPLIED = frozenset({"mul", "add"})
WHOLE = ("attention_norm", "ffn_norm", "add", "attention.dropout", "feed_forward.dropout")
"""Operators on whole hidden states: tensor parallelism splits them only together with sequence parallelism."""


@dataclass(frozen=True, slots=True)
class Again:
    """What one layer computes again: all of it (`full`, 0 or 1), or shares (0 to 1) and bytes a token of the rest.

    `core` is the share of scores and values, `products` that of the other products, `gathers` says (0 or 1) whether what sequence
    parallelism splits is gathered again. `light_split` and `light_whole` are the bytes that repeated element-wise operators move,
    those that tensor parallelism divides and those that it divides only with sequence parallelism; `swapped` bytes go to the host
    in the forward pass and come back. `leading` marks the dense layers ahead of those with experts; `way` is one of `WAYS`.
    """

    full: float = 0.0
    core: float = 0.0
    products: float = 0.0
    gathers: float = 0.0
    light_split: float = 0.0
    light_whole: float = 0.0
    swapped: float = 0.0
    leading: bool = False
    way: int = 0

    @property
    def nothing(self) -> bool:
        """Whether the layer computes nothing again."""
        return replace(self, leading=False, way=0) == Again()

    @property
    def kind(self) -> int:
        """The place of such layers among `CostColumns.kinds`."""
        return 2 * self.way + self.leading


WAYS = TRAINED, FROZEN, SKIPPED = 0, 1, 2
"""Of a layer something is trained; or nothing, and gradients pass through; or it has no backward pass."""
FULL = Again(full=1.0)
Run = tuple[int, Again]
"""Layers that follow each other and compute the same again."""


def dense_of(plan: Plan) -> Plan:
    """The plan with a model whose layers are all like the dense ones that lead in a model with experts."""
    alone = replace(plan.parallel, expert_parallel_size=1, expert_tensor_parallel_size=0)
    return replace(plan, model=replace(plan.model, num_experts=0, num_dense_layers=0), parallel=alone)


def leading_layers(plan: Plan) -> Counts:
    """By chunk and stage, how many layers are dense ones ahead of those with experts."""
    layers, model = plan.stage_layers, plan.model
    if not (model.num_experts and model.num_dense_layers):
        return tuple((0,) * len(row) for row in layers)
    mixed = expert_layers_in(layers, model.num_dense_layers)
    return tuple(tuple(count - own for count, own in zip(*rows, strict=True)) for rows in zip(layers, mixed, strict=True))


def layers_again(plan: Plan) -> tuple[tuple[tuple[Run, ...], ...], ...]:
    """By chunk and stage, from the first layer on, what how many layers compute again."""
    different, places = runs_again(plan)
    return tuple(tuple(different[place] for place in row) for row in places)


def runs_again(plan: Plan) -> tuple[list[tuple[Run, ...]], Counts]:
    """As `layers_again`: what positions compute again, each different one once, and by chunk and stage which of them it is."""
    leading = leading_layers(plan)
    spans = plan.model.trained_layers.spans(plan.stage_layers) if plan.model.trained_layers else None
    different, places = _different(plan.stage_layers, leading, plan.recompute, spans)
    parts = dict.fromkeys(part for runs in different for _, part in runs)
    alike = {False: plan, True: dense_of(plan)} if any(map(any, leading)) else {False: plan}
    sorts = dict.fromkeys((part.leading, part.way == FROZEN) for part in parts)
    readers = {(dense, frozen): _Reader(alike[dense], frozen=frozen) for dense, frozen in sorts}
    known = {part: readers[part.leading, part.way == FROZEN].layer(part) for part in parts}
    return [tuple((count, known[part]) for count, part in runs) for runs in different], places


class _Part(NamedTuple):
    """What of a layer is computed again: all of it, or the operators of patterns, what is gathered; whether it is swapped."""

    leading: bool
    full: bool = True
    patterns: tuple[str, ...] = ()
    gathers: bool = False
    swapped: bool = False
    way: int = TRAINED


_Runs = tuple[tuple[int, _Part], ...]


@lru_cache(maxsize=4096)
def _different(
    layers: Counts, leading: Counts, recompute: RecomputePlan, spans: tuple[tuple[Span, ...], ...] | None
) -> tuple[tuple[_Runs, ...], Counts]:
    """The different runs of parts of positions, and which of them every position has; no size of a layer decides that."""
    found: dict[_Runs, int] = {}
    places = []
    for chunk, row in enumerate(layers):
        runs = ((_runs(recompute, chunk, stage, count, leading[chunk][stage])) for stage, count in enumerate(row))
        if spans:
            runs = (_with_ways(own, span) for own, span in zip(runs, spans[chunk], strict=True))
        places.append(tuple(found.setdefault(own, len(found)) for own in runs))
    return tuple(found), tuple(places)


def _runs(recompute: RecomputePlan, chunk: int, stage: int, count: int, dense: int) -> _Runs:
    """The layers of a position, of which the first `dense` ones lead; recomputation counts from the first one on."""
    ahead = _of_kind(recompute, chunk, stage, (0, dense), leading=True) if dense else ()
    return (*ahead, *_of_kind(recompute, chunk, stage, (dense, count), leading=False))


def _of_kind(recompute: RecomputePlan, chunk: int, stage: int, layers: tuple[int, int], *, leading: bool) -> _Runs:
    first, count = layers
    if recompute.all_layers or count == first:
        return ((count - first, _Part(leading)),) if count > first else ()
    full = min(count, max(first, at(recompute.full_layers, chunk, stage)))
    named = {pattern: at(counts, chunk, stage) for pattern, counts in recompute.operators.items()}
    gathers = at(recompute.communication, chunk, stage)
    swapped = at(recompute.full_layers, chunk, stage) + at(recompute.swapped_layers, chunk, stage)
    borders = sorted({full, count, *(end for end in (*named.values(), gathers, swapped) if full < end < count)})
    found = [(full - first, _Part(leading))] if full > first else []
    for start, end in pairwise(borders):
        patterns = tuple(pattern for pattern, last in named.items() if last > start)
        found.append((end - start, _Part(leading, full=False, patterns=patterns, gathers=gathers > start, swapped=swapped > start)))
    return tuple(found)


def _with_ways(runs: _Runs, span: Span) -> _Runs:
    """The layers of a position by what of them is trained; what has no backward pass computes nothing again."""
    found, first = [], 0
    for count, part in runs:
        borders = sorted({first, first + count, *(border for border in span if first < border < first + count)})
        for start, end in pairwise(borders):
            if start < span.skipped:
                own = _Part(part.leading, full=False, way=SKIPPED)
            else:
                own = part._replace(way=TRAINED if span.start <= start < span.end else FROZEN)
            found.append((end - start, own))
        first += count
    return tuple(found)


class _Reader:
    """The layers of one kind of a plan, trained ones or frozen ones."""

    def __init__(self, plan: Plan, *, frozen: bool) -> None:
        self._plan, self._core, self._frozen = plan, plan.recompute.attention_core, frozen

    def layer(self, part: _Part) -> Again:
        """What a layer of which `part` is repeated computes again."""
        if part.full:
            return replace(FULL, leading=part.leading, way=part.way)
        if part.way == SKIPPED:
            return Again(leading=part.leading, way=SKIPPED)
        plan, flash = self._plan, self._plan.workload.attention_kernel == "flash"
        core, products = _shares(plan.model, part.patterns, attention_core=self._core, flash=flash)
        split, whole = self._light(part.patterns) if part.patterns else (0.0, 0.0)
        return Again(
            core=core,
            products=products,
            gathers=float(part.gathers and plan.parallel.sequence_parallel),
            light_split=split,
            light_whole=whole,
            swapped=self._kept() if part.swapped else 0.0,
            leading=part.leading,
            way=part.way,
        )

    @cached_property
    def _tensors(self) -> tuple[tuple[Saved, ...], float]:
        """What a layer keeps of a micro batch on one device, and its tokens there."""
        kind, sizes = of_plan(self._plan, settings_for(self._plan))
        kind = replace(kind, in_frozen_layer=self._frozen)
        batch = activations.micro_batch(kind, sizes)
        return activations.tensors_of(kind, sizes, batch, experts=kind.num_experts), batch.tokens

    def _kept(self) -> float:
        """Bytes a token that a layer keeps."""
        tensors, tokens = self._tensors
        return float(sum(activations.kept_bytes(tensors, attention_core=self._core).values())) / tokens

    def _light(self, patterns: tuple[str, ...]) -> tuple[float, float]:
        """Bytes a token, without tensor parallelism, that repeating element-wise operators of a layer moves: split, and whole."""
        parallel, (tensors, tokens) = self._plan.parallel, self._tensors
        t = parallel.tensor_parallel_size
        split = whole = 0.0
        for tensor in tensors:
            makers = repeated(tensor.makers, patterns)
            moved = max(map(_traffic, makers), default=0.0) * float(tensor.bytes - tensor.gathered) / tokens
            if moved and makers[0].startswith(WHOLE):
                whole += moved * (t if parallel.sequence_parallel else 1)
            else:
                split += moved * t
        return split, whole


@lru_cache(maxsize=4096)
def _shares(model: ModelSpec, patterns: tuple[str, ...], *, attention_core: bool, flash: bool) -> tuple[float, float]:
    """Shares of a layer's attention core and of its other products that are repeated: the model alone decides them."""
    one = RecomputePlan(operators=dict.fromkeys(patterns, ((1,),)), attention_core=attention_core)
    parts = recomputed_parts(model, one, 1)
    scores, values = float(parts["scores"]), float(parts["values"])
    # A fused kernel is repeated whole for either of its products.
    return max(scores, values) if flash else (scores + values) / 2, _repeated_products(model, parts)


def _repeated_products(model: ModelSpec, parts: Mapping[str, Fraction]) -> float:
    """Share of the products with weights that is repeated."""
    block = "experts" if model.num_experts else "ffn"
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if model.num_experts else model.ffn_hidden_size
    sizes = {**attention_weights(model), block: (3 if model.gated_ffn else 2) * model.hidden_size * width}
    sizes["adapters"] = model.adapters.weights(model) if model.adapters else 0
    return sum(float(parts[part]) * size for part, size in sizes.items()) / sum(sizes.values())


def _traffic(maker: str) -> float:
    """Reads and writes for every byte that an operator makes."""
    last = maker.rpartition(".")[2]
    if last in VIEWS or last in PRODUCTS:
        return 0.0
    return 3.0 if last in MULTIPLIED else 2.0


def at(counts: Counts, chunk: int, stage: int) -> int:
    """The count of a chunk of a stage; 0 where none is stated."""
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0
