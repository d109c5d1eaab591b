"""Room: whether this machine has what one more page needs, in memory and in descriptors, so that it is refused before it fails.

The message library ends the process when it gets no descriptor, so the server never lets the last ones go.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from perfkit.core import settings
from perfkit.core.units import MIB

PAGE_BYTES = 200 * MIB
"""Measured: what an open page takes of a machine, rounded up."""
RESERVED_BYTES = 256 * MIB
"""Memory that pages never take: the server and the pages that are open must be able to go on."""
PAGE_DESCRIPTORS = 40
"""Measured: 26 while a page starts, 21 while it is open."""
RESERVED_DESCRIPTORS = 48
CONNECTION_RESERVE = 24
"""Below this no connection is accepted: what is left is for the pages that are open."""

Shortage = Literal["", "pages", "own pages", "memory", "descriptors"]


@dataclass(frozen=True, slots=True)
class Room:
    """What is left. `descriptor_limit` is that of this process."""

    free_bytes: int
    descriptors: int
    descriptor_limit: int

    @property
    def shortage(self) -> Shortage:
        """What one more page would lack; empty if it fits."""
        if self.free_bytes < PAGE_BYTES + RESERVED_BYTES:
            return "memory"
        short = self.descriptor_limit - self.descriptors < PAGE_DESCRIPTORS + RESERVED_DESCRIPTORS
        return "descriptors" if short else ""

    @property
    def accepts_connections(self) -> bool:
        """Whether another browser may talk to the server at all."""
        return self.descriptor_limit - self.descriptors > CONNECTION_RESERVE


def room() -> Room:
    """What this machine and this process have left now."""
    return Room(settings.free_memory_bytes(), num_descriptors(), descriptor_limit())


def num_descriptors() -> int:
    """Open files and sockets of this process."""
    listing = Path("/proc/self/fd")
    try:
        return len(os.listdir(listing)) if listing.is_dir() else int(getattr(psutil.Process(), "num_fds", lambda: 0)())  # noqa: PTH208
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return descriptor_limit()  # not one is left to count them with


def descriptor_limit() -> int:
    """How many this process may have."""
    if os.name == "nt":
        return 8192
    import resource  # noqa: PLC0415  not on Windows

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit() -> None:
    """Take as many descriptors as this account may have; many systems start programs with 1,024 of them."""
    if os.name != "nt":
        import resource  # noqa: PLC0415  not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if most == resource.RLIM_INFINITY else min(most, 65_536)
        if wanted > descriptor_limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
