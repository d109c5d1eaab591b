"""Kinds: from the names of operators, kernels and collectives to what they are.

The rules are lists that a user can read; a name is communication if any pattern matches. Sources: FORMATS of the profilers,
names seen in NCCL 2.10 to 2.27, RCCL, HCCL, DeepEP and vLLM traces.
"""

from __future__ import annotations

import re
from functools import lru_cache

COMMUNICATION_PATTERNS = (
    r"nccl",
    r"rccl",
    r"all_?reduce",
    r"all_?gather",
    r"reduce_?scatter",
    r"all_?to_?all",
    r"cross_device_reduce",
    r"::ep::internode::",
    r"::ep::intranode::",
    r"^hcom_",
)
_COMMUNICATION = re.compile("|".join(COMMUNICATION_PATTERNS), re.IGNORECASE)

_OPERATIONS = (
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all_reduce", re.compile(r"all_?reduce|cross_device_reduce", re.IGNORECASE)),
    ("all_gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all_to_all", re.compile(r"all_?to_?all|::ep::", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
    ("send_receive", re.compile(r"send_?recv|batch_?send", re.IGNORECASE)),
    ("receive", re.compile(r"receive|recv", re.IGNORECASE)),
    ("send", re.compile(r"send", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
)


def is_communication(name: str) -> bool:
    """Whether a device kernel of this name moves data between devices."""
    return _COMMUNICATION.search(name) is not None


@lru_cache(maxsize=4096)
def operation_of(name: str) -> str:
    """The collective or point-to-point operation that a communication name stands for; "other" if none is recognised."""
    return next((operation for operation, pattern in _OPERATIONS if pattern.search(name)), "other")
