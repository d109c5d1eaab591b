"""Supervisor: looks whether what runs is what the table says, mends what is not, and keeps pages within their bounds.

Every second it tells the page of a kernel that has ended by itself. Every few seconds it ends kernels that nobody owns, closes what
is open for kernels that nobody manages, ends kernels with too many processes or too much memory, and, where the machine runs out of
memory, the largest kernel, so that the others live on. It sees to it that warm kernels wait again after they were lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from perfkit.core import settings
from perfkit.face.app.bounds import MAX_PROCESSES
from perfkit.face.app.room import RESERVED_BYTES

if TYPE_CHECKING:
    from perfkit.face.app.kernels import PageKernels

LOOK_S = 1.0
MEND_EVERY = 5
"""Looks between two comparisons of all processes with the table, which read /proc."""
GRACE_S = 20.0
"""How old something without an owner must be: for a moment of its start or end every kernel is without one."""

Sessions = dict[int, list[psutil.Process]]
"""Processes by the leader of their session: a kernel leads one, and its workers stay in it."""


class Supervisor:
    """Watches the kernels of a server. `mended` counts what it had to end by itself, `children` what it saw last."""

    def __init__(self, kernels: PageKernels) -> None:
        self.kernels, self.mended, self.children = kernels, 0, 0
        self._log = kernels.log
        self._seen_s: dict[int, float] = {}

    async def watch(self) -> None:
        """Look until cancelled."""
        looks = 0
        while True:
            try:
                await self.look(thorough=looks % MEND_EVERY == 0)
            except Exception:  # the watch must outlive whatever it meets
                self._log.exception("the supervisor could not look")
            looks += 1
            await asyncio.sleep(LOOK_S)

    async def look(self, *, thorough: bool = True) -> None:
        """Compare once; `thorough` with all processes of the system."""
        for kernel_id in self.kernels.ended_by_themselves():
            why = self.kernels.bounds.ended_by(kernel_id)
            self._log.warning("kernel %s ended by itself, %s", kernel_id, f"for its {why}" if why else "nobody knows why")
            await self.kernels.end(kernel_id, why=why or "killed")
        if thorough:
            self.kernels.refill_if_missing()
            sessions = await asyncio.to_thread(_sessions, os.getpid())
            self.children = sum(map(len, sessions.values()))
            self._mend_strays(sessions)
            self._mend_forgotten()
            self.kernels.bounds.sweep(self.kernels.managed() | self.kernels.owned.owners())
            await self._keep_bounds(sessions)

    def _mend_strays(self, sessions: Sessions) -> None:
        """Kernels without an entry, each a while after it was first seen."""
        known = {*self.kernels.owned.processes(), *self.kernels.own_pids(), os.getsid(0)}
        strays = {leader: found for leader, found in sessions.items() if leader not in known and any(map(_is_kernel, found))}
        now = time.monotonic()
        self._seen_s = {leader: self._seen_s.get(leader, now) for leader in strays}
        for leader in [leader for leader, since_s in self._seen_s.items() if now - since_s > GRACE_S]:
            self._log.warning("process %s belongs to no page; it is ended", leader)
            self.mended += 1
            for process in strays[leader]:
                with suppress(psutil.Error):
                    process.kill()

    def _mend_forgotten(self) -> None:
        """What is open for a kernel that nobody manages."""
        owned = self.kernels.owned
        for owner in owned.owners() - self.kernels.managed():
            if time.monotonic() - owned.since_s(owner) > GRACE_S:
                self._log.warning("kernel %s was forgotten; what it had open is closed", owner)
                self.mended += owned.end(owner)

    async def _keep_bounds(self, sessions: Sessions) -> None:
        """End what takes more than one page may, and the largest kernel where memory runs out."""
        families = {owner: sessions.get(pid, []) for pid, owner in self.kernels.owned.processes().items()}
        sizes = {owner: sum(map(_private_bytes, family)) for owner, family in families.items()}
        limit_bytes = settings.kernel_memory_bytes()
        too_many = {owner: "processes" for owner, family in families.items() if len(family) > MAX_PROCESSES}
        too_large = {owner: "memory" for owner, num_bytes in sizes.items() if num_bytes > limit_bytes}
        if sizes and settings.free_memory_bytes() < RESERVED_BYTES // 2:
            too_large[max(sizes, key=sizes.__getitem__)] = "memory"
        for owner, why in (too_many | too_large).items():
            self._log.warning(
                "kernel %s with %s processes and %s bytes is ended: %s", owner, len(families[owner]), sizes[owner], why
            )
            await self.kernels.end(owner, why=why)


def _sessions(pid: int) -> Sessions:
    found: Sessions = defaultdict(list)
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(ProcessLookupError):
            found[os.getsid(process.pid) if hasattr(os, "getsid") else process.pid].append(process)
    return found


def _is_kernel(process: psutil.Process) -> bool:
    """Whether a process below the server is a kernel: the browser that it opened is none."""
    with suppress(psutil.Error):
        return any(part.startswith(("ipykernel", "perfkit.face.app.preloaded")) for part in process.cmdline())
    return False


def _private_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        memory = process.memory_info()
        return int(memory.rss - getattr(memory, "shared", 0))
    return 0
