"""Memory limit: what a job may fill of a device, what counts against it, and who says so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts, one_of
from perfkit.core.units import GIB, format_bytes, format_ratio

LimitedPart = Literal["pool", "device"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLimit:
    """A limit that a configuration, its environment, a table or an option states, in bytes or as a share of the device's memory.

    `part` says what counts: "pool" what the framework's allocator holds (MindSpore's `max_device_memory`, PyTorch's memory
    fraction; contexts, the buffers of collectives and the driver lie outside of it), "device" all that the job takes of a device.
    `source` says where it stands, for example "line 125, context.max_device_memory = 58GB". Raises InputError unless exactly one
    of `limit_bytes` and `device_share` (0 to 1) is given.
    """

    limit_bytes: int | None = None
    device_share: float | None = None
    part: LimitedPart = "pool"
    source: str = field(default="stated", compare=False)

    def __post_init__(self) -> None:
        problems = one_of(self, "part", get_args(LimitedPart))
        if (self.limit_bytes is None) == (self.device_share is None):
            problems.append("exactly one of limit_bytes and device_share is needed")
        elif self.limit_bytes is not None:
            problems += counts(self, ("limit_bytes",))
        elif not _is_share(self.device_share):
            problems.append(f"device_share = {self.device_share!r} must be more than 0 and at most 1, for example 0.9")
        if problems:
            raise InputError("MemoryLimit", problems)

    def __str__(self) -> str:
        size = format_bytes(self.limit_bytes) if self.device_share is None else format_ratio(self.device_share)
        return f"{size} of the {self.part}"

    def of(self, memory_bytes: int) -> MemoryLimit:
        """The same limit in bytes, for a device with that much memory."""
        if self.device_share is None:
            return self
        return replace(self, limit_bytes=max(1, math.floor(self.device_share * memory_bytes)), device_share=None)

    def on(self, device: str, memory_bytes: int, outside_bytes: int) -> MemoryLimit:
        """The limit that counts on a device, in bytes: a pool has at most what those that lie outside of it leave."""
        found, left = self.of(memory_bytes), max(1, memory_bytes - outside_bytes)
        if self.part == "device" or (found.limit_bytes or 0) <= left:
            return found
        why = f"{self.source}, of which {device} leaves {format_bytes(left)}: {format_bytes(outside_bytes)} lie outside of the pool"
        return replace(found, limit_bytes=left, source=why)

    def holds(self, amount_bytes: float) -> bool:
        """Whether a peak stays within the limit, which is in bytes."""
        return self.limit_bytes is not None and amount_bytes <= self.limit_bytes

    def problem(self, device: str, memory_bytes: int) -> str:
        """Why a device cannot hold as much, with the nearest limit that it can; empty if it can."""
        wanted = self.of(memory_bytes).limit_bytes or 0
        if wanted <= memory_bytes:
            return ""
        return (
            f"{self.source}: a memory limit of {format_bytes(wanted)} is more than {device} has, {format_bytes(memory_bytes)}; "
            f"nearest is {memory_bytes / GIB:g}GB"
        )


def _is_share(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < float(value) <= 1
