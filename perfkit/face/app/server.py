"""Server: the guided pages as an app on this machine (Voila), or as notebooks (JupyterLab), with a folder as the tuning project.

Voila executes the pages; everything that a visitor sees is perfkit's own template and script. Nothing is requested from another
host, sources stay hidden, and only the page assets of `handlers.ASSETS` are served as files. The server listens on
127.0.0.1 and answers to no other host name, unless it is told to; then everybody needs its token (`perfkit.face.app.access`).
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import socket
import webbrowser
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError
from tornado.log import gen_log
from traitlets.config import Config

from perfkit.core import settings, texts
from perfkit.core.errors import InputError
from perfkit.core.resources import notebooks_folder
from perfkit.core.texts import say
from perfkit.face.app import handlers
from perfkit.face.app.access import LOCAL_HOST, Access, Identity, access_to
from perfkit.face.app.adapter import PageServer, Route
from perfkit.face.app.cgroup import bounds_here
from perfkit.face.app.class_mode import codes_of_class, start_class
from perfkit.face.app.forks import Preloaded
from perfkit.face.app.kernels import PageStart, page_start
from perfkit.face.app.navigation import ROOT_PAGE
from perfkit.face.app.provisioner import NAME as PROVISIONER
from perfkit.face.app.provisioner import register as register_provisioner
from perfkit.face.app.room import CONNECTION_RESERVE, raise_descriptor_limit, room
from perfkit.face.app.start import Start, start_with
from perfkit.face.app.web import HEADERS

CULL_IDLE_S = 15 * 60
CULL_CHECK_S = 60
MAX_MESSAGE_BYTES = 256 * 2**20
"""A message over tornado's own 10 MiB ends the connection without a word; an upload easily is one."""

PING_MS = 30_000
"""Proxies end connections on which nothing is said for a minute."""
PONG_MS = 180_000
"""A browser that draws 20 pages at once answers late, and is not gone; one that is gone closes its connections."""

MAX_REFUSING, MAX_REFUSED_BYTES, REFUSAL_S = CONNECTION_RESERVE // 2, 2**16, 1.0
"""How many are being told at once that there is no room, and what of their request is heard first."""
_NO_ROOM = b"perfkit has no room for another connection now; try again in a moment.\n"
REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_NO_ROOM), _NO_ROOM)
)
TEMPLATES = Path(__file__).parent / "templates"


def serve(
    *paths: str | Path,
    port: int = 8866,
    lab: bool = False,
    read_only: bool = False,
    open_browser: bool = False,
    classroom: bool = False,
    class_seed: int | None = None,
    class_admin: str | None = None,
    host: str = LOCAL_HOST,
    token: str | None = None,
    base_url: str = "/",
    no_token: bool = False,
    user_header: str = "",
    preloaded: Preloaded | None = None,
) -> None:
    """Serve the guided pages on `host`:`port` with what lies at `paths` open, until Ctrl-C.

    A path is a tuning project, or a recording, a log, a configuration, a graph dump, or a folder of them: then a project is
    made for it in the user's data folder. Without one this folder is the project. `lab` opens JupyterLab on the project's
    own copies of the pages, with the code visible; `read_only` never writes to the project. Raises InputError if nothing can
    read a path or the port is taken. `classroom` holds a class (`perfkit.face.app.class_mode`). Visitors need `token`, by
    default one that is made and printed, unless `no_token` says that nobody is asked; `base_url` is the path behind a proxy,
    and `user_header` where that proxy, which sends the token, names the visitor. `preloaded` is a process for the kernels
    that has begun already.
    """
    settings.max_kernels(0)  # a wrong PERFKIT_MAX_KERNELS should be told here, not by the first page
    start = start_with(paths, classroom=classroom)
    project = start.project
    access = access_to(host, token or os.environ.pop("PERFKIT_TOKEN", None), base_url, no_token=no_token, user_header=user_header)
    _check_port(port, access.host)
    if classroom and lab:
        raise InputError("--class", ["students could read all answers in JupyterLab; leave --lab out, or see docs/class.md"])
    if classroom:
        for line in start_class(project, seed=class_seed, token=class_admin):
            print(texts.told(line), flush=True)
    os.environ["PERFKIT_PROJECT"] = str(project)
    os.environ["PERFKIT_NAMED"] = os.pathsep.join(map(str, start.roots))
    if read_only:
        os.environ["PERFKIT_READ_ONLY"] = "1"
    if lab:
        os.environ.pop("PERFKIT_APP", None)
        _start_lab(port, access, start, _own_pages(project, read_only=read_only), open_browser=open_browser)
        return
    os.environ["PERFKIT_APP"] = "1"
    with suppress(OSError):  # a kernel is confined to what is there, and could not make it
        settings.cache_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    raise_descriptor_limit()
    register_provisioner()
    App.clear_instance()
    app = App.instance(
        config=_configuration(port, access, start, shared=classroom or not access.is_local)
    )  # whose log all modules write
    app.initialize(argv=[])
    app.preloaded, app.read_ahead = preloaded, start.first_page == ROOT_PAGE and not classroom
    # Stored outputs are what the warning is about; pages have none.
    app.log.addFilter(lambda record: "is not trusted" not in record.getMessage())
    # Of a page that was left while it was computed; of kernels that end by themselves the supervisor tells.
    app.log.addFilter(lambda record: "DeadKernelError" not in str(record.exc_info) and "Kernel died" not in record.getMessage())
    # Jupyter's own pings take these milliseconds; tornado takes them for seconds of its own, which never come, and warns.
    logging.getLogger("tornado.general").addFilter(lambda record: "websocket_ping_timeout" not in record.getMessage())
    url = access.address(port)
    lines = [*start.told, say("perfkit serves {project} at {url} (Ctrl-C ends it)", project=str(project), url=url)]
    if not access.token:
        lines.append(say("NO TOKEN: every account of this machine can do what you can do with this project"))
    elif not access.is_local:
        lines.append(say("other machines reach it; whoever has the token can do what you can do with this project"))
    for line in lines:
        print(texts.told(line), flush=True)
    if open_browser:
        webbrowser.open(url)
    app.start()


