r"""Light work: what repeating the element-wise operators of a layer moves through memory, where a recompute plan names them.

An operator that multiplies or adds reads two inputs and writes its output, any other reads one; a view moves nothing. Its output is
a tensor of the memory model, so what is freed and what is repeated are the same bytes. Products and attention have their own time.
"""

from __future__ import annotations

from itertools import pairwise

from perfkit.core.recomputed import repeated
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts
from perfkit.predict.memory import activations
from perfkit.predict.memory.activations import Saved
from perfkit.predict.memory.settings import settings_for

VIEWS = frozenset({"reshape", "transpose", "merger_head_transpose", "tile_kv"})
PRODUCTS = frozenset({"matmul", "flash_attention", "batch_matmul", "batch_matmul_q_k"})
MULTIPLIED = frozenset({"mul", "add"})
WHOLE = ("attention_norm", "ffn_norm", "add", "attention.dropout", "feed_forward.dropout")
"""Operators on whole hidden states: tensor parallelism splits them only together with sequence parallelism."""

Bytes = tuple[float, float]
"""Bytes a token that tensor parallelism divides, and bytes that it divides only with sequence parallelism."""


def light_bytes_by_stage(plan: Plan) -> list[Bytes]:
    """Bytes a token (without tensor parallelism) that the layers of every stage move to repeat their element-wise operators.

    Layers that are recomputed in full are not counted.
    """
    recompute, layers = plan.recompute, plan.stage_layers
    tensors, known = _tensors(plan), dict[tuple[str, ...], Bytes]()
    found = []
    for stage in range(len(layers[0])):
        split = whole = 0.0
        for chunk, row in enumerate(layers):
            full = min(row[stage], at(recompute.full_layers, chunk, stage))
            named = {pattern: min(row[stage], at(counts, chunk, stage)) for pattern, counts in recompute.operators.items()}
            for start, end in pairwise(sorted({full, *(count for count in named.values() if count > full)})):
                patterns = tuple(pattern for pattern, count in named.items() if count > start)
                if patterns not in known:
                    known[patterns] = _light(plan, tensors, patterns)
                split, whole = split + (end - start) * known[patterns][0], whole + (end - start) * known[patterns][1]
        found.append((split, whole))
    return found


def swapped_bytes_by_stage(plan: Plan) -> list[float]:
    """Bytes a token that the layers of every stage send to the host in the forward pass and fetch again in the backward pass."""
    recompute, layers = plan.recompute, plan.stage_layers
    kept = activations.kept_bytes(_tensors(plan), attention_core=recompute.attention_core)
    each = sum(kept.values()) / activations.micro_batch_tokens(plan)
    found = []
    for stage in range(len(layers[0])):
        swapped = 0
        for chunk, row in enumerate(layers):
            left = row[stage] - min(row[stage], at(recompute.full_layers, chunk, stage))
            swapped += min(left, at(recompute.swapped_layers, chunk, stage))
        found.append(swapped * each)
    return found


def _tensors(plan: Plan) -> tuple[Saved, ...]:
    return activations.layer_tensors(plan, settings_for(plan), experts=plan.model.num_experts > 0)


def _light(plan: Plan, tensors: tuple[Saved, ...], patterns: tuple[str, ...]) -> Bytes:
    parallel, tokens = plan.parallel, activations.micro_batch_tokens(plan)
    t = parallel.tensor_parallel_size
    split = whole = 0.0
    for tensor in tensors:
        makers = repeated(tensor.makers, patterns)
        moved = max(map(_traffic, makers), default=0.0) * _written(tensor) / tokens
        if moved and makers[0].startswith(WHOLE):
            whole += moved * (t if parallel.sequence_parallel else 1)
        else:
            split += moved * t
    return split, whole


def _written(tensor: Saved) -> float:
    return float(tensor.bytes - tensor.gathered)


def _traffic(maker: str) -> float:
    """Reads and writes for every byte that an operator makes."""
    last = maker.rpartition(".")[2]
    if last in VIEWS or last in PRODUCTS:
        return 0.0
    return 3.0 if last in MULTIPLIED else 2.0


def at(counts: Counts, chunk: int, stage: int) -> int:
    """The count of a chunk of a stage; 0 where none is stated."""
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0
