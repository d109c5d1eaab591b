"""Visitors at once: each opens a page of the app in a browser context of its own; memory of every page's processes, and who stays.

example: python -m benchmarks.ui.bench_visitors --visitors 20

Prints for each visitor the memory of the kernel and its workers: RSS, and PSS, which counts a page that n processes have in common
as 1/n, so that its sum is what the machine needs. Then how long after the visitors left the last kernel was gone. Fails on an error
on a page or in the server's log, above 200 MB of PSS, and above 30 s.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.browser.app_server import READY, Server, start, stop, wait_ready
from tests.browser.conftest import ARGUMENTS, find_chromium
from tests.notebook_format import pages

LIMIT_BYTES = 200 * 10**6
GONE_S = 30.0
DRAWN_S = 300.0
KERNEL_ID = "perfkitPage.kernel.then(({ id }) => id)"
FAILED = "[...document.querySelectorAll('[data-state=error], .cell-error, #ended:not([hidden])')].map(node => node.innerText)"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one or several processes."""

    rss_bytes: int
    pss_bytes: int

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss_bytes + other.rss_bytes, self.pss_bytes + other.pss_bytes)


def memory_of(pid: int) -> Memory:
    """What a process holds; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return Memory(0, 0)
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return Memory(sizes["Rss"], sizes["Pss"])


def children_of(pid: int) -> list[int]:
    """Processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text(encoding="ascii").split()]


def descendants_of(pid: int) -> Iterable[int]:
    """A process and all that it started, themselves or through others."""
    yield pid
    for child in children_of(pid):
        yield from descendants_of(child)


def kernels_of(server: Server) -> dict[str, int]:
    """Process of each kernel by the kernel's id, which is part of the names of the sockets that it listens on."""
    sockets = {}
    for line in Path("/proc/net/unix").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and (found := re.search(r"kernel-([0-9a-f-]{36})-ipc-\d+$", fields[7])):
            sockets[f"socket:[{fields[6]}]"] = found[1]
    owners = {}
    for pid in descendants_of(server.process.pid):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if (kernel_id := sockets.get(str(handle.readlink()))) is not None and pid != server.process.pid:
                    owners[kernel_id] = pid
    return owners


def visit(browser: Browser, server: Server, names: list[str]) -> list[tuple[str, Page]]:
    """Open all pages at once, each by a visitor of its own, and wait until all are drawn."""
    opened = [(name, browser.new_context(viewport={"width": 1280, "height": 720}).new_page()) for name in names]
    for name, page in opened:
        page.goto(f"{server.url}{name}", wait_until="commit", timeout=300_000)
    for _, page in opened:
        with contextlib.suppress(PlaywrightTimeout):  # told by `failed_pages`
            wait_ready(page, timeout_s=DRAWN_S)
    return opened


def failed_pages(opened: list[tuple[str, Page]]) -> list[str]:
    """Pages that show an error, that their kernel has ended, or that are not drawn yet."""
    errors = [f"{name}: {text}" for name, page in opened for text in page.evaluate(FAILED)]
    return errors + [f"{name}: not drawn after {DRAWN_S:.0f} s" for name, page in opened if not page.evaluate(READY)]


def leave(server: Server, opened: list[tuple[str, Page]]) -> float:
    """Seconds from the closing of the last page until no kernel serves a page."""
    for _, page in opened:
        page.close(run_before_unload=True)
    begin = time.monotonic()
    server.wait_until(lambda health: health["pages"] == 0, timeout_s=120)
    return time.monotonic() - begin


def measured(server: Server, opened: list[tuple[str, Page]]) -> list[tuple[str, Memory]]:
    """Memory of each visitor's processes, and one line for it."""
    pids = kernels_of(server)
    rows = []
    for name, page in opened:
        memory = sum((memory_of(pid) for pid in descendants_of(pids[page.evaluate(KERNEL_ID)])), Memory(0, 0))
        rows.append((name, memory))
        print(f"{name}: {memory.rss_bytes / 1e6:.0f} MB of RSS, {memory.pss_bytes / 1e6:.0f} MB of PSS", flush=True)
    return rows


def main() -> int:
    """Print one line a visitor and one for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--pages", nargs="*", default=[path.stem for path in pages()], help="opened in turn; default: all")
    arguments = parser.parse_args()
    names = [arguments.pages[number % len(arguments.pages)] for number in range(arguments.visitors)]
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        project = Path(temporary) / "demo"
        subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
        server = start(project, Path(temporary) / "server.log", PERFKIT_MAX_KERNELS=str(arguments.visitors))
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            begin = time.monotonic()
            opened = visit(browser, server, names)
            drawn_s = time.monotonic() - begin
            rows = measured(server, opened)
            errors = failed_pages(opened)
            gone_s = leave(server, opened)
        finally:
            browser.close()
            stop(server)
        errors += [line for line in server.log.read_text().splitlines() if " ERROR " in line or "Traceback" in line]
    most = max(memory.pss_bytes for _, memory in rows)
    print(
        f"{len(rows)} visitors, all drawn after {drawn_s:.0f} s: at most {most / 1e6:.0f} MB, {len(errors)} errors",
        *errors,
        sep="\n",
    )
    print(f"kernels gone after {gone_s:.1f} s")
    return int(most > LIMIT_BYTES or bool(errors) or gone_s > GONE_S)


if __name__ == "__main__":
    raise SystemExit(main())
