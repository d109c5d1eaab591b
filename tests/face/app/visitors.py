"""Visitors without a browser: they ask for a page, hold its sockets, and leave in every way in which browsers leave."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass, field

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

_KERNEL_ID = re.compile(rb'perfkitPage.started\("([0-9a-f-]{36})"\)')
WAYS = ("beacon", "together", "sockets", "crash")
"""How a page is left: its end message before its sockets, at the same moment, sockets alone, without any handshake."""


@dataclass
class Visitor:
    """One browser with one page open at a time. `token` opens the door; cookies that come back are kept."""

    url: str
    token: str = ""
    cookies: dict[str, str] = field(default_factory=dict)
    kernel_id: str = ""
    sockets: list[WebSocketClientConnection] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """Where the pages come from."""
        return "/".join(self.url.split("/")[:3])

    def _known(self) -> dict[str, str]:
        cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        return {**cookies, **({"Authorization": f"token {self.token}"} if self.token else {})}

    async def ask(self, path: str, *, method: str = "GET", body: bytes | None = None, headers: dict | None = None) -> HTTPResponse:
        """What the server answers, whatever it is; status 599 if it does not."""
        request = HTTPRequest(f"{self.url}{path}", method=method, body=body, headers={**self._known(), **(headers or {})})
        request.request_timeout, request.follow_redirects = 120, False
        client = AsyncHTTPClient(force_instance=True)
        try:
            reply = await client.fetch(request, raise_error=False)
        except (HTTPClientError, OSError):  # what is not even an answer, tornado raises all the same
            return HTTPResponse(request, 599)
        finally:
            client.close()
        for line in reply.headers.get_list("Set-Cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return reply

    async def open(self, name: str) -> int:
        """Open a page and its sockets; gives the status of the page."""
        status = await self.read(name)
        if self.kernel_id:
            await self.attach()
        return status

    async def read(self, name: str) -> int:
        """Ask for a page; gives its status."""
        reply = await self.ask(name)
        found = _KERNEL_ID.search(reply.body or b"")
        if reply.code != 200 or found is None:
            return int(reply.code)
        self.kernel_id = found[1].decode()
        return 200

    async def attach(self) -> None:
        """Open the sockets of the page, as its script does."""
        for path in (
            f"perfkit/presence/{self.kernel_id}",
            f"api/kernels/{self.kernel_id}/channels?session_id={secrets.token_hex(16)}",
        ):
            self.sockets.append(await self.connect(path))

    async def connect(self, path: str) -> WebSocketClientConnection:
        """A socket of the open page."""
        address = f"{self.url.replace('http', 'ws', 1)}{path}"
        return await websocket_connect(HTTPRequest(address, headers={**self._known(), "Origin": self.origin}, connect_timeout=60))

    async def leave(self, how: str) -> None:
        """Close the page in one of `WAYS`."""
        said = None
        if how in ("beacon", "together"):
            said = asyncio.ensure_future(self._beacon())
            await (said if how == "beacon" else asyncio.sleep(0.02))
        for socket in self.sockets:
            if how == "crash" and socket.stream is not None:
                socket.stream.close()
            else:
                socket.close()
        if said is not None:
            await said
        self.sockets, self.kernel_id = [], ""

    async def _beacon(self) -> None:
        await self.ask(f"voila/api/shutdown/{self.kernel_id}", method="POST", body=b"", headers={"Origin": self.origin})
