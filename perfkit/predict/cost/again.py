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
from functools import cached_property
from itertools import pairwise

from perfkit.core.params import attention_weights
from perfkit.core.recomputed import recomputed_parts, repeated
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.predict.memory import activations
from perfkit.predict.memory.activations import Saved
from perfkit.predict.memory.settings import settings_for
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
    in the forward pass and come back. `leading` marks the dense layers ahead of those with experts.
    """

    full: float = 0.0
    core: float = 0.0
    products: float = 0.0
    gathers: float = 0.0
    light_split: float = 0.0
    light_whole: float = 0.0
    swapped: float = 0.0
    leading: bool = False

    @property
    def nothing(self) -> bool:
        """Whether the layer computes nothing again."""
        return self in (Again(), Again(leading=True))


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
    leading, read = leading_layers(plan), {False: _Reader(plan)}
    if any(map(any, leading)):
        read[True] = _Reader(dense_of(plan))

    def runs(chunk: int, stage: int, count: int) -> tuple[Run, ...]:
        first = leading[chunk][stage]
        rest = read[False].runs(chunk, stage, first, count)
        if not first:
            return rest
        ahead = read[True].runs(chunk, stage, 0, first)
        return (*((number, replace(again, leading=True)) for number, again in ahead), *rest)

    return tuple(tuple(runs(chunk, stage, count) for stage, count in enumerate(row)) for chunk, row in enumerate(plan.stage_layers))


class _Reader:
    """The layers of one plan, each different one computed once."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._recompute = plan, plan.recompute
        self._known: dict[tuple[tuple[str, ...], bool, bool], Again] = {}

    def runs(self, chunk: int, stage: int, first: int, count: int) -> tuple[Run, ...]:
        """The layers of a position from number `first` on; counts are those of all of its `count` layers."""
        recompute = self._recompute
        if recompute.all_layers or count == first:
            return ((count - first, FULL),) if count > first else ()
        full = min(count, max(first, at(recompute.full_layers, chunk, stage)))
        named = {pattern: at(counts, chunk, stage) for pattern, counts in recompute.operators.items()}
        gathers = at(recompute.communication, chunk, stage)
        swapped = at(recompute.full_layers, chunk, stage) + at(recompute.swapped_layers, chunk, stage)
        borders = sorted({full, count, *(end for end in (*named.values(), gathers, swapped) if full < end < count)})
        found = [(full - first, FULL)] if full > first else []
        for start, end in pairwise(borders):
            patterns = tuple(pattern for pattern, last in named.items() if last > start)
            found.append((end - start, self._layer(patterns, gathers > start, swapped > start)))
        return tuple(found)

    def _layer(self, patterns: tuple[str, ...], gathers: bool, swapped: bool) -> Again:
        key = (patterns, gathers, swapped)
        if key not in self._known:
            self._known[key] = self._computed(*key)
        return self._known[key]

    def _computed(self, patterns: tuple[str, ...], gathers: bool, swapped: bool) -> Again:
        plan, core = self._plan, self._recompute.attention_core
        one = RecomputePlan(operators=dict.fromkeys(patterns, ((1,),)), attention_core=core)
        parts = recomputed_parts(plan.model, one, 1)
        scores, values = float(parts["scores"]), float(parts["values"])
        split, whole = self._light(patterns) if patterns else (0.0, 0.0)
        return Again(
            # A fused kernel is repeated whole for either of its products.
            core=max(scores, values) if plan.workload.attention_kernel == "flash" else (scores + values) / 2,
            products=_repeated_products(plan.model, parts),
            gathers=float(gathers and plan.parallel.sequence_parallel),
            light_split=split,
            light_whole=whole,
            swapped=self._kept() if swapped else 0.0,
        )

    @cached_property
    def _tensors(self) -> tuple[Saved, ...]:
        plan = self._plan
        return activations.layer_tensors(plan, settings_for(plan), experts=plan.model.num_experts > 0)

    def _kept(self) -> float:
        """Bytes a token that a layer keeps."""
        kept = activations.kept_bytes(self._tensors, attention_core=self._recompute.attention_core)
        return float(sum(kept.values())) / activations.micro_batch_tokens(self._plan)

    def _light(self, patterns: tuple[str, ...]) -> tuple[float, float]:
        """Bytes a token, without tensor parallelism, that repeating element-wise operators of a layer moves: split, and whole."""
        parallel, tokens = self._plan.parallel, activations.micro_batch_tokens(self._plan)
        t = parallel.tensor_parallel_size
        split = whole = 0.0
        for tensor in self._tensors:
            makers = repeated(tensor.makers, patterns)
            moved = max(map(_traffic, makers), default=0.0) * float(tensor.bytes - tensor.gathered) / tokens
            if moved and makers[0].startswith(WHOLE):
                whole += moved * (t if parallel.sequence_parallel else 1)
            else:
                split += moved * t
        return split, whole


def _repeated_products(model: ModelSpec, parts: Mapping[str, Fraction]) -> float:
    """Share of the products with weights that is repeated."""
    block = "experts" if model.num_experts else "ffn"
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if model.num_experts else model.ffn_hidden_size
    sizes = {**attention_weights(model), block: (3 if model.gated_ffn else 2) * model.hidden_size * width}
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
