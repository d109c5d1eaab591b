"""Incidents: lines of a log that say that something went wrong, whatever program printed them.

Out of memory of the device or its host, collectives that timed out, errors of device memory, errors of the device or its driver.
Codes of Ascend are two letters and four digits (EI0002: a notify of HCCL timed out, EL0004: no memory), E and five digits, or 507
and three; of torch_npu ERR and five digits, of NVIDIA's driver Xid and a number. The rank is that of the line (`[rank3]:`, or
`[default3]:` of torchrun), else that of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KINDS = {
    "host_memory": (r"[Oo][Oo][Mm][-_ ][Kk]ill|Out of memory: Kill|DataLoader worker \(pid.{0,40}killed by signal: Killed"),
    "out_of_memory": (
        r"out of memory|Out of Memory!!!|OutOfMemoryError|EL0004\b|[Mm]emory not enough|[Mm]emory isn't enough"
        r"|[Mm]alloc device memory failed|[Aa]lloc\w* (?:device )?memory failed|CUBLAS_STATUS_ALLOC_FAILED"
    ),
    "collective_timeout": (
        r"Watchdog caught collective operation timeout|(?:NCCL|HCCL|RCCL)\b.{0,120}?\b[Tt]im(?:ed? ?-?out|eout)|EI0002\b|EI0006\b"
        r"|[Nn]otify wait (?:execution )?time-?out|collective operations? timed? ?out"
        r"|Timed out (?:waiting \d+ ?ms for (?:recv|send) operation|after \d+ seconds waiting for clients)"
    ),
    "no_number": (
        r"[Ff]ound (?:NaN|Inf|nan|inf|infinite values?)\b.{0,40}\b(?:grad|loss|norm)"
        r"|\b[Nn]a[Nn] (?:or \w+ )?(?:detected|encountered) in\b|returned nan values"
        r"|[Ll]oss (?:is|became|value is) (?:NaN|nan|inf)\b"
    ),
    "memory_error": (
        r"\b(?:[Uu]ncorrect\w+ )?ECC (?:memory )?[Ee]rror|\bXid\b.{0,40}?\):\s*(?:48|63|64|94|95)\b|\bUCE ERROR\b"
        r"|(?i:\bhbm multi[- ]bit ecc)"
    ),
    "device_error": (
        r"(?:CUDA|HIP) error:|\bXid\b|AcceleratorError|device-side assert|an illegal memory access|NPU error|HCCL error|NCCL error"
        r"|\bE[A-Z]\d{4}\b(?=[:\]\s])|\bERR\d{5}\b|(?:(?m:^)|[\]:]) {0,3}E[1-9]\d{4}: [A-Z]|\b(?:ret|code is|code)\W{0,3}507\d{3}\b"
        r"|ncclSystemError|ncclInternalError|ncclRemoteError|ncclUnhandledCudaError|Memory access fault by GPU"
    ),
}
"""In the order in which they count: a line that says two things is of the first kind."""
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
_ANY = re.compile("|".join(_KINDS.values()))
MARKER = re.compile("|".join(_KINDS.values()).encode())
"""Whether some bytes may hold an incident, which is asked before lines are looked at."""
_CODE = re.compile(r"\bE[A-Z]\d{4}\b|\bERR\d{5}\b|\bE[1-9]\d{4}\b|\b507\d{3}\b|\bXid\b.{0,40}?\):\s*(\d{1,3})\b")
_HARMLESS = re.compile(
    r"TORCH_NCCL|NCCL_[A-Z_]+=|[\w-]+\.{4,}|\b(?:set|setting|config|default)\b.{0,40}timeout|--[\w-]*timeout"
    r"|^(?!.*Watchdog caught).*timeout (?:is |was )?(?:set|configured)\b"
    r"|\bECC\b(?:\s+(?:errors?|mode|counts?|pages))*\s*[:=]\s*(?:0|none|disabled|enabled)\b(?!.*\bECC\b[^:=]*[:=]\s*[1-9])"
    r"|\b(?:no|0)\s+(?:\w+\s+)?ECC\b"
    r"|^\s*(?:volatile |aggregate )?ECC errors\s*:?\s*$"
    r"|\b(?:if|avoid|prevent|against|may|might|case of)\b.{0,60}out of memory"
    r"|out of memory (?:handler|killer|hook|observer|callback)",
    re.IGNORECASE,
)
"""Settings that name a time-out, lines of an argument dump, counts of no errors, and advice about what did not happen."""
_NO_NAN = re.compile(r"loss[ _-]scale|skipp(?:ing|ed)|\{\w*rank\w*\}|\bif\b.{0,40}\bnan\b", re.IGNORECASE)
"""The search for a loss scale, lines of a program in a traceback, and advice."""
_RANK = re.compile(r"(?<!remote )\brank(?:id)?[ _:]{0,2}(\d{1,6})\b", re.IGNORECASE)
_LOCAL_RANK = re.compile(r"^\[default(\d{1,6})\]:")
_PEER = re.compile(r"\bremote ?rank[ _:]{0,2}\[?(\d{1,6})\b", re.IGNORECASE)
_MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Incident:
    """What a line says: its kind and code, the rank that it names, its text, and the rank that did not come (`peer`)."""

    kind: str
    code: str | None
    rank: int | None
    text: str
    peer: int | None = None


def incident_of(text: str) -> Incident | None:
    """The incident that a line of a log tells; None if it tells none."""
    if _ANY.search(text) is None or _HARMLESS.search(text):
        return None
    kind = next(kind for kind, pattern in _PATTERNS.items() if pattern.search(text))
    if kind == "no_number" and _NO_NAN.search(text):
        return None
    named, peer = _RANK.search(text) or _LOCAL_RANK.search(text), _PEER.search(text)
    rank = int(named[1]) if named else None
    return Incident(kind, _code(text), rank, text.strip()[:_MAX_TEXT], int(peer[1]) if peer else None)


def _code(text: str) -> str | None:
    found = _CODE.search(text)
    if found is None:
        return None
    return f"Xid {found[1]}" if found[1] else found[0]
