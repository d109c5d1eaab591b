"""How many independent matrix units a device has: what decides how a product's tiles fill it."""

from __future__ import annotations

UNITS = {
    "V100": 80,
    "A100": 108,
    "A800": 108,
    "H100-80GB-PCIe": 114,
    "H100": 132,
    "H800": 132,
    "H200": 132,
    "H20-": 78,
    "B200": 148,
    "GB200": 148,
    "L40S": 142,
    "RTX4090": 128,
    "MI250X": 220,
    "MI300X": 304,
    "Ascend-910A": 32,
    "Ascend-910B1": 25,
    "Ascend-910B2": 24,
    "Ascend-910B3": 20,
    "Ascend-910B4": 20,
    "Ascend-910C": 48,
}
"""Streaming multiprocessors, compute units or cube cores by the start of the device's name, from vendors' architecture papers."""

TYPICAL = 100.0


def compute_units(device: str) -> float:
    """Matrix units of a device by name, or a typical number where they are not known."""
    return next((float(units) for start, units in UNITS.items() if device.startswith(start)), TYPICAL)
