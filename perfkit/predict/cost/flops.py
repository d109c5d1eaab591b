"""FLOPs: the matrix work of one token, in which part of the model, forward, backward and recomputed.

One multiply-add is 2 FLOP. Only matrix products count, as in MFU (arXiv 2204.02311, appendix B): no norms, no softmax, no
embedding lookup. The backward pass does each product twice, for inputs and for weights; that of a frozen weight once, for inputs
(of the lowest layer too, which needs it only where layers are computed again); layers with nothing trained below or in them have no
backward pass. Figures are FLOP per token of a sequence
of s tokens; times s they are FLOP per sample.

Letters: h hidden, v vocabulary, L layers, a heads, d head size, E experts, s sequence length. Attention `full` counts the square of
scores, `causal` the half below the diagonal; a sliding window keeps the same share of both. A mixture layer counts the experts that
a token uses.
The guides' own layer tables and closed forms are in `perfkit.predict.cost.guide`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Literal

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.numbers import Number, minimum
from perfkit.core.params import attention_weights, expert_layers, ffn_weights, shared_width
from perfkit.core.recomputed import recomputed_parts
from perfkit.core.source import Source
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import even_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.trained import TrainedLayers

Attention = Literal["full", "causal"]
WITH_TWO_GRADIENTS = ("layers/scores", "layers/values", "layers/adapters")
"""Parts whose both factors have gradients though the model's own weights are frozen."""
UNIT = "FLOP/token"
SOURCE = Source(
    "computed", "perfkit.predict.cost.flops.forward_flops", "2 x elements of every matrix, plus scores and values of attention"
)
TRAINING_SOURCE = Source(
    "computed",
    "perfkit.predict.cost.flops.training_flops",
    "forward and backward: every product twice more, of frozen weights once",
)
RECOMPUTE_SOURCE = Source(
    "computed", "perfkit.predict.cost.flops.recompute_flops", "forward work done again; the head is never recomputed"
)


def matmul_flops(m: int, n: int, p: int) -> int:
    """FLOP of a product (m, n) x (n, p): mnp multiplications and mnp additions."""
    return 2 * m * n * p


def forward_flops(model: ModelSpec, seq_length: int, attention: Attention = "full", *, head: bool = True) -> Breakdown:
    """FLOP per token of the forward pass, by part of the model.

    Leaves: `layers/qkv`, `layers/scores`, `layers/values`, `layers/output`, `layers/ffn`, `layers/experts` (with the shared ones),
    `layers/router`, `layers/adapters` and `head` (once more, with its projection, for every layer that predicts further tokens);
    a part that the model does not have is left out.
    """
    if seq_length <= 0 or attention not in ("full", "causal"):
        raise InputError(
            "forward_flops", [f"seq_length = {seq_length} must be positive and attention = {attention!r} 'full' or 'causal'"]
        )
    L, mixed = model.num_layers, expert_layers(model)
    weights = attention_weights(model)
    key, value = _head_sizes(model)
    share = _attended(model, seq_length, key + value)
    width = seq_length * model.num_attention_heads * (2 if attention == "full" else 1)
    experts = model.num_experts_per_token * model.expert_ffn_hidden_size + shared_width(model)
    router = model.hidden_size * (model.num_experts + (1 if model.shared_expert_gate else 0))
    further = model.num_mtp_layers
    projected = (1 + further) * model.vocab_size + 2 * further * model.hidden_size
    parts = {
        "layers/qkv": _whole(2 * L * weights["qkv"]),
        "layers/scores": _whole(L * width * key * share),
        "layers/values": _whole(L * width * value * share),
        "layers/output": _whole(2 * L * weights["output"]),
        "layers/ffn": 2 * (L - mixed) * ffn_weights(model, model.ffn_hidden_size),
        "layers/experts": 2 * mixed * ffn_weights(model, experts),
        "layers/router": 2 * mixed * router,
        "layers/adapters": round(2 * L * model.adapters.weights(model)) if model.adapters else 0,
        "head": 2 * model.hidden_size * projected if head else 0,
    }
    return Breakdown(UNIT, {path: amount for path, amount in parts.items() if amount}, SOURCE)


