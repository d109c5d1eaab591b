"""Forks: the process that has imported everything, as the server and the command that starts it have it: kernels by a fork.

Nothing of Jupyter's is imported here, so that a command can let that process begin before it imports the server.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

log = logging.getLogger("traitlets")
"""Where Jupyter's server writes."""
LAUNCHER = "ipykernel_launcher"
_REPLY_TIMEOUT_S = 60.0


def can_fork() -> bool:
    """Whether the system has what it takes (Linux)."""
    return hasattr(os, "pidfd_open") and hasattr(socket, "SOCK_SEQPACKET")


class ForkedProcess:
    """A kernel that is no child of this process, with the part of `subprocess.Popen` that Jupyter asks for."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._handle = handle

    def poll(self) -> int | None:
        """None while it runs. How it ended is known to its parent alone."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(LAUNCHER, timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Signal this very process, even if its number has been given to another since."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._handle)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._handle, select.POLLIN)
            if poller.poll(None if timeout_s is None else timeout_s * 1000):
                os.close(self._handle)
                self.returncode = 1
        return self.returncode


class Preloaded:
    """The process of `perfkit.face.app.preloaded`; started with the first kernel or by `begin`, and again if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Let it import meanwhile; what keeps it from that is told by `fork`."""
        with self._lock, suppress(OSError):
            if can_fork():
                self._started()

    def fork(self, arguments: list[str], environment: dict[str, str], folder: str) -> ForkedProcess | None:
        """A kernel with these arguments of ipykernel; None if it cannot be had this way. Waits for the imports once."""
        if not can_fork():
            return None
        request = json.dumps({"arguments": arguments, "environment": environment, "folder": folder}).encode()
        with self._lock:
            try:
                channel = self._started()
                channel.send(request)
                reply, handles, _, _ = socket.recv_fds(channel, 64, 1)
            except OSError as error:
                logging.getLogger("traitlets").warning(
                    "the process that kernels are forked from failed (%s); kernels start one by one", error
                )
                self.end()
                return None
            if not handles:
                self.end()
                return None
            return ForkedProcess(int(reply), handles[0])

    def _started(self) -> socket.socket:
        if self._process is None or self._process.poll() is not None or self._channel is None:
            self.end()
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.settimeout(_REPLY_TIMEOUT_S)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "perfkit.face.app.preloaded", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._channel

    def pids(self) -> set[int]:
        """The process, if it runs."""
        return {self._process.pid} if self._process is not None and self._process.poll() is None else set()

    def end(self) -> None:
        """End the process, and with it the kernels that came from it."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
