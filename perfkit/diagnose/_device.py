"""Device: what the catalogue knows about the device of a run, from its plan or from the name that its profiler wrote.

A profiler writes a marketing name ("NVIDIA H100 80GB HBM3", "Ascend910B"), which may stand for several devices of the catalogue.
All that fit are given; whoever judges by them takes the peak that speaks for the run.
"""

from __future__ import annotations

import re

from perfkit import catalog
from perfkit.diagnose._case import Case
from perfkit.errors import InputError
from perfkit.spec.hardware import HardwareSpec

HOW = "record which device ran it: a profile with device properties, or a plan with its hardware"
_SIZE = re.compile(r"\d+ ?GB")


def candidates(case: Case) -> tuple[HardwareSpec, ...]:
    """The devices that the run may have used; empty where it names none that is known."""
    plan, fact = case.run.plan, case.run.facts.get("device_name")
    if plan is not None and plan.hardware is not None:
        return (plan.hardware,)
    return () if fact is None else named(str(fact.value))


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
