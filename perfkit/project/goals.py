"""Goals: the figures that rounds are judged by, in the unit of the log and as people set and read them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perfkit.core import quantity
from perfkit.core.units import NS_PER_MS, significant

GOALS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "tokens_per_s_per_device": ("tokens/s/device", 1.0),
        "step_time_ns": ("step time (ms)", float(NS_PER_MS)),
        "mfu": ("MFU (%)", 0.01),
    }
)
"""By metric: the title of its axis and field, and how much of the log's unit one of the title's is."""


def written(metric: str, value: float | None, unit: str = "", *, absent: str = "-") -> str:
    """A figure of the log as a person reads it, with the unit that its name says, else with `unit`."""
    if value is None:
        return absent
    for name in (metric, f"figure_{unit}"):
        if quantity.quantity(name):
            return quantity.text(name, value)
    return f"{significant(value, 4)} {unit}".rstrip()
