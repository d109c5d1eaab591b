"""Kineto files: which files of a listing are traces of the PyTorch profiler, and the rank that a name states.

Decided by the first 4 KiB after gunzip. Only if nothing is found there, the first MiB of some files is looked at, because a few
writers put long metadata before the events.
"""

from __future__ import annotations

import re
from itertools import islice

from perfkit.trace._blocks import Blocks
from perfkit.trace._listing import File, Listing
from perfkit.units import MIB

MAX_DEEP_LOOKS = 32
_DEEP_BYTES = MIB
_MARKS = re.compile(
    rb'"(?:traceEvents|baseTimeNanoseconds|deviceProperties|distributedInfo|cuda_runtime_version|hip_runtime_version)"\s*:'
)
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|kernel|gpu_memcpy|gpu_memset|cuda_runtime|cuda_driver|user_annotation|gpu_user_annotation|'
    rb'python_function|cpu_instant_event|ac2g|Operator|Kernel|Memcpy|Memset|Runtime)"'
)
_PHASE = re.compile(rb'"ph"\s*:\s*"')
_ASCEND = re.compile(
    rb'"(?:Ascend Hardware|Overlap Analysis|CANN|HCCL|NPU MEM|AI Core Freq|async_npu|torch_to_npu|async_task_queue)"'
    rb"|torch_npu|mindspore|aclnn"
)
_RANK = re.compile(r"rank[-_]?(\d{1,9})|worker[-_]?(\d{1,9})", re.IGNORECASE)


def find_traces(listing: Listing) -> tuple[File, ...]:
    """The traces of a listing, in its order."""
    candidates = [file for file in listing if file.size_bytes > 0 and file.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")]
    found = tuple(file for file in candidates if _is_trace(file.head, file))
    if found:
        return found
    unclear = [file for file in candidates if file.size_bytes > len(file.head) and not _ASCEND.search(file.head)]
    return tuple(file for file in unclear[:MAX_DEEP_LOOKS] if _is_trace(_start(file), file))


def rank_in_name(file: File) -> int | None:
    """The rank that the name of a file, or else of its folders, states as `rank3`, `rank_3`, `rank-3` or `worker3`."""
    for name in reversed(file.relative.parts):
        if found := _RANK.search(name):
            return int(found[1] or found[2])
    return None


def _is_trace(start: bytes, file: File) -> bool:
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{"):
        return _MARKS.search(text) is not None and not _ASCEND.search(text)
    listed = re.match(rb"\[\s*\{", text) is not None and _PHASE.search(text) is not None and _CATEGORY.search(text) is not None
    return listed and not _is_ascend(file, text)


def _is_ascend(file: File, start: bytes) -> bool:
    """Ascend's traces have categories of PyTorch too; their process names may stand a MiB further on."""
    return _ASCEND.search(start) is not None or _ASCEND.search(_start(file)) is not None


def _start(file: File) -> bytes:
    """The first MiB of the content, or what can be read of it."""
    return b"".join(islice(Blocks(file), 1))[:_DEEP_BYTES]
