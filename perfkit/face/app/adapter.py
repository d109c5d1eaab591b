"""Adapter: what the app takes from Voila, Jupyter's server and its client where they have no public interface, and nothing else.

Voila documents its settings and no Python interface, so nothing else imports it; no other module of perfkit names a private
attribute of a package that is not its own (`tests/test_conventions.py`). What must be there for it stands with its parameters in
`tests/face/app/test_interfaces.py`.
"""

from __future__ import annotations

import asyncio
import re
import signal
from asyncio import Future
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_server.base.handlers import JupyterHandler
from tornado.ioloop import IOLoop
from voila import notebook_renderer
from voila.app import Voila
from voila.execute import VoilaExecutor
from voila.exporter import VoilaExporter
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.tornado.handler import TornadoVoilaHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler
from voila.tornado.treehandler import TornadoVoilaTreeHandler
from voila.voila_identity_provider import VoilaIdentityProvider

Route = tuple[Any, ...]
_OF_LAB = re.compile(r"voila/(api/contents|files/|templates/|static/|api/themes/|labextensions/)|api/kernels/[^/]*$")
"""Routes of Voila for JupyterLab's front end, which the pages do without, and for arbitrary files."""
_HEARTBEAT = "voila_heartbeat"


_AHEAD = 3
"""Cells that a kernel has in hand; what a page asks for meanwhile waits for no more of them."""


