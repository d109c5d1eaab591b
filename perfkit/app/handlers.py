"""Handlers: what the app's server answers beside Voila's own routes, and the rules every page request passes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import tornado.web
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketHandler
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.tornado.handler import TornadoVoilaHandler

from perfkit import __version__, settings
from perfkit.app.kernels import PageKernels, started_for_page
from perfkit.app.navigation import ROOT_PAGE, navigation

PACKAGE = Path(__file__).resolve().parents[1]
ASSETS = {
    "page.css": PACKAGE / "app" / "static" / "page.css",
    "page.js": PACKAGE / "app" / "static" / "page.js",
    "icon.svg": PACKAGE / "app" / "static" / "icon.svg",
    "widgets.css": PACKAGE / "panels" / "_widgets.css",
    "vega.js": PACKAGE / "charts" / "_vega.js",
}
"""The only files that the app serves of its own."""


class PageHandler(TornadoVoilaHandler):  # type: ignore[misc]
    """A page, at /NN_topic. A full house answers 503 with a page that tries again; a visitor who left gives the kernel back."""

    async def get(self, path: str | None = None) -> None:
        """Render the notebook NN_topic.ipynb."""
        name = str(path)
        if not (Path(self.settings["pages_folder"]) / f"{name}.ipynb").is_file():
            await self._plain("missing.html.j2", 404, name)
            return
        if self.kernel_manager.full:
            self.set_header("Retry-After", "5")
            await self._plain("busy.html.j2", 503, name)
            return
        self._started: list[str] = []
        started_for_page.set(self._started)
        await super().get(f"{name}.ipynb")
        for kernel_id in self._started:
            self.kernel_manager.expect_connection(kernel_id)

    def on_connection_close(self) -> None:
        """Nobody reads the page any more, and its script, which would end the kernel, has not run."""
        super().on_connection_close()
        for kernel_id in getattr(self, "_started", ()):
            asyncio.ensure_future(self.kernel_manager.end(kernel_id))  # noqa: RUF006  nothing to wait for

    async def _plain(self, template: str, status: int, name: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        page = self.settings["voila_jinja2_env"].get_template(template)
        self.finish(page.render(**page_context(Path(self.settings["pages_folder"]), name), base_url=self.base_url))


class RootHandler(JupyterHandler):
    """/ leads to the first page."""

    def get(self) -> None:
        """Redirect."""
        query = f"?{self.request.query}" if self.request.query else ""
        self.redirect(f"{self.base_url}{ROOT_PAGE}{query}")


class HealthHandler(JupyterHandler):
    """/perfkit/health: how many pages are open, for the busy page and for whoever watches the server."""

    def get(self) -> None:
        """Answer with numbers as JSON."""
        kernels = cast(PageKernels, self.kernel_manager)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        answer = {
            "pages": kernels.num_pages,
            "limit": kernels.limit,
            "warm": len(kernels.warm_kernels),
            "full": kernels.full,
            "version": __version__,
        }
        self.finish(json.dumps(answer))


class PresenceHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """/perfkit/presence/ID: a socket that an open page holds from its first moment.

    When it closes, however the browser went, the kernel ends soon after; when the kernel ends, the page is told. The beacon of a
    closing page is quicker but gets lost when the browser is busy or crashes.
    """

    def open(self, kernel_id: str) -> None:
        """The page is there."""
        self._kernel_id = kernel_id
        super().open()
        if not cast(PageKernels, self.kernel_manager).arrive(kernel_id, self._tell):
            self._tell()

    def on_message(self, message: str | bytes) -> None:
        """Pages say nothing."""

    def on_close(self) -> None:
        """The page is gone."""
        super().on_close()
        cast(PageKernels, self.kernel_manager).leave(self._kernel_id, self._tell)

    def _tell(self) -> None:
        if self.ws_connection is not None:
            self.write_message({"ended": True})


class AssetHandler(tornado.web.StaticFileHandler):
    """/perfkit/static/NAME: style and scripts of the pages. Addresses carry a digest, so browsers may keep the files."""

    def initialize(self) -> None:  # type: ignore[override]
        """Serve from the package."""
        super().initialize(path=str(PACKAGE))

    @classmethod
    def get_absolute_path(cls, root: str, path: str) -> str:
        """Only what `ASSETS` names."""
        if path not in ASSETS:
            raise tornado.web.HTTPError(404)
        return str(ASSETS[path])


class ShutdownHandler(VoilaShutdownKernelHandler):  # type: ignore[misc]
    """End the kernel of a page that is being closed.

    The page says so with `sendBeacon`, which cannot carry the token that Voila's handler asks for (it answers 403 and the kernel
    stays). Only that token is waived, and only here; a foreign origin is still refused.
    """

    def check_xsrf_cookie(self) -> None:
        """Accept the beacon."""

    async def post(self, kernel_id: str) -> None:
        """End the kernel; a second beacon for it is no error."""
        self.set_status(204)
        self.finish()
        await cast(PageKernels, self.kernel_manager).end(kernel_id)


def asset_url(name: str) -> str:
    """The address of an asset, with the digest of its content."""
    version = AssetHandler.get_content_version(str(ASSETS[name]))
    return f"perfkit/static/{name}?v={version[:12]}"


def page_context(folder: Path, name: str) -> dict[str, Any]:
    """What every template of the app needs."""
    project = settings.project_folder()
    return {
        "nav": navigation(folder, name),
        "asset_url": asset_url,
        "project_name": project_name(project),
        "project_folder": str(project) if project else "",
        "read_only": settings.read_only(),
        "version": __version__,
    }


def project_name(folder: Path | None) -> str:
    """The name in perfkit.toml, else that of the folder; a damaged file does not keep pages from opening."""
    from perfkit.errors import InputError  # noqa: PLC0415
    from perfkit.project import find_project, open_project  # noqa: PLC0415

    try:
        found = find_project() if folder else None
        return open_project(found).name if found else (folder.name if folder else "")
    except InputError:
        return folder.name if folder else ""