class App(PageServer):
    """The server with perfkit's template, routes and kernels."""

    preloaded: Preloaded | None = None
    read_ahead = False
    """Whether the first page shows the verdict on what is open."""
    templates = TEMPLATES
    page_path = r"(\d\d_[a-z0-9_]+)"
    errors = handlers.PlainErrors
    own_handlers = (handlers.PageHandler, handlers.ShutdownHandler, handlers.ChannelsHandler)

    def own_routes(self) -> list[Route]:
        """What Voila has not."""
        return [
            (self.at(""), handlers.RootHandler),
            (self.at("perfkit/health"), handlers.HealthHandler),
            (self.at(r"perfkit/presence/([\w-]+)"), handlers.PresenceHandler),
            (self.at(r"perfkit/static/([\w.]+)"), handlers.AssetHandler),
        ]

    def begin(self) -> None:
        """Say what bounds the kernels, and listen; the supervisor and the first warm kernel start with the loop."""
        kernels = self.kernel_manager
        kernels.preloaded = self.preloaded or kernels.preloaded
        kernels.bounds = bounds_here(kernels.limit + kernels.num_warm)
        print(texts.told(kernels.bounds.told), flush=True)
        Connections(self.app).listen(self.port, self.ip)
        self.soon(partial(kernels.begin, read_ahead=self.read_ahead))


class Connections(HTTPServer):
    """Answers as long as there are descriptors; with few left a new connection is refused, so that the pages that are open live."""

    def initialize(self, *arguments: Any, **named: Any) -> None:
        """Begin with nobody refused."""
        super().initialize(*arguments, **named)
        self._refusals: set[asyncio.Task[None]] = set()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take a connection, or close it with the shortest answer there is."""
        if room().accepts_connections:
            super().handle_stream(stream, address)
        elif len(self._refusals) < MAX_REFUSING:
            told = asyncio.ensure_future(_refuse(stream))
            self._refusals.add(told)
            told.add_done_callback(self._refusals.discard)
        else:
            stream.close()


async def _refuse(stream: IOStream) -> None:
    """Say that there is no room; hear the request first, else the answer is lost with the connection that is closed on it."""
    gen_log.warning("a connection was refused: too few descriptors are left")
    try:
        await asyncio.wait_for(stream.read_until(b"\r\n\r\n", max_bytes=MAX_REFUSED_BYTES), timeout=REFUSAL_S)
        await stream.write(REFUSED)
    except (TimeoutError, StreamClosedError):  # whoever asks too slowly, too much or not at all gets no answer
        return
    finally:
        stream.close()


class OwnKernels(KernelSpecManager):
    """Only the Python that runs the server: a kernel of that name elsewhere on the machine may not have perfkit."""

    kernel_dirs: list[str] = []  # noqa: RUF012  a trait's value


def _pages_folder() -> Path:
    return settings.pages_folder() or notebooks_folder()


def _page_config(page_config: dict[str, Any], *, notebook_path: str, **_: Any) -> dict[str, Any]:
    start = page_start.get() or PageStart()  # that of the request that is answered
    language = start.environment.get("PERFKIT_LANGUAGE", settings.language())
    context = handlers.page_context(_pages_folder(), Path(notebook_path).stem, language, start.nonce)

    async def wanted(cells: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Cells, each computed when it is asked for: none any more once nobody waits for them. Voila copies what is no function."""
        async for cell in cells:
            if not start.is_wanted():
                return
            yield cell

    return {**page_config, "perfkit": {**context, "wanted": wanted}}


def _only_seen(_handler: object, *, notebook: Any, cwd: str) -> Any:
    """The notebook without what only its reader needs: cells to go on from are shown as code, not run."""
    for cell in notebook.cells:
        if "yours" in cell.metadata.get("tags", ()):
            cell.cell_type = "raw"
    return notebook


