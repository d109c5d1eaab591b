"""Intervals: how far measured times lie from predictions of groups that were not used, and how often that promise holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.core.plan_columns import Floats

SHARE = 0.80


def interval(ratios: Floats, groups: Any, share: float = SHARE) -> tuple[float, float]:
    """Bounds of measured over predicted time that hold `share` of the plans of a group that was not seen.

    `ratios` are predicted over measured time of plans that their own group was not used for. The quantiles are widened for the
    number of groups g as split conformal prediction does: the share of the residuals inside is share * (1 + 1/g), at most 90 %.
    """
    count = len(np.unique(groups))
    tail = max(1.0 - share * (1.0 + 1.0 / max(count, 1)), (1.0 - share) / 2.0) / 2.0
    weights = _weights(groups)
    errors = 1.0 / ratios
    return _quantile(errors, weights, tail), _quantile(errors, weights, 1.0 - tail)


def coverage(ratios: Floats, groups: Any, share: float = SHARE) -> float:
    """Share of the plans inside the interval that the other groups give, each group left out once."""
    inside = np.zeros(len(ratios), dtype=bool)
    for group in np.unique(groups):
        own = groups == group
        if own.all():
            return float("nan")
        low, high = interval(ratios[~own], groups[~own], share)
        inside[own] = (1.0 / ratios[own] >= low) & (1.0 / ratios[own] <= high)
    return float(inside.mean())


def _weights(groups: Any) -> Floats:
    """A weight a plan: large groups count more, but only by the root of their size."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(counts)[codes])


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    steps = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    return float(np.interp(share, steps, values[order]))
