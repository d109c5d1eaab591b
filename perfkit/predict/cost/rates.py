"""Utilisation of many plans at once: model FLOP a token as in `perfkit.predict.cost.flops`, by column."""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.stage_layers import AMOUNTS


def mfu_flops_per_token(plans: CostColumns) -> Floats:
    """FLOP a token of forward and backward: full attention, head counted, recomputed work not."""
    return flops_per_token(plans)[0]


def flops_per_token(plans: CostColumns) -> tuple[Floats, Floats]:
    """As `mfu_flops_per_token`, and the same with what is computed again."""
    once, again = 6.0 * plans.vocab * plans.hidden, np.zeros(len(plans))
    sums = np.zeros((len(plans.stages.values), 2 * len(AMOUNTS)))
    for row, value in zip(sums, plans.stages.values, strict=True):
        row[: len(value.amounts)] = value.amounts.sum(axis=(1, 2))
    for kind, amounts in zip(plans.kinds, np.split(sums[plans.stages.codes].T, 2), strict=False):
        (layer, core), amount = _forward(kind), dict(zip(AMOUNTS, amounts, strict=True))
        once = once + 3.0 * amount["layers"] * (layer + core)
        again = again + layer * (amount["full"] + amount["products"]) + core * (amount["full"] + amount["core"])
    return once, once + again


def _forward(plans: CostColumns) -> tuple[Floats, Floats]:
    """FLOP a token and layer of the forward pass: products with weights, and scores and values."""
    mixed = np.where(plans.experts > 0, 1.0, 0.0)
    width = plans.ffn * (1 - mixed) + (plans.experts_per_token * plans.expert_ffn + plans.shared_ffn) * mixed
    weights = plans.qkv_weights + plans.output_weights + plans.ffn_matrices * plans.hidden * width
    router = plans.hidden * plans.experts * mixed
    return 2.0 * (weights + router), 2.0 * plans.seq_length * plans.heads * (plans.head_size + plans.value_size)
