"""Noise: how much losses scatter from step to step, and whether a difference drifts, stays off or departs beyond that.

Differences are relative to the reference. Scales are robust (`perfkit.core.robust`), so that spikes do not widen them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.core import robust

Floats = npt.NDArray[np.float64]

DEVIATIONS = 4.5
"""Standard deviations that a mean of points must exceed: 1 of 150,000 by chance."""
SIGNIFICANT_T = 5.0
"""A drift's Student t over ten blocks (8 degrees of freedom): 1 of 1,000 by chance."""
BLOCKS = 10
RESOLUTION = 1e-7
"""Relative resolution below which no printed loss is taken seriously."""
TAILS = (3, 5, 10, 20, 40)
NO_LEVEL = 1e6
"""Scatter over level from which on the losses have no level to be compared with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """A straight line through block means: `end` is what it gains over the series, `level` its mean; Student's t of both."""

    end: float
    end_t: float
    level: float
    level_t: float


def scatter(values: Floats) -> float:
    """Standard deviation from point to point, whatever the curve: each point against the mean of its neighbours.

    For independent noise of variance v that difference has variance 1.5 v. 0 for fewer than 5 points.
    """
    if len(values) < 5:
        return 0.0
    bends = values[1:-1] - (values[:-2] + values[2:]) / 2
    return robust.sigma(bends, middle=0.0) / math.sqrt(1.5)


def relative_scatter(losses: Floats) -> float:
    """`scatter` relative to the level of the losses, which falls on the way: of logarithms where all losses are positive.

    At most `NO_LEVEL`: a quotient of what is that far apart may be too large for a number.
    """
    if not len(losses) or not np.abs(losses).any():
        return 0.0
    if (losses > 0).all():
        return scatter(np.log(losses))
    amount, level = scatter(losses), float(np.median(np.abs(losses[losses != 0])))
    return amount / level if amount < NO_LEVEL * level else NO_LEVEL


def trend(differences: Floats) -> Trend | None:
    """Whether differences drift with the steps or are off as a whole; None for fewer than 6 points.

    Blocks of neighbours are averaged first, so that noise which lasts a few steps is not taken for many independent points.
    """
    if len(differences) < 6:
        return None
    blocks = [float(block.mean()) for block in np.array_split(differences, min(BLOCKS, len(differences) // 2))]
    y, count = np.array(blocks), len(blocks)
    x = (np.arange(count) + 0.5) / count - 0.5
    slope = float((x * y).sum() / (x * x).sum())
    rest = y - y.mean() - slope * x
    # The scatter of single points bounds that of block means from below: few blocks may agree by chance.
    floor = scatter(differences) / math.sqrt(len(differences) / count)
    sigma = max(math.sqrt(float((rest**2).sum()) / max(count - 2, 1)), 0.5 * floor, RESOLUTION)
    level_sigma = max(float(y.std(ddof=1)), 0.5 * floor, RESOLUTION)
    return Trend(
        end=slope,
        end_t=slope / (sigma / math.sqrt(float((x * x).sum()))),
        level=float(y.mean()),
        level_t=float(y.mean()) / (level_sigma / math.sqrt(count)),
    )


def departed_tails(differences: Floats, limit: float, noise: float) -> tuple[int, ...]:
    """Lengths of the end pieces whose mean and the sides of whose points say that the series has left; empty if none does.

    A mean of w points must exceed `limit` and `DEVIATIONS` standard errors of `noise`.
    """
    found = []
    for width in TAILS:
        if width > min(max(len(differences) // 2, 3), len(differences)):
            break
        tail = differences[-width:]
        mean = float(tail.mean())
        same_side = float(np.mean(np.sign(tail) == np.sign(mean)))
        if abs(mean) > limit + DEVIATIONS * noise / math.sqrt(width) and same_side >= 0.8:
            found.append(width)
    return tuple(found)


def departed_share(differences: Floats, limit: float, noise: float) -> float:
    """Share of the windows of three points that lie beyond the limit on one side."""
    if len(differences) < 3:
        return 0.0
    means = np.convolve(differences, np.full(3, 1 / 3), mode="valid")
    return float(np.mean(np.abs(means) > limit + DEVIATIONS * noise / math.sqrt(3)))


def onset(differences: Floats, limit: float, noise: float, width: int) -> int:
    """Index at which a departure that lasts to the end began.

    The last window of `width` points within the limit ends before it; from there back, as long as points lie on the same side and
    beyond both a tenth of the limit and three standard deviations of the noise.
    """
    means = np.convolve(differences, np.full(width, 1 / width), mode="valid")
    inside = np.flatnonzero(np.abs(means) <= limit + DEVIATIONS * noise / math.sqrt(width))
    first = int(inside[-1]) + width if len(inside) else 0
    first = min(first, len(differences) - 1)
    side = np.sign(differences[-width:].mean())
    floor = max(3 * noise, 0.1 * limit)
    while first > 0 and differences[first - 1] * side > floor:
        first -= 1
    while first < len(differences) - 1 and differences[first] * side <= floor:
        first += 1
    return first
