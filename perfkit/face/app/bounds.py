"""Bounds: what the operating system lets a kernel and its workers have, so that a page cannot take the machine from the others.

Set by the server on the running process (rlimits, Linux); a kernel cannot raise them.
"""

from __future__ import annotations

import sys

from perfkit.core import settings

CPU_S = 6 * 3600
"""Processor time of a page: more than a day of work in it takes, and an endless loop ends some time."""
DESCRIPTORS = 4096


def bound(pid: int) -> None:
    """Bound a process that has just started; its children inherit the bounds."""
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
