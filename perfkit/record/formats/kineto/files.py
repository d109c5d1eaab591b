"""Kineto files: which files of a listing are traces of the PyTorch profiler, and the rank that a name states.

Decided by the first 4 KiB after gunzip. A JSON object that shows nothing there is looked at further, because a few writers put long
metadata before the events.
"""

from __future__ import annotations

import re
import zlib

from perfkit.core.units import KIB
from perfkit.record.listing import File, Listing
from perfkit.record.readers.parts import begins_amid_events

MAX_DEEP_LOOKS = 256
_DEEP_BYTES = 256 * KIB
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
PRODUCER = b'"producer": "perfkit"'
"""What perfkit exports has Kineto's categories, whatever the device and the names of its operators."""
_RANK = re.compile(r"rank[-_]?(\d{1,9})|worker[-_]?(\d{1,9})", re.IGNORECASE)


def find_traces(listing: Listing) -> tuple[File, ...]:
    """The traces of a listing, in its order; those without their beginning only if they state a rank or no other is whole."""
    found: list[File] = []
    pieces: list[File] = []
    deep_looks = 0
    for file in listing:
        if file.size_bytes and begins_amid_events(file.head):
            pieces += [file] if _CATEGORY.search(_start(file)) and not _is_ascend(file, file.head) else []
            continue
        first = _text(file.head)[:1] if file.size_bytes else b""
        recognised = first in (b"{", b"[") and _is_trace(file.head, file)
        if first == b"{" and not recognised and deep_looks < MAX_DEEP_LOOKS:
            deep_looks += 1
            recognised = _is_trace(_start(file), file)
        if recognised:
            found.append(file)
    taken = {*found, *(file for file in pieces if not found or rank_in_name(file) is not None)}
    return tuple(file for file in listing if file in taken) if taken else ()


def rank_in_name(file: File) -> int | None:
    """The rank that the name of a file, or else of its folders, states as `rank3`, `rank_3`, `rank-3` or `worker3`."""
    for name in reversed(file.relative.parts):
        if found := _RANK.search(name):
            return int(found[1] or found[2])
    return None


def _is_trace(start: bytes, file: File) -> bool:
    text = _text(start)
    if text.startswith(b"{"):
        return _MARKS.search(text) is not None and (PRODUCER in text or not _ASCEND.search(text))
    listed = re.match(rb"\[\s*\{", text) is not None and _PHASE.search(text) is not None and _CATEGORY.search(text) is not None
    return listed and not _is_ascend(file, text)


def _is_ascend(file: File, start: bytes) -> bool:
    """Ascend's traces have categories of PyTorch too; their process names may stand far behind."""
    return file.name.startswith("trace_view") or any(_ASCEND.search(text) for text in (start, _start(file)))


def _start(file: File) -> bytes:
    """The start of the content, or what can be read of it."""
    try:
        with file.open() as stream:
            start: bytes = stream.read(_DEEP_BYTES)
        return zlib.decompressobj(wbits=31).decompress(start, _DEEP_BYTES) if file.is_gzip else start
    except (OSError, zlib.error):
        return b""


def _text(start: bytes) -> bytes:
    return start.lstrip(b"\xef\xbb\xbf \t\r\n")