def attended_share(seq_length: Number, window: Number, windowed: Number) -> Number:
    """Share of the causal pairs of tokens that a mean layer attends to, if a share `windowed` of the layers has a window.

    A token sees itself and those before it: s^2 / 2 pairs of a sequence of s tokens, with a window of w of them sw - w^2 / 2.
    """
    outside = 1.0 - minimum(window / seq_length, 1.0)
    return 1.0 - windowed * outside * outside


def attended_beyond(packed: CompressedAttention, seq_length: Number, layers: Number, pair: Number) -> Number:
    """Work of a mean layer beyond its window, over that of all causal pairs; `pair` are the values of one: heads x both sizes.

    The best k of the tokens seen, of which each stands for r, are those of a window of kr tokens over r. An indexer has one
    product, scores without values.
    """
    outside = 1.0 - minimum(packed.index_top_k * packed.selected_ratio / seq_length, 1.0)
    index = packed.index_heads * packed.index_head_size / pair
    selected = (1.0 - outside * outside + index) / packed.selected_ratio
    return (packed.num_selected_layers * selected + packed.num_pooled_layers / packed.pooled_ratio) / layers


def _attended(model: ModelSpec, seq_length: int, sizes: int) -> Number:
    """As `attended_share` of a model, with what layers select or pool beyond their window."""
    packed, layers = model.compressed, model.num_layers
    if packed is None:
        return attended_share(seq_length, model.attention_window, model.num_windowed_layers / layers)
    own = max(model.num_windowed_layers, packed.num_selected_layers + packed.num_pooled_layers)
    beyond = attended_beyond(packed, seq_length, layers, model.num_attention_heads * sizes)
    return attended_share(seq_length, model.attention_window, own / layers) + float(beyond)


def _whole(amount: Number) -> int | float:
    number = float(amount)
    return int(number) if number.is_integer() else number


def training_flops(model: ModelSpec, seq_length: int, attention: Attention = "full", *, head: bool = True) -> Breakdown:
    """FLOP per token of forward and backward without recomputation, with the leaves of `forward_flops`; MFU counts these.

    3 x forward where all weights are trained, 2 x for a frozen matrix, 1 x in layers below all that is trained.
    """
    forward = forward_flops(model, seq_length, attention, head=head)
    return _times(forward, {path: 1 + count for path, count in _backward_counts(model, forward).items()})


def _backward_counts(model: ModelSpec, forward: Breakdown) -> Mapping[str, int | Fraction]:
    """How often the backward pass does the products of every part of the forward pass: twice, once with a frozen matrix."""
    if model.trained_layers:
        return _backward_shares(model, model.trained_layers)
    return {path: 2 if model.adapters is None or path in WITH_TWO_GRADIENTS else 1 for path in forward.parts}


def _backward_shares(model: ModelSpec, trained: TrainedLayers) -> dict[str, Fraction]:
    """As `_backward_counts`, on the mean of the layers that a part has: inputs of all that are not skipped, trained weights."""
    layers, mixed = model.num_layers, expert_layers(model)
    ends = trained.dense(layers, layers - mixed)
    attention, feed_forward = trained.trains("attention"), trained.trains("feed_forward")

    def mean(held: int, skipped: int, own: int) -> Fraction:
        return Fraction(held - skipped + own, max(1, held))

    matrices = mean(layers, sum(ends["skipped"]), trained.count * attention)
    dense = mean(layers - mixed, ends["skipped"][0], ends["trained"][0] * feed_forward)
    experts = mean(mixed, ends["skipped"][1], ends["trained"][1] * feed_forward)
    return {
        **dict.fromkeys(("layers/qkv", "layers/output"), matrices),
        **dict.fromkeys(("layers/scores", "layers/values"), 2 * mean(layers, sum(ends["skipped"]), 0)),
        "layers/ffn": dense,
        **dict.fromkeys(("layers/experts", "layers/router"), experts),
        "head": Fraction(1 + trained.trains("head")),
    }


