"""Utilisation of many plans at once: model FLOP a token as in `perfkit.predict.cost.flops`, by column."""

from __future__ import annotations

import numpy as np

from perfkit.core.numbers import Number, minimum, where
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.stage_layers import AMOUNTS

MOST_TRAINED = 2
"""Kinds of layers where none is frozen."""


def mfu_flops_per_token(plans: CostColumns) -> Number:
    """FLOP a token of forward and backward: full attention, head counted, recomputed work not."""
    return flops_per_token(plans)[0]


def flops_per_token(plans: CostColumns) -> tuple[Number, Number]:
    """As `mfu_flops_per_token`, and the same with what is computed again."""
    once, again = (4.0 + 2.0 * plans.head_trained) * plans.vocab * plans.hidden, 0.0
    kinds = plans.kinds
    sums = np.zeros((len(kinds) * len(AMOUNTS), len(plans.stages.values)))
    for place, value in enumerate(plans.stages.values):
        sums[: len(value.amounts), place] = value.amounts.sum(axis=(1, 2))
    of_plans = sums[:, plans.stages.codes].reshape(len(kinds), len(AMOUNTS), *np.shape(plans.stages.codes))
    for kind, amounts in zip(kinds, of_plans, strict=True):
        (layer, core, frozen), amount = _forward(kind), dict(zip(AMOUNTS, amounts, strict=True))
        once = once + 3.0 * amount["layers"] * (layer + core)
        # The backward pass does the products of frozen matrices once.
        once = once - amount["layers"] * frozen
        again = again + layer * (amount["full"] + amount["products"]) + core * (amount["full"] + amount["core"])
    if len(kinds) > MOST_TRAINED:
        once = once - _spared(plans, of_plans[:, 0])
    return once, once + again


def _spared(plans: CostColumns, layers: Number) -> Number:
    """FLOP a token of backward passes that nothing trained needs, wherever layers stand; `layers` are those of every kind."""
    skipped = plans.stages.numbers(lambda value: value.skipped)
    dense = minimum(skipped, layers[1::2].sum(axis=0))
    found: Number = 0.0
    for kind, count in zip(plans.kinds, (skipped - dense, dense), strict=False):
        layer, core, _ = _forward(kind)
        found = found + count * (layer + 2.0 * core)
    return found


def _forward(plans: CostColumns) -> tuple[Number, Number, Number]:
    """FLOP a token and layer of the forward pass: products with weights, scores and values, and of the former frozen ones."""
    mixed = where(plans.experts > 0, 1.0, 0.0)
    width = plans.ffn * (1 - mixed) + (plans.experts_per_token * plans.expert_ffn + plans.shared_ffn) * mixed
    attention = plans.qkv_weights + plans.output_weights
    inner = plans.ffn_matrices * plans.hidden * width + plans.hidden * plans.experts * mixed
    frozen = (1.0 - plans.attention_trained) * attention + (1.0 - plans.ffn_trained) * inner
    core = 2.0 * plans.seq_length * plans.heads * (plans.head_size + plans.value_size)
    return 2.0 * (attention + inner + plans.adapter_weights), core, 2.0 * frozen
