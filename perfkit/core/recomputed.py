r"""Which share of the layers' forward work a recompute plan repeats, by part of the layer.

An operator pattern such as `feed_forward\.w1\.matmul` names the path of an operator in a layer; its pieces are regular
expressions, split at `\.`, each for a full match of one name. A pattern that names a cell (`feed_forward\.w1`, `attention`)
repeats every product below it; one that names an element-wise operator (`feed_forward\.mul`, `attention_norm\.norm`) repeats no
matrix work. The names are those of the Llama and GLM models in MindFormers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from perfkit.core.params import expert_layers
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.recompute import Counts, RecomputePlan

SILU_MUL = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
"""The cheap half of a gated feed-forward block: what MindFormers repeats for `select_recompute: True`."""

PARTS = ("qkv", "scores", "values", "output", "ffn", "experts", "router", "adapters")


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product of a layer: the part of `forward_flops` it is in, its share of that part, and its names."""

    part: str
    share: Fraction
    paths: tuple[str, ...]


def recomputed_parts(model: ModelSpec, plan: RecomputePlan, num_layers: int = 0) -> dict[str, Fraction]:
    """Share of each part's forward work (0 to 1) that is done again in the backward pass, over `num_layers` (0: the model's)."""
    num_layers = num_layers or model.num_layers
    full = plan.num_full_layers(num_layers)
    if plan.all_layers:
        return dict.fromkeys(PARTS, Fraction(full, num_layers))
    beyond = tuple((pattern, _beyond(counts, plan.full_layers)) for pattern, counts in plan.operators.items())
    return dict(_shares(model, num_layers, full, beyond, attention_core=plan.attention_core))


@lru_cache(maxsize=4096)
def _shares(
    model: ModelSpec, num_layers: int, full: int, beyond: tuple[tuple[str, int], ...], *, attention_core: bool
) -> Mapping[str, Fraction]:
    """As `recomputed_parts`, of layers by pattern beyond the `full` ones; stages and plans beside one another have the same."""
    shares = dict.fromkeys(PARTS, Fraction(full, num_layers))
    for product in _products(model):
        layers = [count for pattern, count in beyond if any(matches(pattern, path) for path in product.paths)]
        shares[product.part] += product.share * Fraction(max(layers, default=0), num_layers)
    if attention_core:
        shares["scores"] = shares["values"] = Fraction(1)
    return {part: min(share, Fraction(1)) for part, share in shares.items()}


@lru_cache(maxsize=256)
def _products(model: ModelSpec) -> list[Product]:
    a, k, one = model.num_attention_heads, model.num_key_value_heads, Fraction(1)
    block = "experts" if expert_layers(model) else "ffn"
    up = Fraction(1, 3 if model.gated_ffn else 2)
    packed = ("attention.w_qkv.matmul", "attention.query_key_value.matmul")
    products = [
        Product("qkv", Fraction(a, a + 2 * k), ("attention.wq.matmul", *packed)),
        Product("qkv", Fraction(k, a + 2 * k), ("attention.wk.matmul", *packed)),
        Product("qkv", Fraction(k, a + 2 * k), ("attention.wv.matmul", *packed)),
        Product("scores", one, ("attention.flash_attention.flash_attention", "attention.batch_matmul_q_k")),
        Product("values", one, ("attention.flash_attention.flash_attention", "attention.batch_matmul")),
        Product("output", one, ("attention.wo.matmul", "attention.dense.matmul")),
        Product(block, up, ("feed_forward.w1.matmul", "feed_forward.w_gate_hidden.matmul", "mlp.dense_left.matmul")),
        Product(block, up, ("feed_forward.w2.matmul", "mlp.dense_4h_to_h.matmul")),
    ]
    if model.gated_ffn:
        products.append(
            Product(block, up, ("feed_forward.w3.matmul", "feed_forward.w_gate_hidden.matmul", "mlp.dense_right.matmul"))
        )
    return products


@lru_cache(maxsize=65536)
def matches(pattern: str, path: str) -> bool:
    """Whether the pattern names the operator at `path` or a cell above it."""
    pieces, names = re.split(r"\\\.", pattern), path.split(".")
    return len(pieces) <= len(names) and all(_full_match(piece, name) for piece, name in zip(pieces, names, strict=False))


@lru_cache(maxsize=65536)
def repeated(makers: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names of an operator that a pattern names."""
    return tuple(path for path in makers if any(matches(pattern, path) for pattern in patterns))


def _full_match(piece: str, name: str) -> bool:
    try:
        return re.fullmatch(piece, name) is not None
    except re.error:
        return False


def _beyond(counts: Counts, full: Counts) -> int:
    """Layers that `counts` names beyond those recomputed in full; both count from the first layer of a stage."""
    return sum(max(0, count - _at(full, chunk, stage)) for chunk, row in enumerate(counts) for stage, count in enumerate(row))


def _at(counts: Sequence[Sequence[int]], chunk: int, stage: int) -> int:
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0
