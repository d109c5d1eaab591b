"""Timeline: frames, time to sharp tiles and kernel memory for a generated run of 10 million events, in Chromium.

    .venv/bin/python -m benchmarks.ui.bench_timeline [millions] [frames] [folder]

Targets: p95 of a frame 33 ms, p95 from a key to sharp tiles 60 ms, first picture of a cached run 2 s, kernel 400 MB. Wall times: to
be read on an idle machine. With a folder, the run and the cache stay there for the next time; converting 10 million events takes a
minute or two of processor time. The first picture counts from the request of the page, so that of a warm kernel is in it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.ui.bench_pages import ARGUMENTS
from perfkit.project import create_project
from tests.browser import app_server
from tests.browser.conftest import find_chromium

KEYS = "wwwwwwddddaaaasswwwwddssssss"
EPOCH_US = 1_700_000_000_000_000
NUM_STREAMS = 8
EVENTS_A_WRITE = 100_000


def write_run(folder: Path, millions: float) -> int:
    """A Kineto recording of `millions` million kernels on some streams, back to back with gaps, deterministic; gives its bytes."""
    random = np.random.default_rng(14)
    per_stream = int(millions * 1_000_000) // NUM_STREAMS
    path = folder / "rank0.json"
    with path.open("w", encoding="ascii") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n{}')
        for stream in range(NUM_STREAMS):
            durations = random.integers(1_000, 9_000, per_stream)
            starts = np.cumsum(durations + random.integers(0, 4_000, per_stream)) - durations
            for part in range(0, per_stream, EVENTS_A_WRITE):
                rows = zip(
                    starts[part : part + EVENTS_A_WRITE].tolist(), durations[part : part + EVENTS_A_WRITE].tolist(), strict=True
                )
                file.write("".join([_event(stream, at, start, length) for at, (start, length) in enumerate(rows)]))
        file.write("]}")
    return path.stat().st_size


def _event(stream: int, at: int, start_ns: int, length_ns: int) -> str:
    us, rest = divmod(start_ns, 1000)
    return (
        f',\n{{"ph":"X","cat":"kernel","name":"kernel_{at % 97}","pid":0,"tid":{stream},"ts":{EPOCH_US + us}.{rest:03},'
        f'"dur":{length_ns / 1000},"args":{{"stream":{stream},"device":0}}}}'
    )


def measure(page: Page, frames: int) -> dict[str, list[float]]:
    """Drawing times and times to sharp tiles in ms while keys are pressed."""
    page.locator(".pk-tl-canvas").focus()
    page.evaluate("performance.clearMeasures()")
    for number in range(frames):
        page.keyboard.press(KEYS[number % len(KEYS)])
        page.wait_for_timeout(40)
    page.wait_for_timeout(1000)
    read = "name => performance.getEntriesByName(name).map(entry => entry.duration)"
    return {name: page.evaluate(read, f"perfkit-{name}") for name in ("frame", "sharp")}


def kernel_bytes(server: app_server.Server) -> int:
    """The largest peak memory of the processes below the server."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            if int(lines["PPid"]) == server.process.pid:
                peaks.append(int(lines["VmRSS"].split()[0]) * 1024)
        except (OSError, KeyError, ValueError):
            continue
    return max(peaks)


def first_picture(page: Page, url: str) -> float:
    """Open the timeline of a run; how many seconds until its lanes are drawn sharp for the first time."""
    began = time.perf_counter()
    page.goto(url, timeout=180_000)
    page.wait_for_function("performance.getEntriesByName('perfkit-picture').length > 0", timeout=600_000)
    return time.perf_counter() - began


def cpu_s(pid: int) -> float:
    """Processor time of a process and of those below it that have ended or not."""
    children = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _stat(path)[1:2] == [str(pid)]]
    own = _stat(Path(f"/proc/{pid}/stat"))
    return sum(int(ticks) for ticks in own[11:15]) / 100 + sum(cpu_s(child) for child in children)


def _stat(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def main() -> None:
    """Generate, open, zoom and pan; print what was measured beside the targets."""
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    frames = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    with tempfile.TemporaryDirectory() as name:
        folder = Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else Path(name)
        run, project = folder / "run", Path(name) / "project"
        create_project(project, name="bench")
        if not (run / "rank0.json").exists():
            run.mkdir(parents=True)
            write_run(run, millions)
        size = (run / "rank0.json").stat().st_size
        print(f"{millions:g} million events, {size / 1e9:.2f} GB", flush=True)
        server = app_server.start(project, Path(name) / "server.log", PERFKIT_CACHE=str(folder / "cache"))
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
                for opening in ("first", "cached"):
                    page = browser.new_page(viewport={"width": 1280, "height": 720})
                    server.wait_until(lambda health: health["warm"] > 0)
                    took = first_picture(page, f"{server.url}14_timeline#run={run}")
                    sentence = page.locator(".pk-sentence").first.inner_text()[:60]
                    print(f"{opening} opening: {took:.1f} s to the first sharp picture (cached: target 2); {sentence}", flush=True)
                    if opening == "first":
                        page.close()
                before = cpu_s(server.process.pid)
                found = measure(page, frames)
                used = cpu_s(server.process.pid) - before
                print(f"server and kernel: {1000 * used / frames:.0f} ms of processor time a key")
                print(f"kernel memory {kernel_bytes(server) / 1e6:.0f} MB (target 400)")
        finally:
            app_server.stop(server)
    for kind, target in (("frame", 33), ("sharp", 60)):
        times = sorted(found[kind])
        p95 = times[int(0.95 * (len(times) - 1))]
        print(f"{kind}: n {len(times)}, median {statistics.median(times):.1f} ms, p95 {p95:.1f} ms (target {target})")


if __name__ == "__main__":
    main()
