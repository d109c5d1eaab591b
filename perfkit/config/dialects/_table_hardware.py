"""Hardware of the plans of a table: every row's device from the catalogue, with the node and the network that the row states."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from perfkit.config.dialects._table_cells import Cells, coded, first_of, said
from perfkit.config.dialects._table_names import DTYPES, NETWORKS, plain
from perfkit.core.plan_columns import Coded, combined
from perfkit.core.spec.hardware import HardwareSpec, Link, LinkKind

USUAL = "bfloat16"


def read_hardware(cells: Cells, devices: Mapping[str, HardwareSpec]) -> Coded[HardwareSpec | None]:
    """The device of every row; one that the catalogue does not know is a problem of the row."""
    per_node, rate = cells.sizes("devices_per_node", 1), cells.numbers("network_gbit_per_node")
    cells.problem(rate <= 0, lambda i: f"{cells.label('network_gbit_per_node')} = {rate[i]:g} must be positive")
    network = cells.chosen("network", NETWORKS, "")
    found = combined(_named(cells, devices), coded(per_node), coded(np.where(rate > 0, rate, np.nan)), network)
    return Coded(found.codes, tuple(_changed(*values) for values in found.values))


def _named(cells: Cells, devices: Mapping[str, HardwareSpec]) -> Coded[HardwareSpec | None]:
    """The devices by name; case, `_`, `-` and spaces do not matter."""
    texts, known = cells.texts("accelerator"), {plain(name): spec for name, spec in devices.items()}
    label = cells.label("accelerator")
    for code, text in enumerate(texts.values):
        if plain(text) not in known:
            near = difflib.get_close_matches(text, devices, n=3, cutoff=0.4)
            hint = f"nearest are {', '.join(near)}" if near else f"known are {', '.join(devices)}"
            problem = f"{label} = {text!r} is not in the catalogue; {hint}" if text else f"{label} is not stated"
            cells.problem(texts.codes == code, said(problem))
    return Coded(texts.codes, tuple(known.get(plain(text)) for text in texts.values))


def _changed(spec: HardwareSpec | None, per_node: float, gbit: float, network: LinkKind) -> HardwareSpec | None:
    """The device in such a node on such a network; rates of the network are for a whole node."""
    if spec is None:
        return None
    devices = spec.devices_per_node if np.isnan(per_node) else int(per_node)
    before, links = spec.links.get("inter_node"), dict(spec.links)
    if not np.isnan(gbit):
        rate = gbit * 1e9 / 8 / devices
        links["inter_node"] = replace(before, bytes_per_s=rate) if before else Link(name="inter_node", bytes_per_s=rate)
    if network and "inter_node" in links:
        links["inter_node"] = replace(links["inter_node"], kind=network, topology=network)
    same = devices == spec.devices_per_node and links == dict(spec.links)
    return spec if same else replace(spec, devices_per_node=devices, links=links)


def read_dtype(cells: Cells, hardware: Coded[HardwareSpec | None]) -> Coded[str]:
    """The precision of the work; where none is stated bf16, or the first that the device has a peak for."""
    stated = cells.chosen("dtype", DTYPES, "")
    usual = [_usual(spec) for spec in hardware.values]
    for code, dtype in enumerate(usual):
        cells.assume(stated.is_("") & (hardware.codes == code), said(f"{cells.label('dtype')} = {dtype}"))
    return first_of(stated, Coded(hardware.codes, tuple(usual)))


def _usual(spec: HardwareSpec | None) -> str:
    return USUAL if spec is None or USUAL in spec.peak_flops_per_s else next(iter(spec.peak_flops_per_s))
