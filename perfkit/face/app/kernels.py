"""Kernels: at most as many as memory allows, two more started ahead, and none left behind by a closed tab.

Starting a kernel and importing the panels takes seconds of processor time. `PageKernels` keeps generic warm ones that have done
both and hands them to whichever page is opened next; a new one is started once the page has had its time. A warm kernel gets
the environment of its request when it is handed over, through its own shell channel.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets import Float, Integer

from perfkit.core import settings
from perfkit.face.app.provisioner import Preloaded

WARM_UP = "import perfkit.face.panels, polars"
"""What most pages need and no page's content decides. The columnar engine has threads: only the kernel itself can load it."""


KERNEL_ARGUMENTS = ["--HistoryManager.enabled=False"]
"""Pages run no commands worth keeping, and many kernels at once damage the one file that IPython keeps them in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageStart:
    """A page's request: who asks, what the kernel should know, and the ids of the kernels that were started for it."""

    visitor: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    kernel_ids: list[str] = field(default_factory=list)


page_start: ContextVar[PageStart | None] = ContextVar("page_start", default=None)
"""Set by a page's request, read where its kernel is started."""

_REPLY_TIMEOUT_S = 60.0
_MEMINFO = Path("/proc/meminfo")
_UNKNOWN_MEMORY_BYTES = 4 * 2**30


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
        self._warm: list[str] = []
        self._warming: set[str] = set()
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._open_pages: dict[str, set[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._visitors: dict[str, str] = {}
        self._starting_for: Counter[str] = Counter()
        if not self.limit:
            self.limit = settings.max_kernels(free_memory_bytes())

    @property
    def num_pages(self) -> int:
        """Kernels that serve a page or are being started for one."""
        return len((set(self.list_kernel_ids()) | self._starting) - self._warming - self._ending - set(self._warm))

    @property
    def warm_kernels(self) -> tuple[str, ...]:
        """Ids of the kernels that wait for a page."""
        return tuple(self._warm)

    @property
    def full(self) -> bool:
        """Whether the next visitor has to wait."""
        return self.num_pages >= self.limit

    def full_for(self, visitor: str) -> bool:
        """Whether a visitor has as many pages open as one may have."""
        own = sum(name == visitor and kernel_id not in self._ending for kernel_id, name in self._visitors.items())
        return bool(self.visitor_limit) and own + self._starting_for[visitor] >= self.visitor_limit

    async def start_kernel(self, **kwargs: Any) -> str:  # type: ignore[override]
        """A kernel for a page: a warm one if there is, else a new one."""
        start = page_start.get() or PageStart()
        environment = {**(kwargs.get("env") or {}), **start.environment}
        self._starting_for[start.visitor] += 1
        try:
            kernel_id = await self._take_warm(environment) or await self._start_cold(**{**kwargs, "env": environment})
            self._visitors[kernel_id] = start.visitor
        finally:
            self._starting_for[start.visitor] -= 1
        start.kernel_ids.append(kernel_id)
        self.refill_later()
        return kernel_id

    def refill_later(self, delay_s: float | None = None) -> None:
        """Start the missing warm kernels after a pause."""
        self._later(self._refill(self.refill_delay_s if delay_s is None else delay_s))

    def expect_connection(self, kernel_id: str) -> None:
        """A page was sent in full; if its browser never connects, nobody is there."""
        self._later(self._end_if_left(kernel_id, self.connect_s))

    async def end(self, kernel_id: str) -> None:
        """End a kernel and its workers at once; everything worth keeping is on disk, written in transactions.

        Asking politely takes each kernel a second of processor time, which is long when 20 tabs are closed together.
        """
        if kernel_id in self._ending or kernel_id not in self:
            return
        self._ending.add(kernel_id)
        try:
            kernel: Any = self.get_kernel(kernel_id)
            await kernel.signal_kernel(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
            await self.shutdown_kernel(kernel_id, now=True)  # type: ignore[no-untyped-call]
        except (KeyError, RuntimeError) as error:
            self.log.info("kernel %s had ended already: %s", kernel_id, error)
        finally:
            self._ending.discard(kernel_id)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Warm kernels are idle on purpose."""
        if kernel_id not in self._warm:
            await super().cull_kernel_if_idle(kernel_id)  # type: ignore[no-untyped-call]

    def arrive(self, kernel_id: str, on_end: Callable[[], None]) -> bool:
        """A page says that it is open; `on_end` is called when its kernel ends. False if there is no such kernel."""
        if kernel_id in self:
            self._open_pages.setdefault(kernel_id, set()).add(on_end)
        return kernel_id in self

    def is_open(self, kernel_id: str) -> bool:
        """Whether a page has said that it shows what this kernel computes, or the kernel is gone."""
        return kernel_id in self._open_pages or kernel_id not in self

    def leave(self, kernel_id: str, on_end: Callable[[], None]) -> None:
        """A page is gone. If it does not come back soon, its kernel ends."""
        self._open_pages.get(kernel_id, set()).discard(on_end)
        self._later(self._end_if_left(kernel_id, self.grace_s))

    def remove_kernel(self, kernel_id: str) -> KernelManager:
        """Forget a kernel that has ended, however it did, and tell its page."""
        self._visitors.pop(kernel_id, None)
        for on_end in self._open_pages.pop(kernel_id, ()):
            on_end()
        return super().remove_kernel(kernel_id)

    async def shutdown_all(self, now: bool = True) -> None:  # type: ignore[override]
        """End every kernel, the warm ones and those still starting too."""
        for task in tuple(self._tasks):
            task.cancel()
        self._warm.clear()
        await asyncio.gather(*(self.end(kernel_id) for kernel_id in self.list_kernel_ids()))
        await super().shutdown_all(now=True)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_if_left(self, kernel_id: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if kernel_id in self and not self._open_pages.get(kernel_id):
            await self.end(kernel_id)

    async def _refill(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while len(self._warm) + len(self._warming) < self.num_warm:
            kernel_id = self.new_kernel_id()
            self._warming.add(kernel_id)
            try:
                await super().start_kernel(kernel_id=kernel_id, kernel_name="python3", extra_arguments=KERNEL_ARGUMENTS)
                ready = await self._execute(kernel_id, WARM_UP)
            finally:
                self._warming.discard(kernel_id)
            if not ready:
                self.log.warning("a kernel could not be warmed up; pages start their own")
                await self.end(kernel_id)
                return
            self._warm.append(kernel_id)

    async def _take_warm(self, environment: dict[str, str]) -> str | None:
        while self._warm:
            kernel_id = self._warm.pop(0)
            self._starting.add(kernel_id)
            try:
                if kernel_id in self and await self._hand_over(kernel_id, environment):
                    return kernel_id
            finally:
                self._starting.discard(kernel_id)
            await self.end(kernel_id)
        return None

    async def _start_cold(self, **kwargs: Any) -> str:
        kernel_id = self.new_kernel_id()
        self._starting.add(kernel_id)
        try:
            return str(await super().start_kernel(**{**kwargs, "kernel_id": kernel_id, "extra_arguments": KERNEL_ARGUMENTS}))
        finally:
            self._starting.discard(kernel_id)

    async def _hand_over(self, kernel_id: str, environment: dict[str, str]) -> bool:
        # Voila names some variables by members of an enumeration, whose repr is no Python.
        fresh = {str(name): str(value) for name, value in environment.items() if os.environ.get(name) != value}
        code = f"import os; os.environ.update({fresh!r}); del os"
        return await self._execute(kernel_id, code)

    async def _execute(self, kernel_id: str, code: str) -> bool:
        """Whether `code` ran in the kernel without an error."""
        client = self.get_kernel(kernel_id).client()
        client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        try:
            client.execute(code, silent=True, store_history=False, allow_stdin=False)
            # The shell channel is ordered: the reply is that of this request, whenever the kernel comes up.
            reply = await client.get_shell_msg(timeout=_REPLY_TIMEOUT_S)  # type: ignore[misc]
        except Empty:
            self.log.warning("kernel %s does not answer", kernel_id)
            return False
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok":
            self.log.warning("kernel %s could not be prepared: %s", kernel_id, reply["content"].get("evalue"))
            return False
        return True


def free_memory_bytes(lines: Iterable[str] | None = None) -> int:
    """Memory that new processes can have; 4 GiB where the system does not say."""
    if lines is None:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines() if _MEMINFO.exists() else ()
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return _UNKNOWN_MEMORY_BYTES
