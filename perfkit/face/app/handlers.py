"""Handlers: what the app's server answers beside Voila's own routes, and the rules every page request passes."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from asyncio import Future
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import psutil
import tornado.web
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.iostream import StreamClosedError
from tornado.log import access_log
from tornado.websocket import WebSocketHandler

from perfkit import __version__
from perfkit.core import settings
from perfkit.core.texts import LANGUAGES, for_browser, markdown, t
from perfkit.face.app.access import is_named
from perfkit.face.app.adapter import ChannelsRequest, PageRequest, ShutdownRequest, templates_of
from perfkit.face.app.kernels import PageKernels, PageStart, page_start
from perfkit.face.app.navigation import ROOT_PAGE, navigation
from perfkit.face.app.room import Shortage, room
from perfkit.face.app.web import PLAIN_POLICY, entry, page_policy

LANGUAGE_COOKIE = "perfkit-language"
NAME_COOKIE = "perfkit-name"
PACKAGE = Path(__file__).resolve().parents[1]
ASSETS = {
    "page.css": PACKAGE / "app" / "static" / "page.css",
    "page.js": PACKAGE / "app" / "static" / "page.js",
    "client.js": PACKAGE / "app" / "static" / "client.js",
    "icon.svg": PACKAGE / "app" / "static" / "icon.svg",
    "widgets.css": PACKAGE / "widgets" / "_widgets.css",
    "widgets.js": PACKAGE / "widgets" / "_widgets.js",
    "vega.js": PACKAGE / "charts" / "_vega.js",
}
"""The only files that the app serves of its own."""
SEEN_S = 2.0
LEAVING_S = 1.0
ENDED = {
    "gone": "The kernel of this page has ended. Reopen it to go on; your choices come back.",
    "killed": "The kernel of this page was ended from outside of perfkit. Reopen it to go on; your choices come back.",
    "memory": "This page needed more memory than there is, so its kernel was ended. Reopen it to go on; your choices come back.",
    "processes": "This page started more processes than it may, so its kernel was ended. Reopen it; your choices come back.",
}
"""What a page is told when its kernel ends, by why it did."""


def log_refusal(handler: tornado.web.RequestHandler) -> None:
    """A line in the log for each request that was refused or failed, without the token that it may have shown."""
    request = handler.request
    if handler.get_status() >= 400:
        access_log.warning("%d %s %s (%s)", handler.get_status(), request.method, without_token(request.uri), request.remote_ip)


class PlainErrors:
    """Errors in a line: Jupyter's own pages of errors want files that this app does not serve, and its data tells tracebacks."""

    def write_error(self, status_code: int, **_: Any) -> None:
        """The number and what it stands for; why is in the server's log."""
        handler = cast(tornado.web.RequestHandler, self)
        handler.set_header("Content-Type", "text/plain; charset=utf-8")
        handler.set_header("Content-Security-Policy", PLAIN_POLICY)
        handler.finish(f"{status_code} {HTTPStatus(status_code).phrase}")


