"""Labels: which accelerator, software stack and network a plan runs on, the keys by which efficiencies are looked up."""

from __future__ import annotations

from perfkit.core.plan_columns import Coded, PlanColumns, combined
from perfkit.core.spec.hardware import HardwareSpec

Label = tuple[str, str, str]
"""Accelerator, software stack and network."""


_STACKS = {"deepspeed": "megatron"}
"""Programs that train with another one's kernels: DeepSpeed's measured runs are those of Megatron-DeepSpeed."""


def labels_of(plans: PlanColumns) -> Coded[Label]:
    """The label of every plan; its stack is that of the program that it states, else of the usual one."""
    found = combined(plans.hardware, plans.program)
    return Coded(found.codes, tuple(_label(*values) for values in found.values))


def _label(device: HardwareSpec | None, program: str) -> Label:
    link = device.links.get("inter_node") if device else None
    return device.name if device else "", _STACKS.get(program, program), network_of(link.topology if link else "")


def network_of(text: str) -> str:
    """The kind of network that a note or a topology names; "" where it names none."""
    return "Omni-Path" if "omni-path" in text.lower() else ""
