"""Adapters and trained layers of every row of a table of plans, as plans write them.

Adapters are a JSON object as `{"rank": 8, "targets": ["query", "value"]}`, trained layers a text as `last 2`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from perfkit.config.dialects._table_cells import Cells, said
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded, Flags, PlanColumns
from perfkit.core.spec.adapters import OF_FEED_FORWARD, OF_GATE, Adapters
from perfkit.core.spec.trained import TrainedLayers

T = TypeVar("T", Adapters, TrainedLayers)


def read_adapters(cells: Cells) -> Coded[Adapters | None]:
    """The adapters that rows state; a cell that states none as it should is a problem of its rows."""
    return _read(cells, "adapters", _adapters)


def read_trained(cells: Cells) -> Coded[TrainedLayers | None]:
    """The layers that rows train alone, likewise."""
    return _read(cells, "trained_layers", TrainedLayers.of)


def _read(cells: Cells, name: str, of: Callable[[str], T]) -> Coded[T | None]:
    texts = cells.texts(name)
    found: list[T | None] = []
    for code, text in enumerate(texts.values):
        found.append(None)
        try:
            found[-1] = of(text) if text else None
        except InputError as error:
            for problem in error.problems:
                cells.problem(texts.codes == code, said(f"{cells.label(name)}: {problem}"))
    return Coded(texts.codes, tuple(found))


def _adapters(text: str) -> Adapters:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    targets = value.get("targets") if isinstance(value, dict) else None
    if not isinstance(value, dict) or set(value) != {"rank", "targets"} or not isinstance(targets, list):
        raise InputError("Adapters", [f'{text!r} must be as {{"rank": 8, "targets": ["query", "value"]}}'])
    return Adapters(rank=value["rank"], targets=tuple(targets))


def without_target(plans: PlanColumns) -> Flags:
    """Plans whose adapters stand on matrices that their model does not have, or has otherwise, as `ModelSpec` refuses them."""
    found = np.zeros(len(plans), dtype=np.bool_)
    latent = (plans.kv_lora_rank > 0) | plans.compressed.flags(lambda packed: packed is not None)
    for code, own in enumerate(plans.adapters.values):
        for target in own.targets if own else ():
            missing = (plans.num_experts > 0) | (~plans.gated_ffn & (target in OF_GATE)) if target in OF_FEED_FORWARD else latent
            found |= (plans.adapters.codes == code) & missing
    return found


def wrongly_trained(plans: PlanColumns) -> Flags:
    """Plans whose trained layers contradict their model, as `ModelSpec` refuses them."""
    own = plans.trained_layers
    stated = own.flags(bool)
    if not stated.any():
        return stated
    wrong = (own.numbers(lambda layers: layers.count if layers else 0) > plans.num_layers) | plans.adapters.flags(bool)
    one_side = own.flags(lambda layers: layers is not None and layers.trains("embedding") != layers.trains("head"))
    wrong |= plans.tied_embeddings & one_side
    wrong |= (plans.num_mtp_layers > 0) | (plans.residual_streams > 0) | plans.compressed.flags(bool)
    return stated & wrong
