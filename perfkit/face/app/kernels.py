"""Kernels: at most as many as memory allows, two more started ahead, and none left behind by a closed tab.

Starting a kernel and importing the panels takes seconds of processor time. `PageKernels` keeps generic warm ones that have done
both and hands them to whichever page is opened next; a new one is started once the page has had its time. A warm kernel gets
the environment of its request when it is handed over, through its own shell channel.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import zmq
from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Float, Integer

from perfkit.core import settings
from perfkit.face.app.bounds import Bounds
from perfkit.face.app.forks import Preloaded
from perfkit.face.app.owned import OwnedTable
from perfkit.face.app.room import Shortage, room
from perfkit.face.app.supervisor import Supervisor

WARM_UP = "import perfkit.face.widgets, polars"
"""What most pages need and no page's content decides. The columnar engine has threads: only the kernel itself can load it."""

READ_AHEAD = f"{WARM_UP}; __import__('perfkit.face.widgets.judged', fromlist=['begin']).begin()"
"""What the kernel of the first page does besides, where that page shows the verdict on the open recording."""

_CONFINE = "__import__('perfkit.core.confine', fromlist=['confine']).confine_or_end()"
KERNEL_ARGUMENTS = ["--HistoryManager.enabled=False", f"--IPKernelApp.exec_lines={_CONFINE}"]
"""Pages run no commands worth keeping, and many kernels at once damage the one file that IPython keeps them in. Before anything
else a kernel is confined to the roots."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PageStart:
    """A page's request: who asks, what the kernel should know, the kernels that were started for it, and whether it still waits."""

    visitor: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    kernel_ids: list[str] = field(default_factory=list)
    is_wanted: Callable[[], bool] = lambda: True


page_start: ContextVar[PageStart | None] = ContextVar("page_start", default=None)
"""Set by a page's request, read where its kernel is started."""

_REPLY_TIMEOUT_S = 60.0
RETRY_S = 30.0
"""Pause after a kernel that could not be started ahead: whatever is wrong takes no more of the machine than this."""


