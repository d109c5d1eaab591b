"""The server without a browser: what it refuses, how it counts kernels, and what its rail shows."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tornado.netutil import bind_sockets
from tornado.web import Application

from perfkit.core.errors import InputError
from perfkit.core.resources import pages
from perfkit.face.app import handlers, server
from perfkit.face.app.access import access_to
from perfkit.face.app.kernels import PageKernels, PageStart
from perfkit.face.app.navigation import navigation
from perfkit.face.app.room import CONNECTION_RESERVE, Room, room
from perfkit.face.app.server import MAX_MESSAGE_BYTES, _configuration, serve
from perfkit.face.app.start import Start


def write_page(folder, name, *cells):
    document = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells], "nbformat": 4}
    (folder / f"{name}.ipynb").write_text(json.dumps(document))


def test_a_port_that_is_taken_is_said_with_the_next_one(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=rf"{port} is taken by another program; try --port {port + 1}"):
            serve(tmp_path, port=port)


@pytest.mark.parametrize("port", [0, -1, 70_000])
def test_a_number_that_is_no_port_is_refused(tmp_path, port):
    with pytest.raises(InputError, match=f"{port} is no port"):
        serve(tmp_path, port=port)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or folder; `perfkit demo FOLDER`"):
        serve(tmp_path / "gone")


def test_a_wrong_limit_is_told_before_the_first_page(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_MAX_KERNELS", "many")
    with pytest.raises(InputError, match="PERFKIT_MAX_KERNELS = 'many'"):
        serve(tmp_path)


def test_warm_kernels_take_no_place_from_visitors(monkeypatch):
    monkeypatch.setenv("PERFKIT_MAX_KERNELS", "2")
    kernels = PageKernels()
    monkeypatch.setattr(kernels, "list_kernel_ids", lambda: ["page", "warm", "warming"])
    kernels._warm.append("warm")
    kernels._warming.add("warming")
    assert (kernels.num_pages, kernels.shortage("")) == (1, "")
    kernels.take_place(PageStart())
    assert (kernels.num_pages, kernels.shortage("")) == (2, "pages")


def test_the_rail_comes_from_the_folder_alone(tmp_path):
    write_page(tmp_path, "00_start_here", ("markdown", "# Where am I?\n\nWords"))
    write_page(tmp_path, "11_steps", ("code", "# not a title"), ("markdown", ["## no\n", "# Where did it go?"]))
    write_page(tmp_path, "30_case")
    write_page(tmp_path, "notes")
    rail = navigation(tmp_path, "11_steps")
    assert [(group, [page.title for page in members]) for group, members in rail.groups] == [
        ("", ["Where am I?"]),
        ("Find", ["Where did it go?"]),
        ("Learn", ["Case"]),
    ]
    assert rail.current is not None
    assert (rail.previous.name, rail.current.name, rail.following.name) == ("00_start_here", "11_steps", "30_case")
    assert navigation(tmp_path, "gone").current is None
    for name in ("10_load", "19_dryrun"):
        write_page(tmp_path, name)
    assert [navigation(tmp_path, name).following.name for name in ("10_load", "19_dryrun", "11_steps")] == [
        "19_dryrun",
        "11_steps",
        "30_case",
    ]
    assert navigation(tmp_path, "00_start_here").previous is None


def test_the_bundled_pages_have_a_question_as_title():
    found = pages()
    assert found
    assert found[0].name == "00_start_here"
    assert all(page.title.endswith("?") for page in found), [page.title for page in found]


def test_only_named_assets_are_served():
    with pytest.raises(Exception, match="404"):
        handlers.AssetHandler.get_absolute_path("", "../server.py")
    for name in handlers.ASSETS:
        assert handlers.ASSETS[name].is_file()
        assert handlers.asset_url(name).startswith(f"perfkit/static/{name}?v=")


def test_a_damaged_project_still_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    (tmp_path / "perfkit.toml").write_text("name = [")
    assert handlers.project_name(tmp_path) == tmp_path.name
    assert handlers.project_name(None) == ""


def test_an_upload_may_be_larger_than_tornado_allows_by_itself():
    assert MAX_MESSAGE_BYTES > 200 * 2**20


def test_a_browser_that_is_busy_for_two_minutes_keeps_its_page_and_a_proxy_its_connection():
    settings = _configuration(8866, access_to("127.0.0.1"), Start(project=Path()), shared=False)["Voila"]["tornado_settings"]
    assert settings["ws_ping_timeout"] > 120_000
    assert settings["ws_ping_interval"] < 60_000


def test_who_finds_no_room_hears_so_before_the_connection_ends(monkeypatch):
    """Twelve at once, with a request that the server does not want: each answer must survive the end of its connection."""
    monkeypatch.setattr(server, "room", lambda: Room(2**40, 1024 - CONNECTION_RESERVE, 1024))

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 4000 + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async def all_answers() -> list[bytes]:
        connections = server.Connections(Application())
        [listener] = bind_sockets(0, "127.0.0.1")
        connections.add_sockets([listener])
        try:
            return await asyncio.gather(*(ask(listener.getsockname()[1]) for _ in range(server.MAX_REFUSING)))
        finally:
            connections.stop()

    assert set(asyncio.run(all_answers())) == {server.REFUSED}


def test_a_process_that_has_no_descriptor_left_knows_that_it_has_no_room():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 8, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        assert not room().accepts_connections
        assert room().shortage == "descriptors"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


INTERRUPTED = """
import os, signal, sys, time
from tornado.ioloop import IOLoop
from perfkit.face.app import server

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

begin = server.App.begin

def begin_and_be_interrupted(app):
    begin(app)
    IOLoop.current().call_later(0.1, Last)

server.App.begin = begin_and_be_interrupted
server.serve(sys.argv[1], port=int(sys.argv[2]), no_token=True)
print("ended in order")
"""


def test_an_interrupt_that_comes_while_python_tidies_up_ends_the_server_in_order(tmp_path):
    """As an exception it would be dropped in a finalizer, and the server would go on."""
    with bind_sockets(0, "127.0.0.1")[0] as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(port)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True, check=True)
    assert ended.stdout.endswith("ended in order\n")
