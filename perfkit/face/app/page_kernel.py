"""Page kernel: Jupyter's manager of one kernel, whose sockets and files stand in the server's table from the moment they exist."""

from __future__ import annotations

from typing import Any

from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from tornado.web import HTTPError
from zmq.eventloop.zmqstream import ZMQStream

from perfkit.face.app.bounds import Bounds
from perfkit.face.app.owned import Owned, OwnedTable, TooLate


class PageKernel(ServerKernelManager):
    """A kernel that is never restarted in silence: what its page had computed would be gone, and nobody told."""

    autorestart = False

    @property
    def owned(self) -> OwnedTable:
        """The table of the server."""
        return self.parent.owned  # type: ignore[no-any-return,union-attr]

    @property
    def bounds(self) -> Bounds:
        """What bounds the processes of the server's kernels."""
        return self.parent.bounds  # type: ignore[no-any-return,union-attr]

    async def start_kernel(self, **kwargs: Any) -> None:  # type: ignore[override]
        """Start the process; the provisioner enters it."""
        kernel_id = str(kwargs["kernel_id"])
        self.owned.own(kernel_id, Owned(kind="file", close=self._remove_files, is_open=lambda: True))
        await super().start_kernel(**kwargs)

    def client(self, **kwargs: Any) -> Any:
        """A client in the server's own context: one of its own would take a thread and six descriptors more."""
        client = super().client(context=self.context, **kwargs)
        self._enter(Owned(kind="socket", close=client.stop_channels, is_open=lambda: bool(client.channels_running)))
        return client

    def connect_shell(self, identity: bytes | None = None) -> Any:
        """The shell channel, entered."""
        return self._entered(super().connect_shell(identity=identity))

    def connect_control(self, identity: bytes | None = None) -> Any:
        """The control channel, entered."""
        return self._entered(super().connect_control(identity=identity))

    def connect_iopub(self, identity: bytes | None = None) -> Any:
        """The channel of what the kernel tells everybody, entered."""
        return self._entered(super().connect_iopub(identity=identity))

    def connect_stdin(self, identity: bytes | None = None) -> Any:
        """The channel of what the kernel asks, entered."""
        return self._entered(super().connect_stdin(identity=identity))

    def _entered(self, stream: ZMQStream) -> ZMQStream:
        self._enter(Owned(kind="socket", close=lambda: stream.close(linger=0), is_open=lambda: not stream.closed()))
        return stream

    def _enter(self, thing: Owned) -> None:
        try:
            self.owned.own(str(self.kernel_id), thing)
        except TooLate as error:
            raise HTTPError(404, str(error)) from error

    def _remove_files(self) -> None:
        self.cleanup_connection_file()
        self.cleanup_ipc_files()