class PageHandler(PlainErrors, PageRequest):
    """A page, at /NN_topic. A full house answers 503 with a page that tries again; a visitor who left gives the kernel back."""

    _left = False

    async def get(self, path: str | None = None) -> None:
        """Render the notebook NN_topic.ipynb."""
        name = str(path)
        if not (Path(self.settings["pages_folder"]) / f"{name}.ipynb").is_file():
            await self._plain("missing.html.j2", 404, name)
            return
        if (wanted := entry(self.request)) == "refused":
            raise tornado.web.HTTPError(403, "a page of another origin, or a browser that guesses ahead, asked for a page")
        if "token" in self.request.arguments:
            # The cookie is set; the token must not stay in the address, where it is read over shoulders and copied into links.
            self.redirect(without_token(self.request.uri))
            return
        if foreign := self._foreign_project():
            await self._plain("missing.html.j2", 404, name, project=foreign)
            return
        if wanted == "doorstep":
            await self._plain("doorstep.html.j2", 200, name, here=self.request.uri)
            return
        kernels, visitor = cast(PageKernels, self.kernel_manager), visitor_of(self)
        shortage = await self._shortage(kernels, visitor)
        if not self._is_wanted():
            return
        if shortage:
            self.log.warning("page %s refused: no %s left", name, shortage)
            self.set_header("Retry-After", "5")
            await self._plain("busy.html.j2", 503, name, shortage=shortage, own_pages=kernels.visitor_limit)
            return
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", page_policy(nonce, self.request.host))
        start = PageStart(visitor=visitor, environment=wishes_of(self), nonce=nonce, is_wanted=self._is_wanted)
        self._started = start.kernel_ids
        page_start.set(start)
        kernels.take_place(start)
        try:
            await self.show(f"{name}.ipynb")
            await self._until_seen(kernels)
        except Exception as error:
            if self._is_wanted():
                await self._failed(name, error)
        finally:
            kernels.give_place_back(start)
            for kernel_id in self._started:
                if self._left:  # while the kernel was being started
                    await kernels.end(kernel_id)
                else:
                    kernels.expect_connection(kernel_id)

    def _is_wanted(self) -> bool:
        """Whether somebody waits for the page, and it has a kernel or will have one."""
        return not self._left and not self._kernel_gone()

    def _kernel_gone(self) -> bool:
        """Whether the kernel of this request has ended before the page was complete; its page has been told."""
        started = getattr(self, "_started", [])
        return bool(started) and not any(kernel_id in self.kernel_manager for kernel_id in started)

    async def _failed(self, name: str, error: Exception) -> None:
        """Say in words that the page could not be started; why stands in the server's log alone."""
        self.log.error("page %s could not be started", name, exc_info=error)
        if not self.is_begun:
            await self._plain("failed.html.j2", 500, name)

    async def _shortage(self, kernels: PageKernels, visitor: str) -> Shortage:
        """Why the visitor has to wait. Who reads a page anew has left it just now, and its kernel takes a moment to end."""
        end = time.monotonic() + LEAVING_S
        names = {visitor, _machine(self)}  # before the first answer a browser has no name
        while (shortage := kernels.shortage(visitor)) in ("pages", "own pages") and kernels.has_page(names):
            if self._left or time.monotonic() > end:
                break
            await asyncio.sleep(0.05)
        return shortage

    async def _until_seen(self, kernels: PageKernels) -> None:
        """Keep the connection until the page's script has run: a browser that leaves before closes it, which is noticed."""
        end = time.monotonic() + SEEN_S
        while not (self._left or all(map(kernels.is_open, self._started)) or time.monotonic() > end):
            await asyncio.sleep(0.02)

    def flush(self, include_footers: bool = False) -> Future[None]:
        """Send what was written; to nobody there is nothing to send, and Voila would go on for ever to wait for an ended kernel."""
        if not include_footers and not self._is_wanted():
            raise StreamClosedError
        return super().flush(include_footers)

    def on_connection_close(self) -> None:
        """Nobody reads the page any more, and its script, which would end the kernel, has not run."""
        super().on_connection_close()
        self._left = True
        for kernel_id in getattr(self, "_started", ()):
            asyncio.ensure_future(self.kernel_manager.end(kernel_id))  # noqa: RUF006  nothing to wait for

    def _foreign_project(self) -> str:
        """The project that an address names, if it is not the one that this server opens; it is a name, never a path."""
        served = settings.project_folder()
        asked = self.get_query_argument("project", "")
        return "" if served is not None and asked == served.name else asked

    async def _plain(self, template: str, status: int, name: str, **values: Any) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(plain_page(self, template, name, **values))


class RootHandler(PlainErrors, JupyterHandler):
    """/ leads to the page that shows what the server was started with."""

    def get(self) -> None:
        """Redirect."""
        page, mark, values = str(self.settings.get("first_page", ROOT_PAGE)).partition("#")
        query = without_token(self.request.uri).partition("?")[2]
        self.redirect(f"{self.base_url}{page}{'?' + query if query else ''}{mark}{values}")


