"""The server's client of a page's kernel: when it takes the kernel for ready, and when it gives up."""

from __future__ import annotations

import asyncio
import threading
from queue import Empty
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import HBChannel
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from perfkit.face.app.adapter import PageExecutor
from perfkit.face.app.client import PageClient


class Kernel(PageClient):
    """A kernel of which one says what it sends: `shell` and `iopub` are taken from the front, None is silence."""

    def __init__(self, shell: list, iopub: list, *, alive: bool = True) -> None:
        super().__init__()
        self.shell, self.iopub, self.alive, self.asked = shell, iopub, alive, 0

    def kernel_info(self, reply: bool = False, timeout: float | None = None) -> str:
        self.asked += 1
        return str(self.asked)

    async def get_shell_msg(self, *_: object, **__: object) -> dict:
        return self._next(self.shell)

    async def get_iopub_msg(self, *_: object, **__: object) -> dict:
        return self._next(self.iopub)

    async def is_alive(self) -> bool:
        return self.alive

    @staticmethod
    def _next(messages: list) -> dict:
        if (message := messages.pop(0) if messages else None) is None:
            raise Empty
        return message


INFO = {"msg_type": "kernel_info_reply", "content": {"protocol_version": "5.4"}}
STATUS = {"msg_type": "status"}


def test_it_is_ready_with_the_first_answer_that_comes_with_a_broadcast():
    kernel = Kernel([INFO], [STATUS, STATUS])
    asyncio.run(kernel.wait_for_ready(timeout=5))
    assert kernel.asked == 1
    assert kernel.iopub == [STATUS]  # nothing is waited for that is not needed


def test_it_asks_again_until_broadcasts_are_heard():
    kernel = Kernel([None, {"msg_type": "execute_reply"}, INFO, INFO], [None, STATUS])
    asyncio.run(kernel.wait_for_ready(timeout=5))
    assert kernel.asked == 4


def test_a_kernel_that_has_ended_is_not_waited_for():
    with pytest.raises(RuntimeError, match="ended before it answered"):
        asyncio.run(Kernel([], [], alive=False).wait_for_ready())


def test_a_silent_kernel_is_given_up():
    with pytest.raises(RuntimeError, match=r"did not answer within 0\.05 s"):
        asyncio.run(Kernel([], []).wait_for_ready(timeout=0.05))


def test_cells_that_are_asked_for_ahead_are_sent_once_each_and_in_order(monkeypatch):
    sent = []
    monkeypatch.setattr(AsyncKernelClient, "execute", lambda _client, code, **_: sent.append(code) or f"message {len(sent)}")
    client = PageClient()
    assert client.execute("before") == "message 1"
    cells, executed = ["a", "b", "b", "c"], []
    for place in range(len(cells)):
        client.ask_ahead(cells[place:][:3])
        client.ask_ahead(cells[place:][:3])
        executed.append(client.execute(cells[place], store_history=False))
    assert sent == ["before", "a", "b", "b", "c"]
    assert executed == ["message 2", "message 3", "message 4", "message 5"]
    assert client.execute("after") == "message 6"


def test_a_page_goes_on_while_its_next_cells_wait_and_stops_at_the_first_error(tmp_path):
    cells = ["import time", "raise KeyError('no')", "print('unreached')"]

    async def executed() -> list[Any]:
        kernel = AsyncKernelManager(transport="ipc", connection_file=str(tmp_path / "kernel.json"), client_factory=PageClient)
        await kernel.start_kernel(cwd=str(tmp_path))
        executor = PageExecutor(new_notebook(cells=[new_markdown_cell("# A page"), *map(new_code_cell, cells)]), km=kernel)
        executor.kc = await executor.async_start_new_kernel_client()
        try:
            for place, cell in enumerate(executor.nb.cells):
                await executor.execute_cell(cell, None, place, store_history=False)
        except CellExecutionError:
            return executor.nb.cells
        finally:
            executor.kc.stop_channels()
            await kernel.shutdown_kernel(now=True)
        return []

    assert [len(cell.outputs) for cell in asyncio.run(executed())[1:]] == [0, 1, 0]


def test_a_page_that_is_left_at_once_leaves_no_thread_that_opens_sockets(tmp_path):
    """Jupyter's heartbeat does, stopped before it ran: it looks only afterwards whether it shall run, and then without pausing."""
    kernel = KernelManager(transport="ipc", connection_file=str(tmp_path / "kernel.json"))
    kernel.write_connection_file()
    client = PageClient(**kernel.get_connection_info())
    client.start_channels()
    try:
        assert [thread for thread in threading.enumerate() if isinstance(thread, HBChannel)] == []
        assert client.channels_running
    finally:
        client.stop_channels()
        kernel.cleanup_resources()
