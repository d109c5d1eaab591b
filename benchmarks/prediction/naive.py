"""Baselines that know no physics: one utilisation for all plans, and the utilisation of the nearest measured row."""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.calibration import Measured
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.rates import mfu_flops_per_token
from perfkit.predict.cost.stage_layers import AMOUNTS

TYPICAL_MFU = 0.40
FEATURES = ("hidden", "data", "tensor", "pipeline", "micro_batch", "global_batch", "seq_length")


def work_s(plans: CostColumns) -> Floats:
    """Seconds of a step at full peak."""
    return mfu_flops_per_token(plans) * plans.global_batch * plans.seq_length / (plans.devices * plans.peak_flops_per_s)


def constant_mfu(rows: Measured, mfu: float = TYPICAL_MFU) -> Floats:
    """Predicted over measured time with one utilisation."""
    return work_s(rows.plans) / mfu / rows.seconds


def nearest_row(rows: Measured) -> Floats:
    """Predicted over measured time with the utilisation of the nearest other row (logarithms of the settings, Euclidean)."""
    layers = rows.plans.stages.numbers(lambda stages: float(stages.amounts[:: len(AMOUNTS)].sum()))
    settings = np.log(np.stack([layers, *(getattr(rows.plans, name) for name in FEATURES)], axis=1) + 0.1)
    used = work_s(rows.plans) / rows.seconds
    found = np.empty(len(used))
    for row in range(len(used)):
        distance = ((settings - settings[row]) ** 2).sum(axis=1)
        distance[row] = np.inf
        found[row] = used[int(np.argmin(distance))]
    return used / found
