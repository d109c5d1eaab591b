"""A request for device memory that failed: its size and what the device had, as the frameworks print them.

PyTorch and torch_npu (`c10/cuda/CUDACachingAllocator.cpp` and `NPUCachingAllocator.cpp`, two generations) print sizes with binary
units; MindSpore (`dynamic_mem_pool.cc`, `memory_manager_actor.cc`, `ascend_memory_adapter.cc`) prints bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfkit.core.units import GIB, KIB, MIB

_UNITS: Mapping[str, int] = {"bytes": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,18}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB)"
_REQUESTED = (
    re.compile(rf"[Tt]ried to allocate {_SIZE}"),
    re.compile(r"alloc size:? ?(\d{1,18})()B?"),
    re.compile(r"Request memory size:? ?(\d{1,18})()B?"),
    re.compile(r"required size\[(\d{1,18})()B?\]"),
    re.compile(r"[Mm]alloc device memory failed, size\[(\d{1,18})()\]"),
    re.compile(r"halMemAlloc failed:.{0,40}?\bsize=(\d{1,18})()"),
)
_FREE = (
    re.compile(rf"of which {_SIZE} is free"),
    re.compile(rf"{_SIZE} free\b"),
    re.compile(r"current free memory size\[(\d{1,18})()B?\]"),
    re.compile(r"\bfree size:(\d{1,18})()\b"),
)
_UNUSED = (re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),)
_RESERVED = (re.compile(rf"{_SIZE} reserved in total by PyTorch"),)
_ALLOCATED = (re.compile(rf"{_SIZE} already allocated"),)
_OTHERS = re.compile(rf"\bProcess \d+ has {_SIZE} memory in use")
_OWN = "this process has"
FIGURES = ("requested_bytes", "free_bytes", "unused_bytes", "others_bytes")
"""Columns of `incidents`: what did not fit, what the device had free, what the pool held without using it, what others held."""

NO_REQUEST: Mapping[str, int | None] = dict.fromkeys(FIGURES)


def failed_request(text: str) -> Mapping[str, int | None]:
    """The figures of a line about memory that was not there, None for each that it does not print."""
    unused, reserved, allocated = (_first(patterns, text) for patterns in (_UNUSED, _RESERVED, _ALLOCATED))
    if unused is None and reserved is not None and allocated is not None:
        unused = max(0, reserved - allocated)
    # In a container PyTorch does not know itself among the processes of the device, and tells itself as one of them.
    others = [_bytes(found[1], found[2]) for found in _OTHERS.finditer(text)] if _OWN in text else []
    return dict(zip(FIGURES, (_first(_REQUESTED, text), _first(_FREE, text), unused, sum(others) if others else None), strict=True))


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    found = next((found for pattern in patterns if (found := pattern.search(text))), None)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit or "B"])
