"""Every attack, one after the other on one server: each is refused, none is answered with what it wanted, each is in the log,
and the app serves the next page as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

import perfkit
from tests.browser.app_server import Server, start, stop
from tests.face.app.test_confine import climbing_paths
from tests.face.app.test_web import FOREIGN
from tests.face.app.visitors import Visitor

TOKEN = "a-token-of-these-tests"
ELSEWHERE = "http://elsewhere.example"
PACKAGE = Path(perfkit.__file__).parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "secret.txt").write_text("the secret of the project")
    log = tmp_path_factory.mktemp("log") / "server.log"
    limits = {"PERFKIT_MAX_KERNELS": "2", "PERFKIT_WARM_KERNELS": "0"}
    running = start(folder, log, arguments=("--token", TOKEN), token=TOKEN, **limits)
    yield running
    stop(running)


async def stranger(server: Server) -> list[int]:
    """Who has no token, or guesses one."""
    asked = [Visitor(server.url).ask(path) for path in ("00_start_here", "perfkit/health", "api/kernels")]
    guessed = [Visitor(server.url, token=guess).ask("00_start_here") for guess in ("guess-number-1", TOKEN[:-1])]
    return [(await reply).code for reply in (*asked, *guessed)]


async def foreign_page(server: Server) -> list[int]:
    """A page of another site in the browser of somebody who has the token."""
    codes = []
    for site, mode, dest in FOREIGN:
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        codes.append((await Visitor(server.url, token=TOKEN).ask("00_start_here", headers=headers)).code)
    for path in ("api/kernels", "voila/api/shutdown/11111111-1111-1111-1111-111111111111"):
        visitor = Visitor(server.url)
        await visitor.ask(f"00_nothing?token={TOKEN}")  # its cookie is there, the header is not a foreign page's to set
        reply = await visitor.ask(path, method="POST", body=b"{}", headers={"Origin": ELSEWHERE})
        codes.append(reply.code)
    return codes


async def foreign_socket(server: Server) -> list[int]:
    """A socket to an open page's kernel, from another site."""
    visitor, browser = Visitor(server.url, token=TOKEN), Visitor(server.url)
    assert await visitor.open("00_start_here") == 200
    assert (await browser.ask(f"00_start_here?token={TOKEN}")).code == 302
    assert (await browser.ask("perfkit/health")).code == 200
    codes = []
    for path in (f"api/kernels/{visitor.kernel_id}/channels", f"perfkit/presence/{visitor.kernel_id}"):
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"Cookie": cookie, "Origin": ELSEWHERE}  # no page can set a socket's other headers
        try:
            await websocket_connect(HTTPRequest(f"{server.url.replace('http', 'ws', 1)}{path}", headers=headers))
            codes.append(200)
        except HTTPClientError as error:
            codes.append(error.code)
    await visitor.leave("beacon")
    return codes


async def climbing(server: Server) -> list[int]:
    """Paths out of what is served, sent as they are."""
    host, port = server.url.split("/")[2].split(":")
    codes = []
    for path in climbing_paths():
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            head = f"GET /{path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: token {TOKEN}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            reply = b"".join(iter(lambda open_=connection: open_.recv(65536), b""))
        assert b"root:" not in reply
        assert b"the secret of" not in reply
        codes.append(int(reply.split()[1]))
    return codes


async def crowd(server: Server) -> list[int]:
    """More pages than there is room for, and all from one."""
    visitors = [Visitor(server.url, token=TOKEN) for _ in range(6)]
    codes = await asyncio.gather(*(visitor.open("00_start_here") for visitor in visitors))
    await asyncio.gather(*(visitor.leave("beacon") for visitor in visitors))
    assert 200 in codes
    return [code for code in codes if code != 200]


async def wrong_message(server: Server) -> list[int]:
    """A page's own socket, with a message that no page sends: code."""
    visitor = Visitor(server.url, token=TOKEN)
    assert await visitor.open("00_start_here") == 200
    channels = visitor.sockets[1]

    def message(kind: str, **content: object) -> str:
        header = {"msg_id": kind, "msg_type": kind, "username": "", "session": "s", "version": "5.3", "date": ""}
        return json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "content": content})

    await channels.write_message(message("execute_request", code=f"open({str(server.project / 'written')!r}, 'w')", silent=False))
    for _ in range(300):
        if "execute_request" in server.log.read_text():
            break
        await asyncio.sleep(0.1)
    await visitor.leave("beacon")
    assert not (server.project / "written").exists()
    return []


ATTACKS = {
    stranger: ({302, 401, 403, 404}, "wrong token or code"),
    foreign_page: ({403, 404}, "403"),
    foreign_socket: ({403}, "403"),
    climbing: ({301, 302, 400, 403, 404}, "404"),
    crowd: ({503}, "refused"),
    wrong_message: (set(), "execute_request"),
}
"""With the answers that refuse it, and a word of what the log says of it."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused_and_logged_and_the_next_visitor_is_served(server, attack):
    codes, word = ATTACKS[attack]
    before = len(server.log.read_text())
    answered = asyncio.run(attack(server))
    assert set(answered) <= codes, answered
    said = server.log.read_text()[before:]
    assert word in said, said[-3000:]
    assert f'File "{PACKAGE}' not in said, said[-3000:]
    assert TOKEN not in said

    async def next_one() -> int:
        visitor = Visitor(server.url, token=TOKEN)
        status = await visitor.open("00_start_here")
        await visitor.leave("beacon")
        return status

    server.wait_until(lambda health: health["pages"] == 0)
    assert asyncio.run(next_one()) == 200
    assert server.wait_until(lambda health: health["pages"] == 0)["mended"] == 0
