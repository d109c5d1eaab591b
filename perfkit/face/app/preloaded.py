"""Preloaded: a process that has imported what every page needs, and becomes one page's kernel by a fork.

The imports take four seconds of processor time and 100 MB; forks of one process take neither again. It also does what every page
does once, on samples: what catalogues, readers and charts look up for that, no fork looks up again. The columnar engine stays
out: its threads do not survive a fork, so a kernel imports it while it waits for a page, or when its page reads a run.
`perfkit.face.app.provisioner` starts this process and asks it for kernels through a socket; when that closes, because the server
has ended in whichever way, it ends, and its kernels notice within a second.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perfkit.core import catalog, settings
from perfkit.core.discover import constants
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder, notebooks_folder, pages
from perfkit.face.app.navigation import ROOT_PAGE

MAX_REQUEST_BYTES = 2**20
_ONCE_ASKED = ("perfkit.explain.what_if._changes", "perfkit.record._reading", "perfkit.teach.formulas.run")
"""What is imported when something is asked of it, and by most who open a page."""
_PAUSE_S = 4.0
"""How long a page that has just begun has the processor before more is imported."""
_SWITCH_S = 0.0005
"""A panel's thread lets the kernel's others pass so often; with Python's 5 ms an answer to a slider waits for each of them."""


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork once for every request; returns the request in the fork, and None here once the server is gone.

    As long as nobody asks, and once the page that did has had its time, it goes on with what only some pages need.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which ends its kernels in order
    signal.signal(signal.SIGCHLD, _reap)
    rest, pause_s = prepared(), 0.0
    while message := _request(channel, rest, pause_s):
        pause_s = _PAUSE_S
        gc.freeze()  # the collector must not write into what forks share
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # a fork that ends at once must have its handle first
        pid = os.fork()
        if pid == 0:
            channel.close()
            request: dict[str, Any] = json.loads(message)
            return request
        handle = os.pidfd_open(pid)
        socket.send_fds(channel, [str(pid).encode("ascii")], [handle])
        os.close(handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return None


def _request(channel: socket.socket, rest: Iterator[Callable[[], object]], pause_s: float) -> bytes:
    """The next request. Until there is one, the next tasks of `rest` are done, the first after a pause."""
    while not select.select([channel], [], [], pause_s)[0]:
        task = next(rest, None)
        if task is None:
            break
        task()
        pause_s = 0.0
    return channel.recv(MAX_REQUEST_BYTES)


def become_kernel(request: dict[str, Any]) -> None:
    """Be the kernel that was asked for, until it ends: `arguments` of ipykernel, `environment` and `folder`."""
    from ipykernel import kernelapp  # noqa: PLC0415  loaded in `preload`

    from perfkit.face.charts.spec import unchecked  # noqa: PLC0415  as above

    server_pid = os.getppid()
    os.setsid()  # the server signals the kernel and its workers as one group
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.setswitchinterval(_SWITCH_S)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Imported before there was a kernel, ipywidgets could not announce itself to it; without that, pages fetch widgets one by one.
    widgets = "--IPKernelApp.extra_extensions=ipywidgets"
    sys.argv = ["ipykernel_launcher", *request["arguments"], f"--IPKernelApp.parent_handle={server_pid}", widgets]
    with unchecked():  # a page of the app draws perfkit's own charts, which tests draw checked
        kernelapp.launch_new_instance(sys.argv[1:])


def preload() -> None:
    """Import what the first page needs, and every page."""
    kernel = ("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "perfkit.face.widgets")
    for name in (*kernel, *imported_by_pages(f"{ROOT_PAGE}.ipynb")):
        importlib.import_module(name)
    for package, constant in (
        ("perfkit.record.formats", "FORMAT"),
        ("perfkit.explain.diagnose.rules", "RULE"),
        ("perfkit.config.dialects", "DIALECT"),
    ):
        constants(package, constant)
    gc.collect()


def prepared() -> Iterator[Callable[[], object]]:
    """What a fork finds done, task by task: what any page does once, and the imports of the others. No task knows a visitor."""
    yield _predict_and_draw
    yield partial(pages, settings.pages_folder())
    for name in (*imported_by_pages(), *_ONCE_ASKED):
        yield partial(importlib.import_module, name)
    yield partial(constants, "perfkit.config.lint.checks", "CHECK")
    yield _read_a_log


def _predict_and_draw() -> None:
    """Read a configuration, predict it, draw the answer: dialects, catalogues and altair have then looked up what they look up."""
    from perfkit.config.dialects import read_config  # noqa: PLC0415  these are what the task is about
    from perfkit.face.charts.objects import chart_of  # noqa: PLC0415
    from perfkit.face.charts.spec import split  # noqa: PLC0415
    from perfkit.predict.changes import changed_plan  # noqa: PLC0415
    from perfkit.predict.estimate import estimate  # noqa: PLC0415

    with suppress(InputError):  # a catalogue of the project that is wrong is for the pages to tell
        catalog.models()
        plan = read_config(data_folder() / "case13b" / "round1.yaml")
        split(chart_of(estimate(changed_plan(plan, device=next(iter(catalog.hardware()))))))


def _read_a_log() -> None:
    """Read a training log: the patterns of its lines are then compiled."""
    from perfkit.face.widgets.context import SAMPLE_LOGS  # noqa: PLC0415  as above
    from perfkit.record.load import load  # noqa: PLC0415

    load(data_folder() / next(iter(SAMPLE_LOGS.values())), cache=False)


def imported_by_pages(names: str = "*.ipynb") -> list[str]:
    """The modules of perfkit that pages with these names import, or import from."""
    found: set[str] = set()
    for path in sorted((settings.pages_folder() or notebooks_folder()).glob(names)):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                found.update(_imported("".join(cell["source"])))
    return sorted(found)


def _imported(source: str) -> Iterator[str]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # the page says so where it stands
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("perfkit."):
            yield str(node.module)
            places = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (
                place for place in places if hasattr(importlib.import_module(str(node.module)), "__path__") and find_spec(place)
            )


def _reap(*_: object) -> None:
    """Forget the kernels that have ended; who waits for them holds a handle of its own."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]  # as ipykernel does: the folder where the server was started holds no modules
    preload()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        become_kernel(wanted)
