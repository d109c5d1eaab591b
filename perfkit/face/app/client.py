"""Client: how the server talks to the kernel of a page, without the pause with which Jupyter's begins."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from queue import Empty

from perfkit.face.app.adapter import KernelClient

_REPLY_S, _HEARD_S = 1.0, 0.2


class PageClient(KernelClient):
    """Ready once the kernel answers and what it tells everybody is heard.

    Jupyter's client then listens until there is silence for 0.2 s, a tenth of the time in which a page opens; whoever executes a
    cell skips what belongs to other requests anyway.
    """

    def start_channels(
        self, shell: bool = True, iopub: bool = True, stdin: bool = True, hb: bool = False, control: bool = True
    ) -> None:
        """Start the channels, by default without the heartbeat, of which the server has no need: it holds the kernel's process.

        Jupyter's thread for it, stopped before it ran, opens sockets to the kernel without a pause until neither has a descriptor
        left, while the server waits for its end.
        """
        super().start_channels(shell=shell, iopub=iopub, stdin=stdin, hb=hb, control=control)

    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Return when the kernel can be given work; raises RuntimeError if it ends before, or after `timeout` seconds."""
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        while time.monotonic() < end:
            self.kernel_info()
            with suppress(Empty):
                reply = await self.get_shell_msg(timeout=_REPLY_S)
                if reply["msg_type"] == "kernel_info_reply":
                    await self.get_iopub_msg(timeout=_HEARD_S)  # a subscription takes a moment
                    self.learn(reply)
                    return
            if not await self.is_alive():
                raise RuntimeError("the kernel ended before it answered")
        raise RuntimeError(f"the kernel did not answer within {timeout} s")
