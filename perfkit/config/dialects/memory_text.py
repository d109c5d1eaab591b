"""Memory limits as configurations and environments spell them: sizes in GB of 1024³ bytes, shares of the device, and the way back.

MindSpore takes only "xxGB" and multiplies by 1024³ (`kGBToByte`, ascend_memory_adapter.cc; its log shows 59392M for 58GB). It
refuses 0GB, and its default of 1024GB stands for all that the device has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from perfkit.config.dialects._section import Reading, shown
from perfkit.core.errors import InputError
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.units import GIB, parse_bytes

POOL_KEY = ("context", "max_device_memory")
WHOLE_DEVICE = "1024GB"
ADVISED = "58GB"  # by the guides, on a device of 64 GB
SHARES = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NPU_MEMORY_FRACTION")
"""Variables that limit an allocator to a share of the device: PyTorch's by `per_process_memory_fraction`, the last by itself."""
_SHARE = re.compile(r"per_process_memory_fraction:([^,\s]+)")
_POOL = re.compile(r"(?:[1-9]\d*\.?\d*|0\.\d+)GB")
_SIZE = re.compile(r"\d+(?:\.\d+)?\s*[KMGT]i?B")


def pool_limit(reading: Reading, value: Any) -> MemoryLimit | None:
    """What `context.max_device_memory` limits the pool to; None for the whole device, or after noting what is wrong with it."""
    key = ".".join(POOL_KEY)
    if value is None or value == WHOLE_DEVICE:
        return None
    if isinstance(value, str) and _POOL.fullmatch(value) and parse_bytes(value):
        where = f"{reading.document.name}, {reading.where(key)} = {value}"
        return MemoryLimit(limit_bytes=parse_bytes(value), source=where)
    reading.problem(key, f"{shown(value)} must be more than 0 and end in GB, as MindSpore takes it; nearest is {_nearest(value)!r}")
    return None


def size_of(text: str) -> int:
    """Bytes of a limit such as "58GiB" or "58GB" (GB of 1024³ bytes). Raises ValueError that says what is right."""
    if _SIZE.fullmatch(text.strip()) and (found := parse_bytes(text)):
        return found
    raise ValueError(f"{text!r} must be a size of more than 0 with its unit; nearest is {_nearest(text)!r}")


def cell_bytes(text: str) -> int:
    """Bytes of a limit in a cell: a whole number of them, or a size with its unit. Raises ValueError that says what is right."""
    try:
        number = float(text)
    except ValueError:
        return size_of(text)
    if number >= 1 and number.is_integer():
        return int(number)
    near = f"{number:.0f}" if 1 <= number < math.inf else repr(ADVISED)
    raise ValueError(f"{text} must be a whole number of bytes from 1, or a size with its unit; nearest is {near}")


def size_text(limit_bytes: int) -> str:
    """Bytes as MindSpore spells them, with the fewest decimals that read back as the same number (the last may round down)."""
    texts = (f"{limit_bytes / GIB:.{digits}f}GB" for digits in range(12))
    return next((text for text in texts if parse_bytes(text) == limit_bytes), f"{limit_bytes / GIB:.9f}GB")


def _nearest(value: Any) -> str:
    try:
        found = parse_bytes(f"{value}GB" if isinstance(value, int | float) else str(value))
    except ValueError:
        return ADVISED
    return size_text(found) if found else ADVISED


def environment_limit(reading: Reading, variables: Mapping[str, str]) -> MemoryLimit | None:
    """The limit that the environment of a launch script sets: a share of the device for PyTorch's allocator, or a size."""
    found: list[MemoryLimit] = []
    for name in SHARES:
        text = variables.get(name, "")
        value = found_share[1] if (found_share := _SHARE.search(text)) else text if name == "NPU_MEMORY_FRACTION" else ""
        if value:
            found += _share(reading, name, value)
    if size := variables.get("NPU_MEMORY", ""):
        try:
            found.append(MemoryLimit(limit_bytes=size_of(size), source=f"{reading.document.name}, NPU_MEMORY = {size}"))
        except ValueError as error:
            reading.problem("NPU_MEMORY", str(error))
    if len(set(found)) > 1:
        reading.problem("environment", f"limits contradict one another: {', '.join(limit.source for limit in found)}; keep one")
    return found[0] if found else None


def _share(reading: Reading, name: str, value: str) -> list[MemoryLimit]:
    source = f"{reading.document.name}, {name} = {value}"
    try:
        return [MemoryLimit(device_share=float(value), source=source)]
    except (ValueError, InputError):
        reading.problem(name, f"{shown(value)} must be a share of more than 0 and at most 1; nearest is 0.9")
        return []