def _times(forward: Breakdown, counts: Mapping[str, int | Fraction]) -> Breakdown:
    return Breakdown(UNIT, {path: _counted(amount, counts[path]) for path, amount in forward.parts.items()}, TRAINING_SOURCE)


def _counted(amount: int | float, count: int | Fraction) -> int | float:
    return amount * count if isinstance(count, int) else _whole(float(amount * count))


def recompute_flops(
    model: ModelSpec, seq_length: int, recompute: RecomputePlan | None = None, attention: Attention = "full"
) -> Breakdown:
    """FLOP per token that the backward pass computes again, with the leaves of `forward_flops`; empty without recomputation.

    Layers recomputed in full repeat their whole forward pass, `attention_core` repeats scores and values in all other layers, and
    an operator pattern repeats its product in the layers that it counts beyond the full ones. HFU counts these on top of
    `training_flops`. The forward pass that flash attention repeats by itself is not counted, as is the custom.
    """
    shares = _recomputed_shares(model, recompute or RecomputePlan())
    forward = forward_flops(model, seq_length, attention, head=False)
    parts = {path: float(amount * shares[path.removeprefix("layers/")]) for path, amount in forward.parts.items()}
    return Breakdown(UNIT, {path: amount for path, amount in parts.items() if amount}, RECOMPUTE_SOURCE)


def _recomputed_shares(model: ModelSpec, recompute: RecomputePlan) -> Mapping[str, Fraction]:
    """As `recomputed_parts`, without the layers that need no backward pass: of an even split, as counts have stages."""
    layers, mixed = model.num_layers, expert_layers(model)
    skipped = model.trained_layers.skipped(layers) if model.trained_layers else 0
    if not skipped:
        return recomputed_parts(model, recompute)
    dense = min(skipped, layers - mixed)
    most = {"ffn": Fraction(layers - mixed - dense, max(1, layers - mixed))}
    most |= dict.fromkeys(("experts", "router"), Fraction(mixed - (skipped - dense), max(1, mixed)))
    full, operators = recompute.full_layers, recompute.operators
    above = {pattern: _above(counts, layers, skipped) for pattern, counts in operators.items()}
    shares = recomputed_parts(model, replace(recompute, full_layers=_above(full, layers, skipped), operators=above))
    mean = Fraction(layers - skipped, layers)
    return {part: min(share, most.get(part, mean)) for part, share in shares.items()}


def _above(counts: Counts, layers: int, skipped: int) -> Counts:
    """Counts of the first layers of positions, without the layers of the model's first `skipped` ones among them."""
    if not counts:
        return counts
    found = []
    for row, held in zip(counts, even_layers(layers, len(counts[0]), len(counts)), strict=True):
        without = [min(own, max(0, skipped - before)) for own, before in zip(held, accumulate(held, initial=0), strict=False)]
        found.append(tuple(max(0, count - own) for count, own in zip(row, without, strict=True)))
        skipped -= sum(without)
    return tuple(found)


def pass_flops(
    model: ModelSpec,
    seq_length: int,
    recompute: RecomputePlan | None = None,
    attention: Attention = "full",
    *,
    head: bool = True,
) -> dict[str, Breakdown]:
    """FLOP per token by pass: `forward`, `backward` and `recompute`, each a breakdown by part."""
    forward = forward_flops(model, seq_length, attention, head=head)
    return {
        "forward": forward,
        "backward": _times(forward, _backward_counts(model, forward)),
        "recompute": recompute_flops(model, seq_length, recompute, attention),
    }


def _head_sizes(model: ModelSpec) -> tuple[int, int]:
    """Sizes of a head in the scores and in the values; they differ in latent attention only."""
    if model.kv_lora_rank:
        return model.nope_head_size + model.rope_head_size, model.value_head_size
    return model.head_size, model.head_size