class KernelClient(AsyncKernelClient):
    """Jupyter's client of a kernel, which learns the kernel's protocol from a reply that somebody else waited for.

    What will be executed next can be asked for before, so that the kernel does not wait for the server between two cells.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._asked: deque[tuple[str, str]] = deque()

    def ask_ahead(self, codes: list[str]) -> None:
        """Send the next `codes` as far as they were not sent; `execute` then gives the message that was."""
        for code in codes[len(self._asked) :]:
            self._asked.append((code, super().execute(code, store_history=False)))

    def execute(self, code: str, *arguments: Any, **options: Any) -> str:
        """Send `code` unless it was; gives the number of the message."""
        if self._asked and self._asked[0][0] == code:
            return self._asked.popleft()[1]
        return super().execute(code, *arguments, **options)  # type: ignore[no-any-return]

    def learn(self, reply: dict[str, Any]) -> None:
        """Take `reply`, a "kernel_info_reply"."""
        self._handle_kernel_info_reply(reply)


class IdentityProvider(VoilaIdentityProvider):  # type: ignore[misc]
    """Who asks, as Voila's own server wants it: Jupyter's provider with a token and without a password."""


class _Compiled(BytecodeCache):
    """What templates were compiled to. Voila makes an environment of jinja2 for each page, which would compile them all anew."""

    def __init__(self) -> None:
        self._of: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what is known of a template; of another text under its name, jinja2 takes nothing."""
        if (known := self._of.get(bucket.key)) is not None:
            bucket.bytecode_from_string(known)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what a template was compiled to."""
        self._of[bucket.key] = bucket.bytecode_to_string()


_compiled = _Compiled()


class PageExporter(VoilaExporter):  # type: ignore[misc]
    """Writes a page; compiles each template once in the life of the server."""

    def _create_environment(self) -> Any:
        environment = super()._create_environment()
        environment.bytecode_cache = _compiled
        return environment


class PageExecutor(VoilaExecutor):  # type: ignore[misc]
    """Executes the cells of a page."""

    async def execute_cell(self, cell: Any, resources: Any, cell_index: int, store_history: bool = True) -> Any:
        """Execute a cell, with the next ones already on their way."""
        codes = [each.source for each in self.nb.cells[cell_index:] if each.cell_type == "code" and each.source.strip()]
        self.kc.ask_ahead(codes[:_AHEAD])
        return await super().execute_cell(cell, resources, cell_index, store_history)


notebook_renderer.VoilaExporter = PageExporter
notebook_renderer.VoilaExecutor = PageExecutor


class PageRequest(TornadoVoilaHandler):  # type: ignore[misc]
    """A request for a notebook as a page."""

    async def show(self, notebook: str) -> None:
        """Execute `notebook` and send what its cells show, cell by cell."""
        await TornadoVoilaHandler.get(self, notebook)

    @property
    def is_begun(self) -> bool:
        """Whether status and headers are on their way, after which there is no other answer."""
        return bool(self._headers_written)

    def write(self, chunk: str | bytes | dict[str, Any]) -> None:
        """Voila keeps the connection of a slow page alive with an inline script; a comment does that too."""
        super().write("<!-- -->\n" if isinstance(chunk, str) and _HEARTBEAT in chunk else chunk)

    def flush(self, include_footers: bool = False) -> Future[None]:
        """Send what was written."""
        return super().flush(include_footers)  # type: ignore[no-any-return]


class ChannelsRequest(VoilaKernelWebsocketHandler):  # type: ignore[misc]
    """The socket between a page and its kernel."""


class ShutdownRequest(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """What a page sends when it closes."""


def templates_of(handler: JupyterHandler) -> Any:
    """The environment of jinja2 in which the pages of this server are written."""
    return handler.settings["voila_jinja2_env"]


def is_of_lab(route: str, base_url: str) -> bool:
    """Whether the pages do without a route of Voila, whatever the words of the path that the app is served under."""
    return _OF_LAB.match(route.removeprefix(base_url)) is not None


class PageServer(Voila):  # type: ignore[misc]
    """Voila's server with other templates and routes, and without those of JupyterLab's front end and of arbitrary files."""

    config_file_paths: list[str] = []  # noqa: RUF012  a trait's value: a user's own Voila settings are for other servers
    templates: Path
    """Looked into before Voila's own."""
    page_path: str
    """Of a page below the base, a regular expression."""
    own_handlers: tuple[type, ...]
    """Each in place of the handler of Voila's routes that it extends."""
    errors: type
    """Mixed into every other handler of Voila's routes: how it answers what goes wrong."""

    def own_routes(self) -> list[Route]:
        """Routes beside Voila's, first of all."""
        return []

    def begin(self) -> None:
        """Take connections; called once the server is set up, before its loop runs."""

    def setup_template_dirs(self) -> None:
        """Add the templates."""
        super().setup_template_dirs()
        self.template_paths.insert(0, str(self.templates))

    def init_handlers(self) -> list[Route]:
        """Voila's routes as they are wanted, after our own."""
        kept = []
        for route, handler, *arguments in super().init_handlers():
            if not issubclass(handler, TornadoVoilaTreeHandler) and not is_of_lab(route, self.base_url):
                own = next((own for own in self.own_handlers if issubclass(own, handler)), None)
                own = own or type(handler.__name__, (self.errors, handler), {})
                kept.append((self.at(self.page_path) if handler is TornadoVoilaHandler else route, own, *arguments))
        return [*self.own_routes(), *kept]

    def at(self, path: str) -> str:
        """A path below the base."""
        return f"{self.base_url}{path}"

    def listen(self) -> None:
        """Serve until stopped."""
        self.begin()
        self.ioloop = IOLoop.current()
        self._stop_in_order()
        try:
            self.ioloop.start()
        except KeyboardInterrupt:
            self.log.info("stopping")
        finally:
            self.stop()

    def _stop_in_order(self) -> None:
        """Let the first Ctrl-C end the loop, as Voila does with SIGTERM; the second is Python's again, and ends at once.

        As an exception Ctrl-C may come in the middle of a finalizer, where Python drops it and the server goes on.
        """
        loop = asyncio.get_event_loop()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            loop.stop()

        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal.SIGINT, stop)

    def soon(self, work: Callable[[], object]) -> None:
        """Call `work` once the loop runs."""
        IOLoop.current().add_callback(work)
