"""Soak: visitors who come and leave for minutes in every way, while kernels, their forker, descriptors, disk and log fail.

A guard counts all processes of the server twice a second and kills them all above hard limits, so that a failure costs a test and
never the machine. Traffic goes to 127.0.0.1 alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import sqlite3
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil

from tests.browser.app_server import Server
from tests.face.app.visitors import Visitor

PAGES = ("02_model_cost", "04_memory", "11_step_breakdown", "20_findings")
LEAVING = ("beacon",) * 4 + ("together",) * 2 + ("sockets",) * 2 + ("crash",) * 2
"""Four in ten say that they leave before their sockets close, as browsers do."""
GONE = (psutil.Error, ProcessLookupError, OSError)


class Guard(threading.Thread):
    """Watches the processes below a server; `num_kernels` is the most that there were at once."""

    def __init__(self, server: Server, *, max_processes: int, max_bytes: int) -> None:
        super().__init__(daemon=True)
        self.root, self.limits = psutil.Process(server.process.pid), (max_processes, max_bytes)
        self.num_kernels, self.tripped, self.done = 0, "", threading.Event()

    def kernels(self) -> list[psutil.Process]:
        """Processes that lead a session: the kernels, and not the one that they are forked from."""
        with contextlib.suppress(*GONE):
            (forker, *_) = self.root.children() or [None]
            return forker.children() if forker is not None else []
        return []

    def run(self) -> None:
        while not self.done.wait(0.5):
            with contextlib.suppress(*GONE):
                self.look()

    def look(self) -> None:
        self.num_kernels = max(self.num_kernels, len(self.kernels()))
        family = [self.root, *self.root.children(recursive=True)]
        total = sum(_private_bytes(process) for process in family)
        if len(family) > self.limits[0] or total > self.limits[1]:
            self.tripped = f"{len(family)} processes with {total / 1e9:.1f} GB"
            for process in reversed(family):
                with contextlib.suppress(*GONE):
                    process.kill()


def _private_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(*GONE):
        memory = process.memory_info()
        return memory.rss - memory.shared
    return 0


@dataclass
class Soak:
    """What happened: answers by status, sockets that were cut off, faults by kind, and the server before and after."""

    server: Server
    guard: Guard
    answers: Counter = field(default_factory=Counter)
    cut: Counter = field(default_factory=Counter)
    faults: Counter = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    start: dict = field(default_factory=dict)
    end: dict = field(default_factory=dict)

    async def run(self, *, num_visitors: int, seconds: float, seed: int) -> None:
        """Warm up, let visitors come for so long, then wait until all that they had is gone."""
        chance = random.Random(seed)
        await self._visits(Visitor(self.server.url, self.server.token), chance, time.monotonic() + min(20.0, seconds / 3))
        self.start = await self._quiet()
        until, pause_s = time.monotonic() + seconds, min(4.0, seconds / 30)
        visitors = [Visitor(self.server.url, self.server.token) for _ in range(num_visitors)]
        await asyncio.gather(*(self._visits(visitor, chance, until) for visitor in visitors), self._trouble(chance, until, pause_s))
        self.end = await self._quiet()

    async def _visits(self, visitor: Visitor, chance: random.Random, until: float) -> None:
        while time.monotonic() < until and not self.guard.tripped:
            self.answers[await visitor.read(chance.choice(PAGES))] += 1
            try:
                if visitor.kernel_id:
                    await visitor.attach()
                await asyncio.sleep(chance.uniform(0.2, 2.0))
            except Exception as error:  # its kernel was killed meanwhile, or there are no descriptors for its sockets
                self.cut[type(error).__name__] += 1
            with contextlib.suppress(Exception):
                await visitor.leave(chance.choice(LEAVING))

    async def _trouble(self, chance: random.Random, until: float, pause_s: float) -> None:
        """One fault after the other; the last ones end before the visitors do."""
        kinds = (self._kill_kernel, self._kill_kernel, self._kill_forker, self._starve, self._lock_log, self._fill_disk)
        if os.geteuid():  # nothing is read-only for root
            kinds += (self._lock_folder,)
        turn = 0
        while time.monotonic() < until - 2 * pause_s and not self.guard.tripped:
            await asyncio.sleep(pause_s)
            with contextlib.suppress(*GONE, ValueError):  # there is no kernel to take
                await kinds[turn % len(kinds)](chance)
                self.faults[kinds[turn % len(kinds)].__name__.strip("_")] += 1
            turn += 1
            self.memory.append(self.guard.root.memory_info().rss)

    async def _kill_kernel(self, chance: random.Random) -> None:
        if kernels := self.guard.kernels():
            chance.choice(kernels).kill()

    async def _kill_forker(self, _: random.Random) -> None:
        for child in self.guard.root.children():
            child.kill()

    async def _starve(self, _: random.Random) -> None:
        """The server has room for the pages that are open and for no new one, for a while."""
        pid = self.guard.root.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (self.guard.root.num_fds() + 60, before[1]))
        await asyncio.sleep(3)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    async def _lock_log(self, _: random.Random) -> None:
        with contextlib.closing(sqlite3.connect(self.server.project / "perfkit.sqlite", timeout=1)) as log:
            with contextlib.suppress(sqlite3.OperationalError):
                log.execute("BEGIN EXCLUSIVE")
            await asyncio.sleep(2)
            log.rollback()

    async def _fill_disk(self, chance: random.Random) -> None:
        """No file of the server or of a page grows, for a while: what a full disk is to them."""
        kernels = self.guard.kernels()
        full = [self.guard.root.pid, *(kernel.pid for kernel in chance.sample(kernels, min(1, len(kernels))))]
        before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in full}
        for pid in full:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[pid][1]))
        await asyncio.sleep(3)
        for pid in full:
            with contextlib.suppress(*GONE):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before[pid])

    async def _lock_folder(self, _: random.Random) -> None:
        """The project may only be read, for a while."""
        before = self.server.project.stat().st_mode
        self.server.project.chmod(0o555)
        await asyncio.sleep(3)
        self.server.project.chmod(before)

    async def _quiet(self) -> dict:
        """The server once nobody is there and the kernels that wait are up."""
        begin = time.monotonic()
        while True:
            if self.guard.tripped:
                return {}
            health = await asyncio.to_thread(self.server.health)
            settled = health["pages"] == 0 and 0 < health["warm"] == health["processes"] and time.monotonic() > begin + 12
            if settled or time.monotonic() > begin + 60:
                return health
            await asyncio.sleep(1)

    def problems(self, *, limit: int, warm: int) -> list[str]:
        """What must not be; empty if the server held."""
        said = [f"answers {self.answers}"] if set(self.answers) - ANSWERS - {599} else []
        if self.answers[599] > self.faults["starve"] * 5:  # a connection that was refused whole while there were no descriptors
            said.append(f"{self.answers[599]} requests without an answer")
        if self.guard.tripped or not self.end:
            return [f"stopped by the guard: {self.guard.tripped}"]
        if self.guard.num_kernels > limit + warm + 2:
            said.append(f"{self.guard.num_kernels} kernels at once")
        if self.end["descriptors"] > self.start["descriptors"] + 30:
            said.append(f"descriptors {self.start['descriptors']} -> {self.end['descriptors']}")
        if self.end["pages"] or self.end["sockets"] > self.start["sockets"] + 2:
            said.append(f"left behind: {self.end}")
        if len(self.memory) >= 8 and abs(self.growth()) > (GROWTH if len(self.memory) >= SETTLED else UNSETTLED):
            said.append(f"memory grew by {self.growth():.1%}")
        return said

    def growth(self) -> float:
        """Memory of the server in the last quarter over that after the warm-up, less one; 0 where too little was seen."""
        if len(self.memory) < 4:
            return 0.0
        quarter = max(2, len(self.memory) // 4)
        return statistics.median(self.memory[-quarter:]) / statistics.median(self.memory[quarter : 2 * quarter]) - 1


GROWTH, UNSETTLED, SETTLED = 0.05, 0.2, 60
"""How much memory may grow, and how much while fewer than so many samples were taken: in half a minute no allocator settles."""
ANSWERS = {200, 500, 503}
"""A page; one whose kernel was killed while it started, in words; no room, in words."""


def soak(server: Server, *, num_visitors: int, seconds: float, seed: int = 1, max_bytes: int) -> Soak:
    """Run it under a guard."""
    guard = Guard(server, max_processes=4 * num_visitors + 20, max_bytes=max_bytes)
    guard.start()
    result = Soak(server, guard)
    try:
        asyncio.run(result.run(num_visitors=num_visitors, seconds=seconds, seed=seed))
    finally:
        guard.done.set()
        guard.join()
    return result