def _configuration(port: int, access: Access, start: Start, *, shared: bool) -> Config:
    return Config(
        {
            "Voila": {
                "ip": access.host,
                "port": port,
                "base_url": access.base_url,
                "token": access.token,
                **_kept_visits(access),
                "identity_provider_class": Identity,
                "port_retries": 0,
                "root_dir": str(_pages_folder()),
                "open_browser": False,
                "log_level": "WARN",
                "tornado_settings": {
                    "ws_ping_interval": PING_MS,
                    "ws_ping_timeout": PONG_MS,
                    "websocket_max_message_size": MAX_MESSAGE_BYTES,
                    # A page of another site that resolves to this machine gets no answer; where there is a token, it has none.
                    "allow_remote_access": bool(access.token),
                    "allow_unauthenticated_access": not access.token,
                    "pages_folder": str(_pages_folder()),
                    "first_page": start.first_page,
                    "headers": dict(HEADERS),
                    "log_function": handlers.log_refusal,
                },
            },
            "VoilaConfiguration": {
                "template": "lab",
                "strip_sources": True,
                "show_tracebacks": False,
                "allow_template_override": "NO",
                "allow_theme_override": "NO",
                "file_allowlist": [],
                "extension_allowlist": [],
                "multi_kernel_manager_class": "perfkit.face.app.kernels.PageKernels",
                "kernel_spec_manager_class": OwnKernels,
                "page_config_hook": _page_config,
                "prelaunch_hook": _only_seen,
                "http_keep_alive_timeout": 10,
            },
            "Identity": {"user_header": access.user_header, "codes": codes_of_class()},
            "KernelProvisionerFactory": {"default_provisioner_name": PROVISIONER},
            # Files instead of ports: other users of the machine cannot talk to the kernels.
            "KernelManager": {"transport": "tcp" if os.name == "nt" else "ipc"},
            "AsyncKernelManager": {"client_factory": "perfkit.face.app.client.PageClient"},
            "PageKernels": {
                "num_warm": settings.warm_kernels(),
                "cull_idle_timeout": CULL_IDLE_S,
                "cull_interval": CULL_CHECK_S,
                "cull_connected": False,
                "kernel_info_timeout": 15.0,  # of a socket to a kernel that answered before; Jupyter waits a minute
                "kernel_manager_class": "perfkit.face.app.page_kernel.PageKernel",
                "visitor_limit": settings.max_kernels_per_visitor(shared=shared),
            },
        }
    )


def _kept_visits(access: Access) -> dict[str, bytes]:
    """With a token of one's own, visitors that were let in stay so when the server is started again."""
    if access.made or not access.token:
        return {}
    return {"cookie_secret": hashlib.sha256(f"perfkit visits {access.token}".encode()).digest()}


def _own_pages(project: Path, *, read_only: bool) -> Path:
    """The copies of the pages in the project, made where they are missing; where nothing can be written the pages themselves."""
    from perfkit import __version__  # noqa: PLC0415
    from perfkit.project.notebooks import FOLDER, copy_pages, told  # noqa: PLC0415  of JupyterLab alone

    try:
        if read_only:
            raise PermissionError
        folder = copy_pages(project, version=__version__)
    except PermissionError:
        print(f"{project} is only read: these are the pages themselves, and changes are not kept", flush=True)
        return _pages_folder()
    print(f"the pages are copies of your own in {project / FOLDER}", flush=True)
    for line in told(project):
        print(line, flush=True)
    return folder


def _start_lab(port: int, access: Access, start: Start, folder: Path, *, open_browser: bool) -> None:
    from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]  # noqa: PLC0415  two seconds that the app does not need

    arguments = {
        "ServerApp.ip": access.host,
        "ServerApp.base_url": access.base_url,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": str(folder),
        "ServerApp.open_browser": open_browser,
        "ServerApp.allow_root": True,  # as in a container; it asks for a token
        "ServerApp.kernel_spec_manager_class": f"{__name__}.OwnKernels",
        "LabApp.check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "LabApp.app_settings_dir": str(Path(__file__).parent / "lab"),  # no question about news from elsewhere
        "LabApp.extension_manager": "readonly",
        "LabApp.default_url": "/lab/tree/{}.ipynb{}{}".format(*start.first_page.partition("#")),
    }
    if not access.made:  # else JupyterLab makes one, and prints it once it listens
        arguments["IdentityProvider.token"] = access.token
    LabApp.launch_instance(argv=[f"--{name}={value}" for name, value in arguments.items()])


def _check_port(port: int, host: str) -> None:
    if not 0 < port < 65536:
        raise InputError("--port", [f"{port} is no port; 1 to 65535 are"])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InputError("--port", [f"{port} is taken by another program; try --port {port + 1}"]) from error
            raise InputError("--port", [f"{port} of {host} cannot be used: {error.strerror}"]) from error
