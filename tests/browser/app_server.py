"""A running app for tests: started on a free port, asked for its health, ended as Ctrl-C does."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page

OPEN = (tempfile.gettempdir(), str(Path(__file__).resolve().parents[1] / "data"))
"""What tests open besides the project and the samples."""
READY = "document.documentElement?.dataset.perfkitReady !== undefined"
"""While a page goes to another one its document has no element for a moment."""


@dataclass
class Server:
    """A running app."""

    url: str
    project: Path
    process: subprocess.Popen = field(repr=False)
    log: Path
    token: str = ""

    def health(self) -> dict:
        """Open pages, warm kernels, limit."""
        headers = {"Authorization": f"token {self.token}"} if self.token else {}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}perfkit/health", headers=headers), timeout=10) as reply:
            return json.load(reply)

    def wait_until(self, condition: Callable[[dict], bool], timeout_s: float = 60) -> dict:
        """The first health that meets `condition`."""
        end = time.monotonic() + timeout_s
        while True:
            health = self.health()
            if condition(health):
                return health
            assert time.monotonic() < end, f"still {health} after {timeout_s} s; server said:\n{self.log.read_text()}"
            time.sleep(0.1)


def free_port() -> int:
    """One below those that a system gives to whoever asks for any: kernels and browsers take such before a server has started."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start(
    project: Path,
    log: Path,
    *,
    arguments: tuple[str, ...] = (),
    base_url: str = "/",
    token: str = "",
    port: int = 0,
    **environment: str,
) -> Server:
    """`perfkit serve project` on a free port, once it answers; `base_url` and `token` are those that `arguments` set."""
    port = port or free_port()
    if not token and "--no-token" not in arguments and "PERFKIT_TOKEN" not in environment:
        arguments = (*arguments, "--no-token")  # what is tested is behind the door
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERFKIT_")}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Tests that a shell runs in the background ignore Ctrl-C, and what they start would too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfkit", "serve", str(project), "--port", str(port), *arguments],
            env=kept | {"PERFKIT_CACHE": str(log.parent / "cache"), "PERFKIT_ROOTS": os.pathsep.join(OPEN), **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(url=f"http://127.0.0.1:{port}{base_url}", project=project, process=process, log=log, token=token)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            server.health()
            return server
        except OSError:
            time.sleep(0.1)
    stop(server)
    raise AssertionError(f"the server did not start:\n{log.read_text()}")


def stop(server: Server) -> None:
    """End the server as Ctrl-C does; its kernels go with it."""
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGINT)
        try:
            server.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.process.pid, signal.SIGKILL)
            raise


def wait_ready(page: Page, timeout_s: float = 60) -> None:
    """Wait until every widget of the page is drawn."""
    page.wait_for_function(READY, timeout=timeout_s * 1000)
