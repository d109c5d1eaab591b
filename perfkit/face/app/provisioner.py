"""Provisioner: how the app starts kernels: as forks of one process that has imported everything, where the system can (Linux).

Elsewhere, and when that process cannot be had, kernels are started as Jupyter starts them: later and larger, otherwise the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets.log import get_logger

from perfkit.face.app.bounds import Bounds
from perfkit.face.app.owned import Owned, OwnedTable

NAME = "perfkit-forked"
_LAUNCHER = "ipykernel_launcher"
_REPLY_TIMEOUT_S = 60.0


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
            raise subprocess.TimeoutExpired(_LAUNCHER, timeout or 0.0)
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
    """The process of `perfkit.face.app.preloaded`; started with the first kernel, and again if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()

    def fork(self, arguments: list[str], environment: dict[str, str], folder: str) -> ForkedProcess | None:
        """A kernel with these arguments of ipykernel; None if it cannot be had this way. Waits for the imports once."""
        if not (hasattr(os, "pidfd_open") and hasattr(socket, "SOCK_SEQPACKET")):
            return None
        request = json.dumps({"arguments": arguments, "environment": environment, "folder": folder}).encode()
        with self._lock:
            try:
                channel = self._started()
                channel.send(request)
                reply, handles, _, _ = socket.recv_fds(channel, 64, 1)
            except OSError as error:
                get_logger().warning("the process that kernels are forked from failed (%s); kernels start one by one", error)
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


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel as a fork; all else is as with a process of its own. The server's kernel manager holds `preloaded`."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Fork, or start as Jupyter does."""
        preloaded = getattr(getattr(self.parent, "parent", None), "preloaded", None)
        process = None
        if preloaded is not None and _LAUNCHER in cmd:
            arguments = cmd[cmd.index(_LAUNCHER) + 1 :]
            folder = str(kwargs.get("cwd") or Path.cwd())
            process = await asyncio.to_thread(preloaded.fork, arguments, dict(kwargs["env"]), folder)
        if process is None:
            await super().launch_kernel(cmd, **kwargs)
        else:
            self.process = process
            self.pid = self.pgid = process.pid
            self.cwd = kwargs.get("cwd", Path.cwd())
        self._enter(self.process)
        return self.connection_info

    def _enter(self, process: Any) -> None:
        """Enter the process in the server's table, within its bounds; raises TooLate if nobody waits for it any more."""
        owned: OwnedTable | None = getattr(self.parent, "owned", None)
        bounds: Bounds | None = getattr(self.parent, "bounds", None)
        if owned is not None and bounds is not None:
            bounds.take(self.kernel_id, process.pid)
            ends = partial(_kill_group, process, self.pgid, bounds, self.kernel_id)
            owned.own(self.kernel_id, Owned(kind="process", pid=process.pid, close=ends, is_open=lambda: process.poll() is None))


def _kill_group(process: Any, group: int | None, bounds: Bounds, kernel_id: str) -> None:
    """End a kernel with its workers."""
    bounds.release(kernel_id)
    if group and hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    process.kill()


def register() -> None:
    """Let Jupyter find the provisioner under `NAME`."""
    KernelProvisionerFactory.provisioners[NAME] = EntryPoint(
        name=NAME, value=f"{__name__}:{ForkedProvisioner.__name__}", group=KernelProvisionerFactory.GROUP_NAME
    )
