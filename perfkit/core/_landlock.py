"""Landlock: the Linux kernel keeps a process, and all that it starts, within folders (since 5.13; landlock(7)).

Called through the C library, which has no functions for it. Where the system has none, nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on all architectures."""
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_ALL = (1 << 15) - 1
"""Every right on files of the third version of the interface: up to truncating."""
_READ = 1 << 0 | 1 << 2 | 1 << 3
"""To execute and read a file, to list a folder."""
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14


def version() -> int:
    """The version of the interface; 0 where there is none."""
    return max(0, _call(_CREATE, None, 0, _VERSION)) if sys.platform == "linux" else 0


def restrict(*, read: Iterable[str], write: Iterable[str]) -> bool:
    """Keep this thread, what it starts and their children within these places; whether that was done."""
    if version() < 3:
        return False
    rules = _call(_CREATE, struct.pack("=Q", _ALL), 8, 0)
    if rules < 0:
        return False
    try:
        for places, rights in ((read, _READ), (write, _ALL)):
            for place in places:
                _allow(rules, Path(place), rights)
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return _call(_RESTRICT, rules, 0) == 0
    finally:
        os.close(rules)


def _allow(rules: int, place: Path, rights: int) -> None:
    with contextlib.suppress(OSError):  # what is not there needs no right
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            rights = rights if place.is_dir() else rights & _OF_FILES
            _call(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
        finally:
            os.close(handle)


def _call(number: int, *arguments: int | bytes | None) -> int:
    converted = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *converted))
