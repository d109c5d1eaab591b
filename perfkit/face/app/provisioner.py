"""Provisioner: how the app starts kernels: as forks of one process that has imported everything, where the system can (Linux).

Elsewhere, and when that process cannot be had, kernels are started as Jupyter starts them: later and larger, otherwise the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from perfkit.face.app.bounds import Bounds
from perfkit.face.app.forks import LAUNCHER
from perfkit.face.app.owned import Owned, OwnedTable

NAME = "perfkit-forked"


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel as a fork; all else is as with a process of its own. The server's kernel manager holds `preloaded`."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Fork, or start as Jupyter does."""
        preloaded = getattr(getattr(self.parent, "parent", None), "preloaded", None)
        process = None
        if preloaded is not None and LAUNCHER in cmd:
            arguments = cmd[cmd.index(LAUNCHER) + 1 :]
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