class PageKernels(AsyncMappingKernelManager):
    """The kernels of the app. `limit` counts pages; warm kernels come on top and are bounded by `num_warm`."""

    num_warm = Integer(2, config=True, help="kernels started ahead: one for the next page, one for the page after it")
    refill_delay_s = Float(4.0, config=True, help="pause before the next warm kernel, so that it does not slow the page down")
    grace_s = Float(6.0, config=True, help="how long a page may be without connection before its kernel ends")
    connect_s = Float(120.0, config=True, help="how long a browser may take to say that it shows the page")
    limit = Integer(0, config=True, help="pages open at once; 0: by free memory")
    visitor_limit = Integer(0, config=True, help="pages that one visitor may have open; 0: as many as there is room for")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.preloaded = Preloaded()
        self.owned = OwnedTable()
        self.bounds = Bounds()
        self.supervisor = Supervisor(self)
        self.context.set(zmq.MAX_SOCKETS, int(self.context.get(zmq.SOCKET_LIMIT)))
        self._warm: list[str] = []
        self._warming: set[str] = set()
        self._awaited = 0
        self._warmed = asyncio.Condition()
        self._refills = 0
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._open_pages: dict[str, set[Callable[[str], None]]] = {}
        self._why: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._visitors: dict[str, str] = {}
        self._warm_up = WARM_UP
        self._places: set[PageStart] = set()
        if not self.limit:
            self.limit = settings.max_kernels(settings.free_memory_bytes())

    @property
    def num_pages(self) -> int:
        """Kernels that serve a page or are being started for one, and whatever else has a process."""
        running = set(self.list_kernel_ids()) | set(self.owned.processes().values())
        return len(self._places) + len(running - self._starting - self._warming - self._ending - set(self._warm))

    def managed(self) -> set[str]:
        """Kernels that somebody has or will have."""
        return set(self.list_kernel_ids()) | self._starting | self._warming | self._ending

    def own_pids(self) -> set[int]:
        """Processes of the server that are no kernels."""
        return self.preloaded.pids()

    def ended_by_themselves(self) -> list[str]:
        """Kernels without a process that nobody is ending."""
        running = set(self.owned.processes().values())
        return [
            kernel_id
            for kernel_id in self.list_kernel_ids()
            if kernel_id not in running | self._ending | self._starting | self._warming
        ]

    @property
    def warm_kernels(self) -> tuple[str, ...]:
        """Ids of the kernels that wait for a page."""
        return tuple(self._warm)

    def shortage(self, visitor: str) -> Shortage:
        """Why a visitor has to wait; empty if there is room."""
        if self.num_pages >= self.limit:
            return "pages"
        # A warm kernel waits already: a page takes little more than it has.
        return "own pages" if self.full_for(visitor) else room().shortage

    def full_for(self, visitor: str) -> bool:
        """Whether a visitor has as many pages open as one may have."""
        own = sum(name == visitor and kernel_id not in self._ending for kernel_id, name in self._visitors.items())
        starting = sum(place.visitor == visitor for place in self._places)
        return bool(self.visitor_limit) and own + starting >= self.visitor_limit

    def has_page(self, visitors: Collection[str]) -> bool:
        """Whether one of these visitors has a page, or one that is being started or ended."""
        return any(visitor in visitors for visitor in (*self._visitors.values(), *(place.visitor for place in self._places)))

    def take_place(self, start: PageStart) -> None:
        """Count a page from the moment in which it was let in: others ask while its kernel starts."""
        self._places.add(start)

    def give_place_back(self, start: PageStart) -> None:
        """The page has a kernel, or will have none."""
        self._places.discard(start)

    async def start_kernel(self, **kwargs: Any) -> str:  # type: ignore[override]
        """A kernel for a page: a warm one if there is, else a new one."""
        start = page_start.get() or PageStart()
        environment = {**(kwargs.get("env") or {}), **start.environment}
        self.take_place(start)
        try:
            kernel_id = await self._take_warm(environment) or await self._start_cold(**{**kwargs, "env": environment})
            self._visitors[kernel_id] = start.visitor
        finally:
            self.give_place_back(start)
        start.kernel_ids.append(kernel_id)
        self.refill_later()
        return kernel_id

    def begin(self, *, read_ahead: bool = False) -> None:
        """Start what runs as long as the server: the supervisor, and the first warm kernel, which may read what is open."""
        self._warm_up = READ_AHEAD if read_ahead else WARM_UP
        self._later(self.supervisor.watch())
        self.refill_later(0.0)

    def refill_later(self, delay_s: float | None = None) -> None:
        """Start the missing warm kernels after a pause."""
        self._later(self._refill(self.refill_delay_s if delay_s is None else delay_s))

    def refill_if_missing(self) -> None:
        """Start warm kernels that were lost in whichever way, unless that is under way, or was tried and failed just now."""
        if len(self._warm) + len(self._warming) < self.num_warm and not self._refills:
            self.refill_later()

    def expect_connection(self, kernel_id: str) -> None:
        """A page was sent in full; if its browser never connects, nobody is there."""
        self._later(self._end_if_left(kernel_id, self.connect_s))

    async def end(self, kernel_id: str, why: str = "") -> None:
        """End a kernel and its workers at once; everything worth keeping is on disk, written in transactions.

        Asking politely takes each kernel a second of processor time, which is long when 20 tabs are closed together. `why` is told
        to its page: "killed" from outside, "memory", "processes" or nothing.
        """
        if kernel_id in self._ending:
            return
        self._ending.add(kernel_id)
        self._why[kernel_id] = why
        try:
            if kernel_id in self:
                kernel: Any = self.get_kernel(kernel_id)
                await kernel.signal_kernel(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
                await self.shutdown_kernel(kernel_id, now=True)  # type: ignore[no-untyped-call]
        except (KeyError, RuntimeError, HTTPError) as error:
            self.log.info("kernel %s had ended already: %s", kernel_id, error)
        finally:
            if kernel_id in self:
                self.remove_kernel(kernel_id)
            self.owned.end(kernel_id)
            self._ending.discard(kernel_id)
            self._why.pop(kernel_id, None)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Warm kernels are idle on purpose."""
        if kernel_id not in self._warm:
            await super().cull_kernel_if_idle(kernel_id)  # type: ignore[no-untyped-call]

    def arrive(self, kernel_id: str, on_end: Callable[[str], None]) -> bool:
        """A page says that it is open; `on_end(why)` is called when its kernel ends. False if there is no such kernel."""
        if kernel_id in self:
            self._open_pages.setdefault(kernel_id, set()).add(on_end)
        return kernel_id in self

    def is_open(self, kernel_id: str) -> bool:
        """Whether a page has said that it shows what this kernel computes, or the kernel is gone."""
        return kernel_id in self._open_pages or kernel_id not in self

    def leave(self, kernel_id: str, on_end: Callable[[str], None]) -> None:
        """A page is gone. If it does not come back soon, its kernel ends."""
        self._open_pages.get(kernel_id, set()).discard(on_end)
        self._later(self._end_if_left(kernel_id, self.grace_s))

    def remove_kernel(self, kernel_id: str) -> KernelManager:
        """Forget a kernel that has ended, however it did, close what it had open, and tell its page."""
        self._visitors.pop(kernel_id, None)
        if kernel_id in self._warm:
            self._warm.remove(kernel_id)
        for on_end in self._open_pages.pop(kernel_id, ()):
            on_end(self._why.get(kernel_id, ""))
        if kernel_id in self:
            # A socket that closed while the kernel was being ended has left its channels in the buffer for a page that comes back.
            self.stop_buffering(kernel_id)  # type: ignore[no-untyped-call]
        kernel = super().remove_kernel(kernel_id)
        self.owned.end(kernel_id)
        return kernel

    async def shutdown_all(self, now: bool = True) -> None:  # type: ignore[override]
        """End every kernel, the warm ones and those still starting too; pages see the server go, and reopen when it is back."""
        self._open_pages.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*(self.end(kernel_id) for kernel_id in self.managed() | self.owned.owners()))
        self.preloaded.end()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_if_left(self, kernel_id: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if kernel_id in self and not self._open_pages.get(kernel_id):
            await self.end(kernel_id)

    async def _refill(self, delay_s: float) -> None:
        self._refills += 1
        try:
            await asyncio.sleep(delay_s)
            if not await self._refilled():
                await asyncio.sleep(RETRY_S)
        finally:
            self._refills -= 1

    async def _refilled(self) -> bool:
        """Start the missing warm kernels; False if one could not be started."""
        while len(self._warm) + len(self._warming) < self.num_warm and not room().shortage:
            kernel_id = self.new_kernel_id()
            self._warming.add(kernel_id)
            try:
                await self._start(kernel_id=kernel_id, kernel_name="python3")
                warm_up, self._warm_up = self._warm_up, WARM_UP
                if await self._execute(kernel_id, warm_up):
                    self._warm.append(kernel_id)
            except Exception as error:  # a start fails in many ways; pages start their own
                self.log.warning("a kernel could not be started ahead: %s", error)
            finally:
                self._warming.discard(kernel_id)
                async with self._warmed:
                    self._warmed.notify_all()
            if kernel_id not in self._warm:
                self.log.warning("a kernel could not be warmed up; pages start their own")
                await self.end(kernel_id)
                return False
            await asyncio.sleep(self.refill_delay_s)
        return True

    async def _take_warm(self, environment: dict[str, str]) -> str | None:
        while self._warm or len(self._warming) > self._awaited:
            if not self._warm:
                await self._until_warmed()
                continue
            kernel_id = self._warm.pop(0)
            self._starting.add(kernel_id)
            try:
                if kernel_id in self and await self._hand_over(kernel_id, environment):
                    return kernel_id
            finally:
                self._starting.discard(kernel_id)
            await self.end(kernel_id)
        return None

    async def _until_warmed(self) -> None:
        """Wait for a kernel that is being warmed up: it began before one that would be started now."""
        self._awaited += 1
        try:
            async with self._warmed:
                await self._warmed.wait()
        finally:
            self._awaited -= 1

    async def _start_cold(self, **kwargs: Any) -> str:
        kernel_id = self.new_kernel_id()
        self._starting.add(kernel_id)
        try:
            return await self._start(**{**kwargs, "kernel_id": kernel_id})
        finally:
            self._starting.discard(kernel_id)

    async def _start(self, *, kernel_id: str, **kwargs: Any) -> str:
        """Start a kernel; one whose start fails, or is given up, leaves nothing behind."""
        kwargs["env"] = {**(kwargs.get("env") or os.environ), **self._own_temporary_folder()}
        try:
            return str(await super().start_kernel(kernel_id=kernel_id, extra_arguments=KERNEL_ARGUMENTS, **kwargs))
        except BaseException:
            await asyncio.shield(self.end(kernel_id))
            raise

    def _own_temporary_folder(self) -> dict[str, str]:
        """Where kernels put what they need for a moment: visitors must not read what other programs have in the system's."""
        if not self.connection_dir:
            return {}
        folder = Path(self.connection_dir) / "tmp"
        folder.mkdir(exist_ok=True)
        return {"TMPDIR": str(folder)}

    async def _hand_over(self, kernel_id: str, environment: dict[str, str]) -> bool:
        # Voila names some variables by members of an enumeration, whose repr is no Python.
        fresh = {str(name): str(value) for name, value in environment.items() if os.environ.get(name) != value}
        code = f"import os; os.environ.update({fresh!r}); del os"
        return await self._execute(kernel_id, code)

    async def _execute(self, kernel_id: str, code: str) -> bool:
        """Whether `code` ran in the kernel without an error."""
        kernel = self.get_kernel(kernel_id)
        client = kernel.client()
        client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        try:
            client.execute(code, silent=True, store_history=False, allow_stdin=False)
            reply = await _reply(client, kernel)
        finally:
            client.stop_channels()
        if reply["status"] != "ok":
            self.log.warning("kernel %s could not be prepared: %s", kernel_id, reply.get("evalue"))
        return bool(reply["status"] == "ok")


async def _reply(client: Any, kernel: Any) -> dict[str, Any]:
    """The answer to the only request of `client`: the shell channel is ordered, whenever the kernel comes up."""
    end = time.monotonic() + _REPLY_TIMEOUT_S
    while time.monotonic() < end and await kernel.is_alive():
        with suppress(Empty):
            return dict((await client.get_shell_msg(timeout=1.0))["content"])
    return {"status": "error", "evalue": "it does not answer"}
