"""Incidents: lines of a log that say that something went wrong, whatever program printed them.

Out of memory, collectives that timed out, errors of device memory, errors of the device or its driver. Codes of Ascend are two
letters and four digits (EI0002: a notify of HCCL timed out, EL0004: no memory), of torch_npu ERR and five digits, of NVIDIA's
driver Xid and a number. The rank is that of the line (`[rank3]:`), else that of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KINDS = {
    "out_of_memory": (
        r"out of memory|OutOfMemoryError|EL0004\b|[Mm]emory not enough|[Mm]alloc device memory failed|[Oo]om-kill"
        r"|[Aa]lloc\w* (?:device )?memory failed"
    ),
    "collective_timeout": (
        r"Watchdog caught collective operation timeout|(?:NCCL|HCCL|RCCL)\b.{0,80}?\btim(?:ed? ?-?out|eout)|EI0002\b|EI0006\b"
        r"|[Nn]otify wait (?:execution )?time-?out|collective operations? timed? ?out"
    ),
    "memory_error": (
        r"\b(?:[Uu]ncorrect\w+ )?ECC (?:memory )?[Ee]rror|\bXid\b.{0,40}?\):\s*(?:48|63|64|94|95)\b|\bUCE ERROR\b|HBM MULTI BIT ECC"
    ),
    "device_error": (
        r"CUDA error:|\bXid\b|AcceleratorError|device-side assert|an illegal memory access|NPU error|HCCL error|NCCL error"
        r"|\bE[A-Z]\d{4}\b(?=[:\]\s])|\bERR\d{5}\b|\bE1\d{4}:|ncclSystemError|ncclInternalError|ncclRemoteError"
        r"|ncclUnhandledCudaError"
    ),
}
"""In the order in which they count: a line that says two things is of the first kind."""
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
_ANY = re.compile("|".join(_KINDS.values()))
MARKER = re.compile("|".join(_KINDS.values()).encode())
"""Whether some bytes may hold an incident, which is asked before lines are looked at."""
_CODE = re.compile(r"\bE[A-Z]\d{4}\b|\bERR\d{5}\b|\bE1\d{4}\b|\bXid\b.{0,40}?\):\s*(\d{1,3})\b")
_HARMLESS = re.compile(
    r"TORCH_NCCL|NCCL_[A-Z_]+=|[\w-]+\.{4,}|\b(?:set|setting|config|default)\b.{0,40}timeout|--[\w-]*timeout", re.IGNORECASE
)
"""Settings that name a time-out, and lines of an argument dump."""
_RANK = re.compile(r"\brank(?:id)?[ _:]{0,2}(\d{1,6})\b", re.IGNORECASE)
_MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Incident:
    """What a line says: its kind and code, the rank that it names, and its text."""

    kind: str
    code: str | None
    rank: int | None
    text: str


def incident_of(text: str) -> Incident | None:
    """The incident that a line of a log tells; None if it tells none."""
    if _ANY.search(text) is None or _HARMLESS.search(text):
        return None
    kind = next(kind for kind, pattern in _PATTERNS.items() if pattern.search(text))
    named = _RANK.search(text)
    return Incident(kind, _code(text), int(named[1]) if named else None, text.strip()[:_MAX_TEXT])


def _code(text: str) -> str | None:
    found = _CODE.search(text)
    if found is None:
        return None
    return f"Xid {found[1]}" if found[1] else found[0]
