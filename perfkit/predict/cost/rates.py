"""Utilisation of many plans at once: model FLOP a token as in `perfkit.predict.cost.flops`, by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfkit.core.numbers import Number, where
from perfkit.core.plan_columns import Floats
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.stage_layers import AMOUNTS, StageLayers

MOST_TRAINED = 2
"""Kinds of layers where none is frozen."""


def mfu_flops_per_token(plans: CostColumns) -> Number:
    """FLOP a token of forward and backward: full attention, head counted, recomputed work not."""
    return flops_per_token(plans)[0]


def flops_per_token(plans: CostColumns) -> tuple[Number, Number]:
    """As `mfu_flops_per_token`, and the same with what is computed again."""
    once, again = (4.0 + 2.0 * plans.head_trained) * plans.vocab * plans.hidden, 0.0
    kinds = plans.kinds
    for kind, amounts in zip(kinds, _of_plans(plans, lambda value: value.amounts.sum(axis=(1, 2))), strict=True):
        (layer, core, frozen), amount = _forward(kind), dict(zip(AMOUNTS, amounts, strict=True))
        once = once + 3.0 * amount["layers"] * (layer + core)
        # The backward pass does the products of frozen matrices once.
        once = once - amount["layers"] * frozen
        again = again + _repeated(layer, core, amount)
    if len(kinds) > MOST_TRAINED:
        back, repeated = _needless(plans)
        once, again = once - back, again - repeated
    return once, once + again


def _of_plans(plans: CostColumns, amounts: Callable[[StageLayers], Floats]) -> Floats:
    """Sums over layers, shape (kinds, amounts, plans)."""
    kinds, stages = len(plans.kinds), plans.stages
    sums = np.zeros((kinds * len(AMOUNTS), len(stages.values)))
    for place, value in enumerate(stages.values):
        own = amounts(value)
        sums[: len(own), place] = own
    return sums[:, stages.codes].reshape(kinds, len(AMOUNTS), *np.shape(stages.codes))


def _needless(plans: CostColumns) -> tuple[Number, Number]:
    """FLOP a token of backward passes that nothing trained needs, and of what they compute again, wherever layers stand."""
    nothing = np.zeros(0)
    back: Number = 0.0
    again: Number = 0.0
    found = _of_plans(plans, lambda value: nothing if value.needless is None else value.needless)
    for kind, amounts in zip(plans.kinds, found, strict=True):
        (layer, core, _), amount = _forward(kind), dict(zip(AMOUNTS, amounts, strict=True))
        back = back + amount["layers"] * (layer + 2.0 * core)
        again = again + _repeated(layer, core, amount)
    return back, again


def _repeated(layer: Number, core: Number, amount: Mapping[str, Floats]) -> Number:
    """FLOP a token that so much of layers computes again."""
    return layer * (amount["full"] + amount["products"]) + core * (amount["full"] + amount["core"])


def _forward(plans: CostColumns) -> tuple[Number, Number, Number]:
    """FLOP a token and layer of the forward pass: products with weights, scores and values, and of the former frozen ones."""
    mixed = where(plans.experts > 0, 1.0, 0.0)
    width = plans.ffn * (1 - mixed) + (plans.experts_per_token * plans.expert_ffn + plans.shared_ffn) * mixed
    attention = plans.qkv_weights + plans.output_weights
    inner = plans.ffn_matrices * plans.hidden * width + plans.hidden * plans.experts * mixed
    frozen = (1.0 - plans.attention_trained) * attention + (1.0 - plans.ffn_trained) * inner
    core = 2.0 * plans.seq_length * plans.heads * (plans.head_size + plans.value_size)
    return 2.0 * (attention + inner + plans.adapter_weights), core, 2.0 * frozen
