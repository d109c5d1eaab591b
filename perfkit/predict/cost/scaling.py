"""Scaling: how much of the speed of a small run is kept when it grows.

Linearity is the throughput of a large run over that of a small one times the growth. The base is given with its number of
devices: a guide divides a node's throughput by the number of cards, which makes eight-card nodes look eight times too bad
(erratum X12). Above 0.8 a cluster counts as scaling well (same guide).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from perfkit.core.errors import InputError

GOOD_LINEARITY = 0.8


def linearity(tokens_per_s: float, num_devices: int, base_tokens_per_s: float, base_devices: int) -> float:
    """Throughput kept when growing from `base_devices` to `num_devices`: 1 is perfect, above 0.8 good.

    `tokens_per_s` and `base_tokens_per_s` are of all devices of their run. Base: 1 for a device, 8 for a node of eight.
    """
    return tokens_per_s / _ideal_tokens_per_s(tokens_per_s, num_devices, base_tokens_per_s, base_devices)


def linearity_table(runs: Iterable[tuple[str, int, float]]) -> pd.DataFrame:
    """Linearity of several runs `(name, num_devices, tokens_per_s)` against the one with the fewest devices.

    One row a run, by devices: `name`, `num_devices`, `tokens_per_s`, `ideal_tokens_per_s`, `linearity`, `good`.
    """
    rows = sorted(runs, key=lambda run: run[1])
    if not rows:
        raise InputError("linearity", ["no run is given; one or more are needed"])
    _, base_devices, base = rows[0]
    table = []
    for name, num_devices, tokens_per_s in rows:
        ideal = _ideal_tokens_per_s(tokens_per_s, num_devices, base, base_devices)
        kept = tokens_per_s / ideal
        table.append((name, num_devices, tokens_per_s, ideal, kept, kept > GOOD_LINEARITY))
    return pd.DataFrame(table, columns=["name", "num_devices", "tokens_per_s", "ideal_tokens_per_s", "linearity", "good"])


def _ideal_tokens_per_s(tokens_per_s: float, num_devices: int, base_tokens_per_s: float, base_devices: int) -> float:
    named = {
        "tokens_per_s": tokens_per_s,
        "num_devices": num_devices,
        "base_tokens_per_s": base_tokens_per_s,
        "base_devices": base_devices,
    }
    problems = [f"{name} = {value} must be positive" for name, value in named.items() if not (math.isfinite(value) and value > 0)]
    if problems:
        raise InputError("linearity", problems)
    return base_tokens_per_s * num_devices / base_devices
