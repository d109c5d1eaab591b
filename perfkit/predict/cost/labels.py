"""Labels: which accelerator, software stack and network a plan runs on, the keys by which efficiencies are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Stack = Literal["megatron", "fsdp", "mindspore"]


@dataclass(frozen=True, slots=True)
class Labels:
    """`unique` has (accelerator, stack, network) once each; `codes` has the position in it for every plan."""

    unique: tuple[tuple[str, str, str], ...]
    codes: Any


def stack_of(accelerator: str, *, sharded_parameters: bool, split: bool) -> Stack:
    """The software that a plan's settings imply: MindSpore on Ascend, FSDP where only parameters are sharded, else Megatron."""
    if accelerator.startswith("Ascend"):
        return "mindspore"
    return "fsdp" if sharded_parameters and not split else "megatron"


def network_of(text: str) -> str:
    """The kind of network that a note or a topology names; "" where it names none."""
    return "Omni-Path" if "omni-path" in text.lower() else ""
