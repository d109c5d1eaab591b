"""Timeline: frames, time to sharp tiles and kernel memory for a generated run of 10 million events, in Chromium.

    .venv/bin/python -m benchmarks.ui.bench_timeline [millions] [frames] [folder]

Targets: p95 of a frame 33 ms, p95 from a key to sharp tiles 60 ms, first picture of a cached run 2 s, kernel 400 MB. Wall times: to
be read on an idle machine. With a folder, the run and the cache stay there for the next time; converting 10 million events takes a
minute of processor time, in which the page has to be open with a progress bar. The first picture counts from the request of the
page, so that of a warm kernel is in it. Nothing may be lost: the tiles of every width are summed and compared with the store.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.ui.bench_visitors import KERNEL_ID, kernels_of
from perfkit.face.widgets.timelines import _tiles as wire
from perfkit.face.widgets.timelines._grid import MAX_TILES, MAX_WIDTH, width_ns
from perfkit.face.widgets.timelines.data import Timeline, open_timeline
from perfkit.project import create_project
from perfkit.record.load import load
from tests.browser import app_server
from tests.browser.conftest import ARGUMENTS, find_chromium

KEYS = "wwwwwwddddaaaasswwwwddssssss"
EPOCH_US = 1_700_000_000_000_000
NUM_STREAMS = 8
EVENTS_A_WRITE = 100_000
CACHED_OPENINGS = 5


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


def kernel_bytes(server: app_server.Server, page: Page) -> tuple[int, int]:
    """Peak and present memory of the process of a page's kernel."""
    pid = kernels_of(server)[page.evaluate(KERNEL_ID)]
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    peak, now = (int(lines[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))
    return peak, now


def first_picture(page: Page, url: str) -> tuple[float, float]:
    """Open the timeline of a run; seconds until the page is loaded, and until its lanes are drawn sharp for the first time."""
    began = time.perf_counter()
    page.goto(url, timeout=180_000)
    loaded_s = time.perf_counter() - began
    page.wait_for_function("performance.getEntriesByName('perfkit-picture').length > 0", timeout=600_000)
    return loaded_s, time.perf_counter() - began


def lost(timeline: Timeline) -> list[str]:
    """Widths at which the tiles of all units do not sum to the counts and busy times of the store; of those of at most 64 tiles."""
    start_ns, end_ns = timeline.span_ns
    wanted = [(sum(lane.count for lane in unit.lanes), sum(lane.busy_ns for lane in unit.lanes)) for unit in timeline.units]
    problems = []
    for width in range(MAX_WIDTH + 1):
        first, last = ((moment - timeline.base_ns) // width_ns(width) for moment in (start_ns, end_ns))
        if last - first >= MAX_TILES:
            continue
        header, buffers = wire.reply(timeline, {"width": width, "first": first, "last": last, "units": [*range(len(wanted))]})
        starts, counts, busy = (np.frombuffer(buffers[column], "<f8") for column in (0, 2, 3))
        sums = [[0, 0] for _ in wanted]
        for tile in header["tiles"]:
            part = slice(tile["begin"], tile["begin"] + tile["count"])
            own = starts[part] >= 0  # the others begin in an earlier tile
            sums[tile["unit"]][0] += int(counts[part][own].sum())
            sums[tile["unit"]][1] += int(busy[part][own].sum())
        problems += [f"width {width}, unit {unit}" for unit, pair in enumerate(wanted) if tuple(sums[unit]) != pair]
    return problems


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
        os.environ["PERFKIT_CACHE"] = str(folder / "cache")
        create_project(project, name="bench")
        if not (run / "rank0.json").exists():
            run.mkdir(parents=True)
            write_run(run, millions)
        print(f"{millions:g} million events, {(run / 'rank0.json').stat().st_size / 1e9:.2f} GB", flush=True)
        server = app_server.start(project, Path(name) / "server.log", PERFKIT_CACHE=str(folder / "cache"))
        try:
            found = in_browser(server, f"{server.url}14_timeline#run={run}", frames)
        finally:
            app_server.stop(server)
        for kind, target in (("frame", 33), ("sharp", 60)):
            times = sorted(found[kind])
            p95 = times[int(0.95 * (len(times) - 1))]
            print(
                f"{kind}: n {len(times)}, median {statistics.median(times):.1f} ms, p95 {p95:.1f} ms (target {target})", flush=True
            )
        problems = lost(open_timeline(load(run)))
        print(f"lost: {'; '.join(problems) or 'nothing, the tiles of every width sum to the store'}")


def in_browser(server: app_server.Server, url: str, frames: int) -> dict[str, list[float]]:
    """Open the page until its run is converted, then some times more, and press keys on the last one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        pictures = []
        for opening in range(1 + CACHED_OPENINGS):
            server.wait_until(lambda health: health["warm"] > 0, timeout_s=180)
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            loaded_s, picture_s = first_picture(page, url)
            peak, now = (size / 1e6 for size in kernel_bytes(server, page))
            what = "first opening, converts if need be" if not opening else "cached"
            print(
                f"{what}: page {loaded_s:.1f} s, picture {picture_s:.2f} s; kernel peak {peak:.0f} MB, now {now:.0f} MB", flush=True
            )
            pictures.append(picture_s)
            if opening < CACHED_OPENINGS:
                page.close()
        print(f"first picture of the cached run: median {statistics.median(pictures[1:]):.2f} s (target 2)", flush=True)
        before = cpu_s(server.process.pid)
        found = measure(page, frames)
        used = cpu_s(server.process.pid) - before
        print(f"server and kernel: {1000 * used / frames:.0f} ms of processor time a key")
        peak, now = (size / 1e6 for size in kernel_bytes(server, page))
        print(f"kernel memory: peak {peak:.0f} MB, now {now:.0f} MB (target 400)", flush=True)
        return found


if __name__ == "__main__":
    main()
