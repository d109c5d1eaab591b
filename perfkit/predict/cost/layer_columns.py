"""Time of the operators of one layer, the head and the embedding on one device, a row a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfkit.core.numbers import Number, alike, any_of, maximum, minimum, where
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.operators import (
    ALIGNMENT,
    TENSOR_ALIGNMENT,
    Device,
    group_start_s,
    off_grain,
    product_s,
    sustained,
    weight_product_s,
)

BACKWARD_ELEMENTWISE = 1.5  # reads the incoming gradient as well: three accesses for two
FURTHER_PASSES = 15.0  # three norms, forward and backward, each two accesses and three
STREAM_PASSES = 8.0  # of both blocks: streams normed and weighed, read to be summed, read and written to be mixed
EMBEDDING_PASSES, FROZEN_EMBEDDING_PASSES = 6.0, 2.0  # rows read and written, gradients read and added
CAST_INPUTS = 2.0  # of a layer's products that have whole hidden states as input
EXPERT_BIAS = 14.0 / (1 + BACKWARD_ELEMENTWISE)
"""Accesses of an element of an expert's output for its bias: times the token's weight, added, joined; and their gradients.

Megatron-Core, `TEGroupedMLP._apply_bias`: in 16 bits 6 forward and 8 backward, as operators of their own.
"""
POSITIONS = 51.0 / (1 + BACKWARD_ELEMENTWISE) - 2.0
"""Accesses for an element of queries and keys whose rotary positions are not fused, over the two of those that are.

Megatron-Core, `_apply_rotary_pos_emb_bshd`, which it takes for a factor on attention: in fp32 56 bytes forward and 46 backward.
"""
CLAMPS = 18.0 / (1 + BACKWARD_ELEMENTWISE)
"""Accesses for an element of the gate and its partner, held within limits and joined before the fused activation, and backward.

Megatron-Core, `weighted_bias_quick_geglu_impl`: 8 forward and 10 backward, as operators of their own.
"""
ADAPTER_PASSES = 5.0  # its output is scaled (read, written) and added to the one of the frozen matrix (both read, one written)
EXPERT_MOVES = 8.0  # tokens are read and written to send them, to sort them by expert, and both ways back
WEIGHT_GROUP_ROWS = 2.5
"""Rows that grouped products for weights take more, over those of the others: their inner dimension is the rows'.

