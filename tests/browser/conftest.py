"""A real browser on a real server: Chromium, the app on a free port, and pages that may not reach any other host.

`offline_page` is the page to use; `open_page(name)` opens a page of the app and waits until everything on it is drawn. The browser
is `CHROMIUM`, or one on PATH, or playwright's own; without one the tests are skipped, but fail where CI or
PERFKIT_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect

from tests.browser.app_server import Server, start, stop, wait_ready

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = Path(__file__).parent

expect.set_options(timeout=30_000)  # a slow machine is no failure; budgets are measured in benchmarks/ui


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All browser tests are marked."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


def find_chromium() -> str | None:
    """Path of a browser: `CHROMIUM`, or one on PATH."""
    return next((path for name in (os.environ.get("CHROMIUM", ""), *NAMES) if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> str:
    """Path of the browser."""
    own = playwright.chromium.executable_path
    found = find_chromium() or (own if own and Path(own).exists() else None)
    if found:
        return found
    message = "no Chromium: install one (Debian: apt-get install chromium) or set CHROMIUM to its path"
    if os.environ.get("CI") or os.environ.get("PERFKIT_REQUIRE_BROWSER"):
        pytest.fail(message)
    return pytest.skip(message)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict, chromium: str) -> dict:
    return {**browser_type_launch_args, "executable_path": chromium, "args": ARGUMENTS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict) -> dict:
    return {**browser_context_args, "viewport": {"width": 1280, "height": 720}, "reduced_motion": "reduce"}


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[Callable[..., Server]]:
    """`start_server(project, PERFKIT_...="...")`: a server that ends with the session, or by `stop(server)`."""
    servers: list[Server] = []

    def launch(project: Path, *arguments: str, **environment: str) -> Server:
        log = tmp_path_factory.mktemp("server") / "server.log"
        servers.append(start(project, log, arguments=arguments, **environment))
        return servers[-1]

    yield launch
    for server in servers:
        stop(server)


@pytest.fixture(scope="module")
def demo_server(tmp_path_factory: pytest.TempPathFactory, start_server: Callable[..., Server]) -> Iterator[Server]:
    """The app with the bundled pages on a fresh copy of the sample project.

    Every module has its own: what one opens, sends or adds is what the pages of the next would show, and which module
    comes next in a process is chance.
    """
    project = tmp_path_factory.mktemp("projects") / "demo"
    subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
    server = start_server(project)
    yield server
    stop(server)


@pytest.fixture
def make_offline(browser: Browser, browser_context_args: dict) -> Iterator[Callable[..., Page]]:
    """`make_offline(server)`: a page in a context of its own that reaches nothing but `server`; see `offline_page`."""
    contexts, problems = [], []

    def open_one(server: Server, **context_args: object) -> Page:
        context = browser.new_context(**{**browser_context_args, **context_args})
        contexts.append(context)

        # Watched, not routed: what is routed is never taken from the browser's store, and its scripts are read anew on every page.
        def check(asked) -> None:
            if not asked.url.startswith((server.url, server.url.replace("http", "ws", 1), "data:", "blob:")):
                problems.append(f"request to {asked.url}")

        context.on("request", check)
        page = context.new_page()
        page.on("websocket", check)
        page.problems = problems
        page.on("console", lambda message: message.type == "error" and problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def offline_page(make_offline: Callable[..., Page], demo_server: Server) -> Page:
    """A page on the demo server. A request to another origin, a console error or an uncaught error fails the test."""
    return make_offline(demo_server)


@pytest.fixture
def open_page(offline_page: Page, demo_server: Server) -> Callable[..., Page]:
    """`open_page("11_step_breakdown", "rank=3")`: that page of the app, drawn, with what follows # in its address."""

    def open_one(name: str, values: str = "") -> Page:
        offline_page.goto(f"{demo_server.url}{name}{'#' + values if values else ''}")
        wait_ready(offline_page)
        return offline_page

    return open_one
