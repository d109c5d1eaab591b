"""Sensitivity: how sure the order of plans is, given how sure the numbers of the calibration are.

The error that all plans of one model and device share changes no order. What can is how computing, memory traffic, links and host
compare: each is drawn anew, independently, and the fastest plan of every draw is counted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost import step_time as step
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency

SAMPLES = 200
SEED = 20250101
SIGMAS = 2.563
"""Standard deviations between the 10th and the 90th percentile."""
RATES = ("matmul", "memory", "flash_forward", "flash_backward", "intra_share", "inter_share")
TIMES = ("layer_host_s", "step_host_s", "send_host_s", "straggler", "contention", "half_depth")


def win_shares(plans: CostColumns, efficiency: Efficiency, interval: tuple[float, float]) -> Floats:
    """The share of draws in which each plan is the fastest; the spread of every number is that of the calibration's interval."""
    count = len(plans)
    sigma = math.log(interval[1] / interval[0]) / SIGMAS
    draws = np.exp(np.random.default_rng(SEED).normal(0.0, sigma, (SAMPLES, len(RATES) + len(TIMES))))
    many = plans.take(np.tile(np.arange(count), SAMPLES))
    varied = {}
    for index, name in enumerate((*RATES, *TIMES)):
        value = np.broadcast_to(np.asarray(getattr(efficiency, name), dtype=np.float64), (count,))
        drawn = np.tile(value, SAMPLES) * np.repeat(draws[:, index], count)
        varied[name] = np.minimum(drawn, 1.0) if name in RATES else drawn
    same = {
        name: np.tile(value, SAMPLES)
        for name in Efficiency.__dataclass_fields__
        if isinstance(value := getattr(efficiency, name), np.ndarray) and name not in varied
    }
    seconds = step.seconds(many, replace(efficiency, **same, **varied)).reshape(SAMPLES, count)
    return np.bincount(seconds.argmin(axis=1), minlength=count) / SAMPLES
