"""What browsers may do: no kernel for a foreign page, no path out of what is served, no script that was not sent."""

from __future__ import annotations

import asyncio
import re
import socket
from urllib.parse import quote

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from perfkit.face.app.web import entry, page_policy
from tests.browser.app_server import start, stop
from tests.face.app.test_confine import climbing_paths
from tests.face.app.visitors import Visitor

FOREIGN = [
    ("cross-site", "no-cors", "image"),
    ("cross-site", "no-cors", "script"),
    ("cross-site", "cors", "empty"),
    ("cross-site", "navigate", "iframe"),
    ("cross-site", "navigate", "embed"),
    ("cross-site", "navigate", "object"),
    ("same-site", "no-cors", "image"),
    ("same-site", "navigate", "iframe"),
]
"""Site, mode and destination of requests that a page of another origin can make without its visitor."""


def request(**headers: str) -> HTTPServerRequest:
    named = HTTPHeaders({name.replace("_", "-"): value for name, value in headers.items()} | {"Host": "here:1"})
    return HTTPServerRequest(method="GET", uri="/", headers=named, host="here:1")


@pytest.mark.parametrize(("site", "mode", "dest"), FOREIGN)
def test_a_foreign_page_cannot_start_a_kernel_by_itself(site, mode, dest):
    assert entry(request(Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest)) == "refused"


def test_a_link_leads_to_the_doorstep_and_the_visitor_goes_on():
    link = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert entry(request(Sec_Fetch_Site="cross-site", **link)) == "doorstep"
    assert entry(request(Sec_Fetch_Site="same-origin", **link)) == "page"
    assert entry(request(Sec_Fetch_Site="none", **link)) == "page"
    assert entry(request(Sec_Fetch_Site="none", Sec_Purpose="prefetch;prerender", **link)) == "refused"


def test_a_program_or_an_old_browser_is_known_by_where_it_comes_from():
    assert entry(request()) == "page"
    assert entry(request(Referer="http://here:1/00_start_here")) == "page"
    assert entry(request(Referer="http://evil.example/")) == "doorstep"
    assert entry(request(Origin="http://evil.example")) == "doorstep"


def test_the_policy_names_no_other_host():
    policy = page_policy("abc", "gpu-box:8866")
    assert "http" not in policy.replace("ws", "")
    assert "ws://gpu-box:8866" in policy
    assert "evil" not in page_policy("abc", "evil; script-src *")
    assert re.search(r"script-src [^;]*'nonce-abc'", policy)
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    (folder / "secret.txt").write_text("the secret of the project")
    running = start(folder, tmp_path_factory.mktemp("log") / "server.log", PERFKIT_MAX_KERNELS="2")
    yield running
    stop(running)


@pytest.mark.slow
def test_no_foreign_request_starts_a_kernel(server):
    async def try_all() -> list[int]:
        visitor, codes = Visitor(server.url), []
        for site, mode, dest in FOREIGN:
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
            codes.append((await visitor.ask("00_start_here", headers=headers)).code)
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        door = await visitor.ask("00_start_here?a=1", headers=link)
        assert b'href="/00_start_here?a=1"' in door.body
        return [*codes, door.code]

    assert asyncio.run(try_all()) == [403] * len(FOREIGN) + [200]
    assert server.health()["pages"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", climbing_paths())
def test_no_path_climbs_out_of_what_is_served(server, path):
    """Sent as it is: clients that tidy addresses would hide it."""
    host, port = server.url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"root:" not in reply
    assert re.match(rb"HTTP/1\.1 (301|302|400|403|404)", reply), reply[:200]
    assert b"/site-packages/" not in reply
    assert str(server.project).encode() not in reply


@pytest.mark.slow
def test_errors_and_pages_say_no_path_of_the_server_and_carry_the_policy(server):
    async def ask() -> None:
        visitor = Visitor(server.url)
        for path in ("99_nothing", "api/kernels/11111111-1111-1111-1111-111111111111", "voila/files/x", "nothing"):
            reply = await visitor.ask(path)
            assert reply.code in {403, 404}, path
            assert str(server.project).encode() not in reply.body, path
            assert b"Traceback" not in reply.body, path
        page = await visitor.ask("00_start_here")
        assert page.code == 200
        policy = page.headers["Content-Security-Policy"]
        nonce = re.search(r"'nonce-([\w-]+)'", policy)[1]
        inline = re.findall(rb"<script(?![^>]*application/json)([^>]*)>", page.body)
        assert inline
        assert all(f'nonce="{nonce}"'.encode() in attributes for attributes in inline)
        assert (await visitor.ask("00_start_here")).headers["Content-Security-Policy"] != policy

    asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["../../etc", "%2e%2e%2f%2e%2e%2fetc", "/etc", "another", "<b>x</b>"])
def test_a_project_that_is_not_served_is_refused_in_words(server, asked):
    before = server.health()["pages"]
    reply = asyncio.run(Visitor(server.url).ask(f"00_start_here?project={quote(asked, safe='%')}"))
    assert reply.code == 404
    assert b"This server opens one project, which is another one than the address names" in reply.body
    assert b"<b>x</b>" not in reply.body
    assert server.health()["pages"] <= before
