"""Trained columns: what of every plan is trained, by part of a layer and beside the layers, and its adapters."""

from __future__ import annotations

from perfkit.core.numbers import Number, alike, any_of, where
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec.trained import LayerPart, Outside, TrainedLayers

PARTS: dict[str, LayerPart | Outside] = {
    "attention_trained": "attention",
    "ffn_trained": "feed_forward",
    "embedding_trained": "embedding",
    "head_trained": "head",
}


def adapter_columns(plans: PlanColumns) -> dict[str, Number]:
    """Rank, number and widths of the adapters of a layer of every plan."""
    rank = plans.adapters.numbers(lambda own: own.rank if own else 0)
    count = plans.adapters.numbers(lambda own: len(own.targets) if own else 0)
    inputs = outputs = weights = alike(0.0, plans.hidden_size)
    for code, own in enumerate(plans.adapters.values):
        if own is not None:
            rows, split = plans.adapters.codes == code, own.widths(plans, plans.tensor_parallel_size)
            inputs, outputs = (where(rows, *pair) for pair in zip(split, (inputs, outputs), strict=True))
            weights = where(rows, own.weights(plans), weights)
    return {
        "adapter_rank": rank,
        "adapter_count": count,
        "adapter_inputs": inputs,
        "adapter_outputs": outputs,
        "adapter_weights": weights,
    }


def trained_columns(plans: PlanColumns) -> dict[str, Number]:
    """What of every plan is trained (1 or 0); of layers what those have that are."""
    every, ones = where(plans.adapters.flags(bool), 0.0, 1.0), alike(1.0, plans.hidden_size)
    if not any_of(plans.trained_layers.flags(bool)):
        return dict.fromkeys(PARTS, every) | {"backward": ones, "shares_trained": 0.0 * ones}
    shares = plans.program.is_("mindspore") & plans.trained_layers.flags(bool)
    parts = {name: every * _trains(plans, part) for name, part in PARTS.items()}
    return parts | {"backward": ones, "shares_trained": where(shares, 1.0, 0.0)}


def _trains(plans: PlanColumns, part: LayerPart | Outside) -> Number:
    def trains(layers: TrainedLayers | None) -> float:
        return float(layers is None or layers.trains(part))

    return plans.trained_layers.numbers(trains)