Fitted with `group_rows` to the grouped products of `data/reference/operator_rates.csv`.
"""
FLASH_BACKWARD_ROWS = 0.25
"""Rows of a unit in the backward pass, which also splits the keys, over those forward: both devices of operator_rates.csv."""
FLASH_BACKWARD = 2.5  # products of the backward pass over those of the forward pass, the scores computed again


@dataclass(frozen=True, slots=True)
class Pass:
    """Device seconds of one pass through one layer or the head, by kind of work."""

    matmul: Number
    attention: Number
    elementwise: Number

    @property
    def total(self) -> Number:
        """Seconds of the pass."""
        return self.matmul + self.attention + self.elementwise


def layer_passes(plans: CostColumns, eff: Efficiency, device: Device, tokens: Number) -> tuple[Pass, Pass]:
    """Forward and backward pass of a layer, with experts where the plan has any, for one micro batch."""
    mixed = _mixed(plans)
    products = _together(layer_products(plans, tokens))
    ahead, behind = grouped_product_s(products, device, eff.group_rows)
    forward, backward = (products.share * ahead).sum(axis=0), (products.share * behind).sum(axis=0)
    attention = _attention(plans, eff, device, tokens)
    elementwise = _elementwise_s(plans, eff, device, tokens, mixed)
    return Pass(forward, attention[0], elementwise), Pass(backward, attention[1], BACKWARD_ELEMENTWISE * elementwise)


@dataclass(frozen=True, slots=True)
class Product:
    """`copies` products (rows x depth) (depth x columns) with a weight that is `trained` (1) or frozen (0).

    `share` is how many such a layer has one after the other: 0 or 1, and as many as it has adapters.
    """

    name: str
    rows: Number
    columns: Number
    depth: Number
    copies: Number
    share: Number
    trained: Number

    SIZES: ClassVar[tuple[str, ...]] = ("rows", "columns", "depth", "copies", "share", "trained")


def _together(products: Sequence[Product]) -> Product:
    """Several products as one of arrays of shape (products, plans): a call of an array function costs more than the arithmetic."""
    columns = (np.array([getattr(product, name) for product in products]) for name in Product.SIZES)
    return Product("", *columns)


def grouped_product_s(product: Product, device: Device, group_rows: Amount) -> tuple[Number, Number]:
    """Seconds of products with weights, forward and backward; many small ones at once start and drain the units each."""
    columns, depth, copies = product.columns, product.depth, product.copies
    forward, backward = weight_product_s(product.rows, columns, depth, device, copies, trained=product.trained)
    ahead = group_start_s(columns, depth, device, copies, group_rows)
    behind = group_start_s(depth, columns, device, copies, group_rows)
    return forward + ahead, backward + behind + product.trained * (WEIGHT_GROUP_ROWS * ahead)


def layer_products(plans: CostColumns, tokens: Number) -> list[Product]:
    """The products of a layer with its weights, in the order of its forward pass."""
    t, h, ones = plans.tensor, plans.hidden, alike(1.0, plans.tensor)
    found = [
        Product("attention.qkv", tokens, plans.qkv_weights / h / t, h, ones, ones, plans.attention_trained),
        Product("attention.output", tokens, h, plans.output_weights / h / t, ones, ones, plans.attention_trained),
    ]
    up = where(plans.ffn_matrices == 3, 2.0, 1.0)
    blocks = zip(("ffn", "experts", "shared_experts"), _feed_forwards(plans, tokens, _mixed(plans)), strict=False)
    for name, (width, copies, rows, share) in blocks:
        found.append(Product(f"{name}.up", rows, up * width / t, h, copies, share, plans.ffn_trained))
        found.append(Product(f"{name}.down", rows, h, width / t, copies, share, plans.ffn_trained))
    return found + _adapter_products(plans, tokens)


def _adapter_products(plans: CostColumns, tokens: Number) -> list[Product]:
    """Both products of the adapters of a layer, as many times those of a mean one as it has: each is an operator of its own.

    The mean width is on the grain of memory transactions, as those of matrices are.
    """
    if not any_of(plans.adapter_rank > 0):
        return []
    ones, rank, count = alike(1.0, plans.tensor), maximum(plans.adapter_rank, 1.0), maximum(plans.adapter_count, 1.0)
    widths = plans.adapter_inputs, plans.adapter_outputs
    inputs, outputs = (maximum(np.ceil(width / count / ALIGNMENT), 1.0) * ALIGNMENT for width in widths)
    return [
        Product("adapters.in", tokens, rank, inputs, ones, plans.adapter_count, ones),
        Product("adapters.out", tokens, outputs, rank, ones, plans.adapter_count, ones),
    ]


def spared_s(plans: CostColumns, eff: Efficiency, device: Device, tokens: Number) -> Number:
    """Seconds of the last product of a layer where recomputing it stops before: no gradient needs what that product makes.

    What experts give is weighted by the router, whose gradient needs it.
    """
    if not any_of(eff.last_again != 1.0):
        return alike(0.0, tokens)
    last = next(product for product in layer_products(plans, tokens) if product.name == "ffn.down")
    ahead, _ = weight_product_s(last.rows, last.columns, last.depth, device, last.copies)
    return (1.0 - eff.last_again) * last.share * ahead


def _mixed(plans: CostColumns) -> Number:
    """Whether layers have experts: 0 or 1."""
    return where(plans.experts > 0, 1.0, 0.0)


def _feed_forwards(plans: CostColumns, tokens: Number, mixed: Number) -> list[tuple[Number, Number, Number, Number]]:
    """Width, copies, rows and share (0 or 1) of every feed-forward block: dense, routed experts, shared experts."""
    ones = alike(1.0, mixed)
    blocks = [(maximum(plans.ffn, 1.0), ones, tokens, 1.0 - mixed)]
    if any_of(mixed):
        local = maximum(plans.experts / plans.expert_parallel, 1.0)
        rows = tokens * plans.experts_per_token * plans.expert_load / local
        blocks.append((maximum(plans.expert_ffn, 1.0), local, rows, mixed))
        blocks.append((maximum(plans.shared_ffn, 1.0), ones, tokens, where(plans.shared_ffn > 0, mixed, 0.0)))
    return blocks


def _attention(plans: CostColumns, eff: Efficiency, device: Device, tokens: Number) -> tuple[Number, Number]:
    """Seconds of scores, softmax and values, forward and backward: fused (causal half only) or as separate operators.

    A sliding window spares fused operators what lies outside of it; separate ones compute the square and mask it.
    """
    heads = plans.heads / plans.tensor
    length = plans.seq_length
    sizes = plans.head_size + plans.value_size
    peak, factor = where(plans.few_bits, plans.wide_peak_flops_per_s, plans.peak_flops_per_s), compute_factor(plans, eff)
    flops = tokens * heads * length * sizes * plans.attended  # causal: half of 2 * 2
    # Rows with all keys before them end last, when other units have no more: as if each had one more set of such rows.
    drained = 2 * device.units * eff.flash_rows * length * sizes * minimum(plans.attended, 1.0)
    # the other implementation: full squares in batches of products, and passes over the scores
    batch = plans.micro_batch * heads
    rows = length / (plans.context * plans.pieces)
    score = product_s(rows, length, plans.head_size, device, batch)
    value = product_s(rows, plans.value_size, length, device, batch)
    passes = tokens * heads * length * eff.score_bytes / device.bytes_per_s
    ahead = (flops + drained) / (peak * sustained(eff.flash_forward, factor))
    behind = (flops + FLASH_BACKWARD_ROWS * drained) / (peak * sustained(eff.flash_backward, factor))
    forward = where(plans.flash, ahead, score + value + passes)
    backward = where(plans.flash, FLASH_BACKWARD * behind, 2 * (score + value) + 1.5 * passes)
    return forward, backward


def _elementwise_s(plans: CostColumns, eff: Efficiency, device: Device, tokens: Number, mixed: Number) -> Number:
    """Forward seconds of norms, residuals, dropout, rotary positions and activation functions: bytes over bandwidth."""
    t = plans.tensor
    shared = where(plans.sequence_parallel, t, 1.0)
    width = plans.ffn * (1 - mixed) + (plans.expert_ffn * plans.experts_per_token + plans.shared_ffn) * mixed
    elements = (10 + STREAM_PASSES * plans.streams) * plans.hidden / shared + 2 * (
        plans.heads + 2 * plans.kv_heads
    ) * plans.head_size / t
    elements = elements + plans.ffn_matrices * width / t
    if any_of(plans.adapter_rank > 0):
        elements = elements + ADAPTER_PASSES * plans.adapter_outputs
    if any_of(plans.piecewise_positions):
        turned = POSITIONS * (plans.heads + plans.kv_heads) * plans.head_size / t
        elements = elements + where(plans.piecewise_positions, turned, 0.0)
    if any_of(plans.clamped):
        elements = elements + where(plans.clamped, CLAMPS * width / t, 0.0)
    if any_of(mixed):
        # A single expert takes tokens as they stand.
        moves = EXPERT_MOVES / eff.permuted * plans.experts_per_token * plans.hidden
        biased = where(plans.expert_biases, EXPERT_BIAS * plans.experts_per_token * plans.hidden * mixed, 0.0)
        elements = elements + where(plans.experts > 1, moves, 0.0) + biased
    moved = elements * plans.element_bytes * eff.elementwise
    if any_of(plans.few_bits):
        cast = CAST_INPUTS * plans.hidden / shared + (plans.heads * plans.value_size + width) / t
        moved = moved + where(plans.few_bits, cast * eff.cast_bytes, 0.0)
    return tokens * moved / device.bytes_per_s


def head_pass(plans: CostColumns, eff: Efficiency, device: Device, tokens: Number) -> Pass:
    """Forward and backward seconds of the output projection and the loss, once more for every layer that predicts further tokens.

    Such a layer also looks its tokens up and joins them with the hidden states: three norms and a product of 2h to h.
    """
    columns = padded_vocab(plans) / plans.tensor
    trained = plans.head_trained
    forward, backward = weight_product_s(tokens, columns, plans.hidden, device, 1.0, trained=trained)
    ragged = where((plans.tensor == 1) & off_grain(plans.vocab, TENSOR_ALIGNMENT), eff.unpadded, 1.0)
    loss = tokens * columns * eff.logit_bytes / device.bytes_per_s
    products, light = (forward + backward) * ragged, loss
    if any_of(plans.further):
        joined = sum(weight_product_s(tokens, plans.hidden / plans.tensor, 2 * plans.hidden, device, 1.0, trained=trained))
        norms = tokens * FURTHER_PASSES * plans.hidden * plans.element_bytes / device.bytes_per_s
        products = products + plans.further * (products + joined)
        light = light + plans.further * (light + norms + embedding_s(plans, device, tokens))
    return Pass(products, alike(0.0, light), light)


def embedding_s(plans: CostColumns, device: Device, tokens: Number) -> Number:
    """Seconds to look rows up and, unless they are frozen, to add their gradients."""
    passes = where(plans.embedding_trained > 0, EMBEDDING_PASSES, FROZEN_EMBEDDING_PASSES)
    return tokens * plans.hidden * plans.element_bytes * passes / device.bytes_per_s


def padded_vocab(plans: CostColumns) -> Number:
    """Rows of the embedding, padded so that every tensor-parallel rank has a multiple of 128."""
    grain = 128 * plans.tensor
    return np.ceil(plans.vocab / grain) * grain


def layer_parameters(plans: CostColumns) -> Number:
    """Parameters of a layer on one device."""
    return (plans.qkv_weights + plans.output_weights + _ffn_weights(plans)) / plans.tensor + adapter_parameters(plans)


def _ffn_weights(plans: CostColumns) -> Number:
    """Elements of the matrices of a layer's feed-forward block, of experts those of one rank."""
    mixed = _mixed(plans)
    dense = plans.ffn * (1 - mixed) + plans.shared_ffn * mixed
    experts = plans.experts / plans.expert_parallel * plans.expert_ffn * mixed
    return plans.ffn_matrices * plans.hidden * (dense + experts)


def adapter_parameters(plans: CostColumns) -> Number:
    """Parameters of the adapters of a layer on one device, 0 without any."""
    return plans.adapter_rank * (plans.adapter_inputs + plans.adapter_outputs)


def trained_parameters(plans: CostColumns) -> Number:
    """Parameters of a layer on one device that have gradients and are updated."""
    attention = plans.attention_trained * (plans.qkv_weights + plans.output_weights)
    return (attention + plans.ffn_trained * _ffn_weights(plans)) / plans.tensor + adapter_parameters(plans)


def accumulation_s(plans: CostColumns, eff: Efficiency, device: Device) -> Number:
    """Seconds to add the gradients of a layer and micro batch to those of the earlier ones: read both, write the sum."""
    moved = plans.element_bytes + 2 * plans.gradient_bytes
    seconds = eff.accumulation * trained_parameters(plans) * moved / device.bytes_per_s
    return where((plans.micro_batches > 1) & (plans.zero < 3), seconds, 0.0)


def compute_factor(plans: CostColumns, eff: Efficiency) -> Number:
    """Factor on the time of operators; every minor release of the software has saved `release_gain` of it."""
    return eff.compute * np.exp(eff.release_gain * plans.releases_before)
