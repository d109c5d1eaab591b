"""Device: what the catalogue knows about the device of a run, from its plan or from the name that its profiler wrote.

A profiler writes a marketing name ("NVIDIA H100 80GB HBM3", "Ascend910B"), which may stand for several devices of the catalogue.
All that fit are given; whoever judges by them takes the peak that speaks for the run.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.explain.diagnose.case import Case
from perfkit.predict.calibration import calibration

_SIZE = re.compile(r"\d+ ?GB")


def candidates(case: Case) -> tuple[HardwareSpec, ...]:
    """The devices that the run may have used; empty where it names none that is known."""
    plan, fact = case.run.plan, case.run.facts.get("device_name")
    if plan is not None and plan.hardware is not None:
        return (plan.hardware,)
    return () if fact is None else named(str(fact.value))


def expected_bytes_per_s(case: Case, rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """By operation the bus bandwidth that predictions expect of large messages there; NaN where the device is not known.

    The share of the stated bandwidth is that of every prediction (`perfkit.predict.cost`). Of several devices the fastest speaks.
    """
    found = np.full(len(rows), np.nan)
    usual = calibration("default").common
    shares = {"intra_node": usual["intra_share"], "inter_node": usual["inter_share"]}
    for device in candidates(case):
        kinds = kinds_of_links(case, rows, device)
        rates = [device.links[kind].bytes_per_s * shares[kind] if kind in device.links else np.nan for kind in kinds]
        found = np.fmax(found, np.array(rates, dtype=np.float64) * used_share(rows.assign(link=kinds), device))
    return found


def kinds_of_links(case: Case, rows: pd.DataFrame, device: HardwareSpec) -> list[str]:
    """The kind of link that each operation crosses: by the nodes of its members, or by how many ranks a node has."""
    nodes = case.nodes

    def node(rank: int) -> int:
        return nodes.get(rank, rank // device.devices_per_node)

    spread = case.members.groupby("instance")["rank"].agg(lambda ranks: len({node(int(rank)) for rank in ranks}))
    sizes = rows["group_size"].fillna(0).to_numpy(dtype=float)
    several: Any = (spread.reindex(rows["instance"]).to_numpy() > 1) | (sizes > device.devices_per_node)
    return ["inter_node" if crosses else "intra_node" for crosses in several]


def used_share(rows: pd.DataFrame, device: HardwareSpec) -> npt.NDArray[np.float64]:
    """The share of a device's links inside its node that a group can use: of a mesh only those to its own members."""
    near = (rows["link"] == "intra_node").to_numpy(dtype=bool)
    if not device.is_mesh:
        return np.ones(len(rows))
    peers = (rows["group_size"].fillna(device.devices_per_node).to_numpy(dtype=np.float64) - 1).clip(min=1)
    return np.where(near, np.minimum(1.0, peers / max(1, device.devices_per_node - 1)), 1.0)


def named(text: str) -> tuple[HardwareSpec, ...]:
    """The devices of the catalogue that a profiler's name may mean."""
    try:
        return (catalog.hardware_named(text),)
    except InputError:  # no name of the catalogue: compare its parts
        pass
    device = _plain(text)
    found = [name for name in catalog.hardware() if _same_family(name, device)]
    for wanted in (_SIZE.findall(device), ["PCIE"] if "PCIE" in device else ["SXM"]):
        fitting = [name for name in found if any(part.replace(" ", "") in _plain(name).replace(" ", "") for part in wanted)]
        found = fitting or found
    devices = {spec.name: spec for spec in (catalog.hardware()[name] for name in found)}
    return tuple(devices.values())


def _same_family(name: str, device: str) -> bool:
    """Whether a device is of the family of a catalogue's name: of all Ascend-910B if it says Ascend910B only."""
    parts = _plain(name).split()
    family = " ?".join(re.escape(part) for part in parts[: 2 if parts[0] == "ASCEND" else 1])
    if re.search(rf"(?<![A-Z0-9]){family}(?!\d)", device):
        return True
    whole = device.replace(" ", "")
    return parts[0] == "ASCEND" and len(whole) > len("ASCEND910") and "".join(parts).startswith(whole)


def _plain(text: str) -> str:
    """Capitals, with what separates words as one space; "RTX 4090" as the catalogue writes it."""
    return re.sub(r"RTX ", "RTX", re.sub(r"[^A-Z0-9]+", " ", text.upper())).strip()
