"""Software: the program that trains, its release, and which communication it runs beside computing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import one_of
from perfkit.core.units import MIB

Framework = Literal["megatron", "deepspeed", "fsdp", "mindspore"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)
IMPLEMENTATIONS = ("local", "transformer_engine")
OVERLAPS = ("overlap_dp", "overlap_tp", "overlap_pp", "overlap_ep")
CONTEXT_BYTES: Mapping[str, int] = MappingProxyType(
    {"megatron": 1_600_000_000, "deepspeed": 1_600_000_000, "fsdp": 1_600_000_000, "mindspore": 3_040 * MIB}
)
"""What a process takes of a device outside of the framework's pool: contexts, communication libraries, the driver.

Bigscience notes: 1.1 to 1.6 GB a device before the first tensor; MindFormers log: 62432M - 59392M.
"""
_RELEASE = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}([.-]?(rc|dev|post|beta|alpha)\.?\d*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SoftwareSpec:
    """The training program; "" and None stand where a plan does not say.

    `release` is that of the program, as "1.3" or "0.12.0rc1". `overlap_dp`, `overlap_tp`, `overlap_pp` and `overlap_ep` say whether
    gradients and parameters of data parallelism, collectives of tensor parallelism, transfers between pipeline stages and exchanges
    of tokens between experts run beside computing, the last beside that of another micro batch.
    `transformer_impl` is Megatron's option of that name: "local" layers, or those of the "transformer_engine".
    """

    framework: str = ""
    release: str = ""
    overlap_dp: bool | None = None
    overlap_tp: bool | None = None
    overlap_pp: bool | None = None
    overlap_ep: bool | None = None
    transformer_impl: str = ""

    def __post_init__(self) -> None:
        problems = one_of(self, "framework", (*FRAMEWORKS, "")) + one_of(self, "transformer_impl", (*IMPLEMENTATIONS, ""))
        if self.release and not (isinstance(self.release, str) and _RELEASE.fullmatch(self.release)):
            problems.append(f"release = {self.release!r} must be numbers with dots, for example 1.3 or 2.3.1")
        problems += [
            f"{name} = {value!r} must be True or False"
            for name in OVERLAPS
            if not isinstance(value := getattr(self, name), bool | None)
        ]
        if problems:
            raise InputError("SoftwareSpec", problems)


def usual_framework(device: str, *, only_shared: bool) -> Framework:
    """The program that is usual on a device: MindSpore on Ascend, FSDP where parameters are shared and nothing else is split.

    Megatron in all other cases.
    """
    return "mindspore" if device.lower().startswith("ascend") else "fsdp" if only_shared else "megatron"
