"""Visitors and faults of every kind: afterwards the server is what it was."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import psutil
import pytest

from perfkit.project.sample import demo
from tests.browser.app_server import start, stop
from tests.face.app.soak import soak
from tests.face.app.visitors import WAYS, Visitor

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sets limits of another process")
LIMIT, WARM = 4, 1


@pytest.fixture
def server(tmp_path):
    demo(tmp_path / "demo")
    limits = {"PERFKIT_MAX_KERNELS": str(LIMIT), "PERFKIT_WARM_KERNELS": str(WARM), "PERFKIT_KERNEL_MEMORY": "1GiB"}
    running = start(tmp_path / "demo", tmp_path / "server.log", **limits)
    yield running
    stop(running)


@needs_linux
@pytest.mark.slow
def test_after_trouble_of_every_kind_all_counts_are_where_they_were(server):
    result = soak(server, num_visitors=6, seconds=30, max_bytes=3 * 10**9)
    assert result.problems(limit=LIMIT, warm=WARM) == []
    assert result.answers[200] > 6
    assert {"kill_kernel", "kill_forker", "starve", "lock_log", "fill_disk"} <= set(result.faults)


@needs_linux
@pytest.mark.slow
def test_whichever_way_a_page_is_left_its_descriptors_come_back(server):
    """What the first visit opens for good, such as the database of signatures, is not counted; what each opens comes back."""

    async def visit(how: str) -> None:
        visitor = Visitor(server.url)
        assert await visitor.open("02_model_cost") == 200
        await visitor.leave(how)

    def settled(health: dict) -> bool:
        return (health["pages"], health["warm"], health["processes"]) == (0, WARM, WARM) and health["sockets"] <= 1

    server.wait_until(settled)
    asyncio.run(visit("beacon"))
    before = server.wait_until(settled)
    assert before["bounds"] in ("rlimits", "cgroup")
    for how in WAYS:
        for _ in range(2):
            asyncio.run(visit(how))
    # A handler that is still ending holds a few of them for a moment.
    server.wait_until(lambda health: settled(health) and health["descriptors"] <= before["descriptors"] + 1)


@needs_linux
@pytest.mark.slow
def test_after_the_process_that_kernels_come_from_is_killed_they_wait_again_and_its_handles_are_gone(server):
    """Nobody asks for a page meanwhile: what was lost comes back by itself."""
    waiting = lambda health: health["warm"] == health["processes"] == WARM  # noqa: E731
    server.wait_until(waiting)
    root = psutil.Process(server.process.pid)
    before = num_handles(root.pid)
    (forker,) = root.children()
    forker.kill()
    server.wait_until(lambda health: health["warm"] == 0)
    server.wait_until(waiting)
    assert num_handles(root.pid) == before == WARM


def num_handles(pid: int) -> int:
    """Handles of processes that a process holds: one a kernel."""
    return sum("pidfd" in str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())


TRIES = """
import json, pathlib
tried = {}
for name in ("/etc/passwd", "SECRET"):
    try:
        tried[name] = pathlib.Path(name).read_text()[:9]
    except Exception as error:
        tried[name] = type(error).__name__
print("TRIED", json.dumps(list(tried.values())))
"""


@pytest.mark.slow
def test_the_kernel_of_a_page_is_confined_warm_or_not(tmp_path):
    """A page that opens what it must not: run once by a kernel of its own, once by one that had been waiting."""
    project, pages, secret = tmp_path / "project", tmp_path / "pages", Path.home() / ".perfkit-test-secret"
    project.mkdir()
    pages.mkdir()
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": TRIES.replace("SECRET", str(secret)),
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (pages / "00_start_here.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )
    secret.write_text("of another")
    server = start(project, tmp_path / "server.log", PERFKIT_PAGES=str(pages), PERFKIT_ROOTS="", PERFKIT_WARM_KERNELS="1")
    try:
        for _ in range(2):
            page = asyncio.run(Visitor(server.url).ask("00_start_here")).body.decode()
            assert "TRIED [&#34;InputError&#34;, &#34;InputError&#34;]" in page, page[-1500:]
            server.wait_until(lambda health: health["warm"] == 1)
    finally:
        stop(server)
        secret.unlink()
