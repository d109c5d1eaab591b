"""What a device's name and topology tell beyond its rates: how many matrix units it has, and whether its node is a mesh."""

from __future__ import annotations

from perfkit.core.spec.hardware import HardwareSpec

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


def is_mesh(device: HardwareSpec) -> bool:
    """Whether the devices of a node are joined by links from each to each, without a switch."""
    link = device.links.get("intra_node")
    return link is not None and "mesh" in link.topology.lower()