class HealthHandler(PlainErrors, JupyterHandler):
    """/perfkit/health: how many pages are open, for the busy page and for whoever watches the server."""

    def get(self) -> None:
        """Answer with numbers as JSON."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(health(cast(PageKernels, self.kernel_manager), visitor_of(self))))


def health(kernels: PageKernels, visitor: str) -> dict[str, Any]:
    """What is open and what is left, counted now: pages, processes, sockets and files from the table, the rest from the system."""
    left, shortage = room(), kernels.shortage(visitor)
    counts = kernels.owned.counts()
    return {
        "pages": kernels.num_pages,
        "limit": kernels.limit,
        "warm": len(kernels.warm_kernels),
        "full": bool(shortage),
        "shortage": shortage,
        "processes": counts["process"],
        "children": kernels.supervisor.children,
        "sockets": counts["socket"],
        "descriptors": left.descriptors,
        "descriptor_limit": left.descriptor_limit,
        "free_bytes": left.free_bytes,
        "memory_bytes": psutil.Process().memory_info().rss,
        "bounds": kernels.bounds.kind,
        "mended": kernels.supervisor.mended,
        "version": __version__,
    }


class PresenceHandler(PlainErrors, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """/perfkit/presence/ID: a socket that an open page holds from its first moment.

    When it closes, however the browser went, the kernel ends soon after; when the kernel ends, the page is told. The beacon of a
    closing page is quicker but gets lost when the browser is busy or crashes.
    """

    def open(self, kernel_id: str) -> None:
        """The page is there."""
        self._kernel_id = kernel_id
        super().open()
        if not cast(PageKernels, self.kernel_manager).arrive(kernel_id, self._tell):
            self._tell("gone")

    def on_message(self, message: str | bytes) -> None:
        """Pages say nothing."""

    def on_close(self) -> None:
        """The page is gone."""
        super().on_close()
        cast(PageKernels, self.kernel_manager).leave(self._kernel_id, self._tell)

    def _tell(self, why: str) -> None:
        if self.ws_connection is not None:
            self.write_message({"ended": True, "text": t(ENDED.get(why, ENDED["gone"]), language=language_of(self))})


class ChannelsHandler(PlainErrors, ChannelsRequest):
    """/api/kernels/ID/channels: the socket between a page and its kernel."""

    async def open(self, kernel_id: str) -> None:
        """Send every message at once: else an answer waits until the browser has confirmed the small one before it, for 40 ms."""
        self.set_nodelay(True)
        await super().open(kernel_id)


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


class ShutdownHandler(PlainErrors, ShutdownRequest):
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


def visitor_of(handler: JupyterHandler) -> str:
    """Who asks: a name that is known, or that stays with the browser by a signed cookie; else the machine.

    A program that keeps no cookie would be somebody else each time.
    """
    user, identity = handler.current_user, handler.identity_provider
    if user and (is_named(user) or handler.get_cookie(identity.get_cookie_name(handler))):
        return str(user.username)
    return _machine(handler)


def _machine(handler: JupyterHandler) -> str:
    return f"machine {handler.request.remote_ip}"


def language_of(handler: JupyterHandler) -> str:
    """The language that the visitor has chosen, else that of the server."""
    chosen = handler.get_cookie(LANGUAGE_COOKIE, "")
    return chosen if chosen in LANGUAGES else settings.language()


def wishes_of(handler: JupyterHandler) -> dict[str, str]:
    """What a page's kernel should know about the visitor: the language, and the name that the log is given."""
    known = {"PERFKIT_LANGUAGE": language_of(handler)}
    user = handler.current_user
    if name := str(user.name) if user and is_named(user) else settings.hub_user():
        return {**known, "PERFKIT_AUTHOR": name, "PERFKIT_STUDENT": name}
    name = unquote(handler.get_cookie(NAME_COOKIE, "") or "")
    author = " ".join("".join(letter for letter in name if letter.isprintable()).split())
    return {**known, "PERFKIT_STUDENT": "", **({"PERFKIT_AUTHOR": author[:60]} if author else {})}


def without_token(uri: str | None) -> str:
    """An address without its token."""
    path, _, query = str(uri).partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("token=")]
    return path + (f"?{'&'.join(kept)}" if kept else "")


def plain_page(handler: JupyterHandler, template: str, name: str = "", **values: Any) -> str:
    """A page without a kernel."""
    page = templates_of(handler).get_template(template)
    nonce = secrets.token_urlsafe(16)
    handler.set_header("Content-Security-Policy", page_policy(nonce, handler.request.host))
    context = page_context(Path(handler.settings["pages_folder"]), name, language_of(handler), nonce)
    return str(page.render(**{**context, **values}, base_url=handler.base_url))


def login_page(handler: JupyterHandler, *, wanted: str, failed: bool) -> str:
    """The page that asks for the token; it names neither the project nor the pages."""
    hidden: dict[str, Any] = {"project_name": "", "project_folder": "", "nav": None}
    return plain_page(handler, "login.html.j2", **hidden, wanted=wanted, failed=failed, xsrf_field=handler.xsrf_form_html())


def asset_url(name: str) -> str:
    """The address of an asset, with the digest of its content."""
    version = AssetHandler.get_content_version(str(ASSETS[name]))
    return f"perfkit/static/{name}?v={version[:12]}"


def page_context(folder: Path, name: str, language: str, nonce: str) -> dict[str, Any]:
    """What every template of the app needs."""
    project = settings.project_folder()
    return {
        "nav": navigation(folder, name),
        "asset_url": asset_url,
        "nonce": nonce,
        "project_name": project_name(project),
        "project_folder": project.name if project else "",
        "read_only": settings.read_only(),
        "version": __version__,
        "language": language,
        "languages": LANGUAGES,
        "t": partial(t, language=language),
        "markdown": partial(markdown, language=language),
        "browser_texts": for_browser(language),
    }


def project_name(folder: Path | None) -> str:
    """The name in perfkit.toml, else that of the folder; a damaged file does not keep pages from opening."""
    from perfkit.core.errors import InputError  # noqa: PLC0415
    from perfkit.project import find_project, open_project  # noqa: PLC0415

    try:
        found = find_project() if folder else None
        return open_project(found).name if found else (folder.name if folder else "")
    except InputError:
        return folder.name if folder else ""
