"""Kernels that are forked from a process with all imports: what they have, how they end, and what happens where that cannot be."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from perfkit.face.app import forks, provisioner
from perfkit.face.app.forks import Preloaded
from perfkit.face.app.kernels import PageKernels
from perfkit.face.app.preloaded import imported_by_pages
from perfkit.face.app.provisioner import ForkedProvisioner
from tests.notebook_format import pages
from tests.page_cells import code_cells

needs_forks = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="kernels are forked on Linux alone")
ASKED = (
    "(os.environ.get('PERFKIT_MADE_UP'), os.environ.get('PERFKIT_LEFT'), os.getcwd(), "
    "'perfkit.face.widgets' in was, 'polars' in was)"
)
WIDGET_TARGETS = "sorted(get_ipython().kernel.comm_manager.targets)"


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    process = Preloaded()
    yield process
    process.end()


def started(preloaded: Preloaded, folder: Path, **environment: str) -> KernelManager:
    """A kernel with the connection file of a manager, forked."""
    manager = KernelManager(connection_file=str(folder / "kernel.json"), transport="ipc", ip=str(folder / "socket"))
    manager.write_connection_file()
    process = preloaded.fork(["-f", manager.connection_file], {**os.environ, **environment}, str(folder))
    assert process is not None
    manager.forked = process
    return manager


def value_of(manager: KernelManager, expression: str) -> object:
    client = manager.client()
    client.start_channels()
    asked = client.execute("import os, sys; was = set(sys.modules)", user_expressions={"asked": expression})
    while (reply := client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != asked:
        pass
    client.stop_channels()
    return ast.literal_eval(reply["content"]["user_expressions"]["asked"]["data"]["text/plain"])


@needs_forks
def test_a_fork_has_its_environment_its_folder_and_the_imports(preloaded, tmp_path, monkeypatch):
    manager = started(preloaded, tmp_path, PERFKIT_MADE_UP="yes")
    assert value_of(manager, ASKED) == ("yes", None, str(tmp_path), True, False)
    assert value_of(manager, WIDGET_TARGETS) == ["jupyter.widget", "jupyter.widget.control"]
    assert manager.forked.poll() is None
    manager.forked.kill()
    assert manager.forked.wait(30) is not None
    manager.forked.send_signal(signal.SIGTERM)  # its number may be another process's by now


@needs_forks
def test_kernels_end_with_the_process_that_they_come_from_and_the_next_one_gets_a_new_one(preloaded, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first = started(preloaded, folders[0])
    value_of(first, "1")
    preloaded.end()
    assert first.forked.wait(30) is not None
    second = started(preloaded, folders[1])
    assert value_of(second, "2") == 2
    second.forked.kill()
    second.forked.wait(30)


class Held(PageKernels):
    """Whose kernels are names."""

    def __contains__(self, _kernel_id: object) -> bool:
        return True


@needs_forks
def test_a_process_that_began_to_import_before_the_server_is_the_one_that_forks(tmp_path):
    early = Preloaded()
    early.begin()
    (pid,) = early.pids()
    manager = started(early, tmp_path)
    parent = value_of(manager, "os.getppid()")
    early.end()
    assert parent == pid


def test_neither_jupyter_nor_tables_are_imported_where_they_keep_a_server_waiting():
    """The command lets the process for kernels begin first; the server itself takes no library that reads tables."""
    asked = "import sys, {}; print([name for name in {} if name in sys.modules])"
    for module, kept_out in (("perfkit.face.app.forks", ["jupyter_client", "tornado"]), ("perfkit.face.app.server", ["pandas"])):
        found = subprocess.run([sys.executable, "-c", asked.format(module, kept_out)], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]", module


def test_a_page_takes_the_kernel_that_is_being_warmed_up_and_others_start_their_own():
    async def opened() -> list[str]:
        kernels = Held(num_warm=1, refill_delay_s=60.0)
        begun, ready = asyncio.Event(), asyncio.Event()

        async def start(*, kernel_id: str, **_: object) -> str:
            if not begun.is_set():
                begun.set()
                await ready.wait()
            return kernel_id

        async def done(*_: object) -> bool:
            return True

        kernels._start, kernels._execute, kernels._hand_over, kernels.end = start, done, done, done
        kernels.begin()
        await begun.wait()
        warming = next(iter(kernels._warming))
        first = asyncio.ensure_future(kernels.start_kernel())
        await asyncio.sleep(0)
        second = await kernels.start_kernel()
        ready.set()
        given = [await first == warming, second != warming]
        for task in kernels._tasks:
            task.cancel()
        return given

    assert asyncio.run(opened()) == [True, True]


def test_where_the_system_cannot_fork_so_jupyter_starts_the_kernel(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert Preloaded().fork([], {}, "/") is None


def test_a_process_that_does_not_come_up_is_no_error(monkeypatch, caplog):
    monkeypatch.setattr(forks.sys, "executable", "/bin/false")
    assert Preloaded().fork([], {}, "/") is None


def test_jupyter_finds_the_provisioner():
    provisioner.register()
    assert KernelProvisionerFactory.provisioners[provisioner.NAME].load() is ForkedProvisioner


def test_every_module_that_a_page_imports_is_there_before_its_kernel_is_forked():
    known, missed = set(imported_by_pages()), set()
    for path in pages():
        for cell in code_cells(path.stem):
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("perfkit."):
                    imported: dict[str, object] = {}
                    exec(ast.unparse(node), imported)
                    things = [importlib.import_module(str(node.module)), *imported.values()]
                    missed |= {thing.__name__ for thing in things if inspect.ismodule(thing)} - known
    assert missed == set()


PREPARED = """
import sys, threading
from perfkit.face.app import preloaded
preloaded.preload()
for task in preloaded.prepared():
    task()
from perfkit.face.widgets.page_state import page_state
print((threading.active_count(), "polars" in sys.modules, page_state.cache_info().currsize))
"""


def test_what_forks_find_done_started_no_thread_and_knows_no_visitor(tmp_path):
    (tmp_path / "perfkit.toml").write_text("[project]\nname = 'broken'\n", encoding="utf-8")
    (tmp_path / "hardware.toml").write_text("no table", encoding="utf-8")  # of a project, for its pages to tell
    surroundings = {**os.environ, "PERFKIT_PROJECT": str(tmp_path), "QUERY_STRING": "run=of-somebody"}
    done = subprocess.run([sys.executable, "-c", PREPARED], env=surroundings, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == (1, False, 0)
