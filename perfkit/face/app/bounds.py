"""Bounds: what the operating system lets a kernel and its workers have, so that a page cannot take the machine from the others.

Set by the server on the running process; a kernel cannot raise them. Here are those of a process (rlimits, Linux);
`perfkit.face.app.cgroup` adds those of a group of processes where the system has given the server one.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Literal

from perfkit.core import settings

CPU_S = 6 * 3600
"""Processor time of a page: more than a day of work in it takes, and an endless loop ends some time."""
DESCRIPTORS = 4096
MAX_PROCESSES = 64
"""Of one page: the kernel and the workers that read a recording."""


class Bounds:
    """Rlimits, which hold for each process by itself. `told` says in words what holds, and why no more does."""

    kind: Literal["rlimits", "cgroup", "none"] = "rlimits" if sys.platform == "linux" else "none"

    def __init__(self, told: str = "") -> None:
        self.told = told

    def take(self, owner: str, pid: int) -> None:
        """Bound the process of a kernel that has just started; its children inherit the bounds."""
        if sys.platform != "linux":
            return
        import resource  # noqa: PLC0415  not on Windows

        wanted = {
            resource.RLIMIT_DATA: settings.kernel_memory_bytes(),
            resource.RLIMIT_CPU: CPU_S,
            resource.RLIMIT_NOFILE: DESCRIPTORS,
            resource.RLIMIT_CORE: 0,
        }
        for kind, limit in wanted.items():
            _, most = resource.prlimit(pid, kind)
            least = limit if most == resource.RLIM_INFINITY else min(limit, most)
            resource.prlimit(pid, kind, (least, least))

    def ended_by(self, owner: str) -> str:
        """Which bound ended a kernel, "memory"; empty if none is known to have."""
        return ""

    def release(self, owner: str) -> None:
        """End what is left of a kernel's processes, if that can be told."""

    def sweep(self, owners: Collection[str]) -> None:
        """Forget what was made for others than `owners`."""
