"""Labels: which accelerator, software stack and network a plan runs on, the keys by which efficiencies are looked up."""

from __future__ import annotations

from perfkit.core.plan_columns import Coded, PlanColumns, combined
from perfkit.core.spec.hardware import HardwareSpec

Label = tuple[str, str, str]
"""Accelerator, software stack and network."""


def labels_of(plans: PlanColumns) -> Coded[Label]:
    """The label of every plan."""
    shared = (plans.optimizer_shard_size > 1) & (plans.optimizer_shard_level >= 2)
    split = (plans.tensor_parallel_size > 1) | (plans.pipeline_parallel_size > 1)
    only_shared = Coded((shared & ~split).astype(int), (False, True))
    found = combined(plans.hardware, only_shared)
    return Coded(found.codes, tuple(_label(*values) for values in found.values))


def _label(device: HardwareSpec | None, only_shared: bool) -> Label:
    """MindSpore on Ascend, FSDP where parameters are shared and nothing else is split, else Megatron."""
    name = device.name if device else ""
    link = device.links.get("inter_node") if device else None
    stack = "mindspore" if name.startswith("Ascend") else "fsdp" if only_shared else "megatron"
    return name, stack, network_of(link.topology if link else "")


def network_of(text: str) -> str:
    """The kind of network that a note or a topology names; "" where it names none."""
    return "Omni-Path" if "omni-path" in text.lower() else ""
