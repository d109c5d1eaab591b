"""Utilisation of many plans at once: model FLOP a token as in `perfkit.predict.cost.flops`, by column."""

from __future__ import annotations

import numpy as np

from perfkit.core.numbers import Number, where
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.stage_layers import AMOUNTS


def mfu_flops_per_token(plans: CostColumns) -> Number:
    """FLOP a token of forward and backward: full attention, head counted, recomputed work not."""
    return flops_per_token(plans)[0]


def flops_per_token(plans: CostColumns) -> tuple[Number, Number]:
    """As `mfu_flops_per_token`, and the same with what is computed again."""
    frozen = plans.adapter_rank > 0
    once, again = where(frozen, 4.0, 6.0) * plans.vocab * plans.hidden, 0.0
    sums = np.zeros((2 * len(AMOUNTS), len(plans.stages.values)))
    for place, value in enumerate(plans.stages.values):
        sums[: len(value.amounts), place] = value.amounts.sum(axis=(1, 2))
    of_plans = sums[:, plans.stages.codes]
    for kind, amounts in zip(plans.kinds, (of_plans[: len(AMOUNTS)], of_plans[len(AMOUNTS) :]), strict=False):
        (layer, core), amount = _forward(kind), dict(zip(AMOUNTS, amounts, strict=True))
        once = once + 3.0 * amount["layers"] * (layer + core)
        # The backward pass does the products of frozen matrices once.
        once = once - where(frozen, amount["layers"] * (layer - 2.0 * plans.adapter_weights), 0.0)
        again = again + layer * (amount["full"] + amount["products"]) + core * (amount["full"] + amount["core"])
    return once, once + again


def _forward(plans: CostColumns) -> tuple[Number, Number]:
    """FLOP a token and layer of the forward pass: products with weights, and scores and values."""
    mixed = where(plans.experts > 0, 1.0, 0.0)
    width = plans.ffn * (1 - mixed) + (plans.experts_per_token * plans.expert_ffn + plans.shared_ffn) * mixed
    weights = plans.qkv_weights + plans.output_weights + plans.ffn_matrices * plans.hidden * width
    router = plans.hidden * plans.experts * mixed
    return 2.0 * (weights + router + plans.adapter_weights), 2.0 * plans.seq_length * plans.heads * (
        plans.head_size + plans.value_size
    )
