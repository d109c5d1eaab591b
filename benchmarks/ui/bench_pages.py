"""Pages in a real browser: opening each page, and slider to redrawn chart, as ratios to their budgets.

example: python -m benchmarks.ui.bench_pages --rounds 5

The budgets are 4 s for a cold page and 2.5 s for one with a kernel that waits for it (request to last widget drawn, every page in
a browser context of its own, so that nothing is in the browser's cache), and 50 ms for a slider (key press to redrawn chart, server
and client, 95th percentile), for every slider of the calculators, moved from value to value. Run alone: other work is measured too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.browser.app_server import Server, start, stop, wait_ready
from tests.browser.conftest import ARGUMENTS, find_chromium
from tests.notebook_format import pages

COLD_S, WARM_S = 4.0, 2.5
SETTLED_S = 1.0
NUM_WARM = 2
SLIDER_MS = 50.0
KEY_PRESSES = 40
CALCULATORS = ("01_baseline", "02_model_cost", "03_parallel_strategy", "04_memory", "05_recompute", "06_pipeline_balance")
SLIDERS = "section[data-panel] [data-control] input[type=range]:visible"
REDRAWS = "performance.getEntriesByName('perfkit-redraw').map((entry) => entry.duration)"
ANSWERS = REDRAWS.replace("redraw", "answer")


def opening_s(page: Page, server: Server, name: str) -> float:
    """Seconds from the request to the last widget drawn."""
    begin = time.perf_counter()
    page.goto(f"{server.url}{name}", timeout=120_000)
    wait_ready(page, timeout_s=120)
    return time.perf_counter() - begin


def num_sliders(page: Page) -> int:
    """How many sliders the page shows."""
    return page.locator(SLIDERS).count()


def swept_ms(page: Page, index: int) -> tuple[str, list[float], float]:
    """A slider's name, milliseconds from each key press to the redrawn charts, and the median until the answer is in the browser.

    It goes on to new values and turns where there is nothing more, or where a plan is impossible, which is not counted.
    """
    slider = page.locator(SLIDERS).nth(index)
    name = "/".join(
        slider.evaluate("node => [node.closest('[data-panel]').dataset.panel, node.closest('[data-control]').dataset.control]")
    )
    slider.focus()
    before = len(page.evaluate(ANSWERS))
    found, (key, other) = [], ("ArrowRight", "ArrowLeft")
    for _ in range(KEY_PRESSES):
        duration = redraw_ms(page, key)
        if duration is None or slider.evaluate("node => node.closest('[data-panel]').dataset.state") != "result":
            key, other = other, key
        else:
            found.append(duration)
    return name, found, statistics.median(page.evaluate(ANSWERS)[before:] or [0.0])


def redraw_ms(page: Page, key: str) -> float | None:
    """One key press on the focused control to the redrawn chart; None if it changed nothing."""
    before = len(page.evaluate(REDRAWS))
    page.keyboard.press(key)
    try:
        page.wait_for_function(f"({REDRAWS}).length > {before}", timeout=1500)
    except PlaywrightTimeout:
        return None
    durations: list[float] = page.evaluate(REDRAWS)
    return durations[before]


def report(what: str, median: float, budget: float, unit: str, rest: str) -> None:
    """Print one figure with its share of the budget."""
    print(f"{what}: median {median:.3g} {unit}, {median / budget:.2f} of the budget; {rest}", flush=True)


def measure_openings(browser: Browser, server: Server, rounds: int, *, num_warm: int) -> None:
    """Print one line a page and one for all, with `num_warm` kernels that wait whenever a page is asked for."""
    kind, budget = ("warm", WARM_S) if num_warm else ("cold", COLD_S)
    medians = []
    for name in [path.stem for path in pages()]:
        times = []
        for _ in range(rounds):
            server.wait_until(lambda health: health["warm"] == num_warm and health["pages"] == 0)
            time.sleep(SETTLED_S)
            context = browser.new_context()
            page = context.new_page()
            times.append(opening_s(page, server, name))
            page.close(run_before_unload=True)
            context.close()
        medians.append(statistics.median(times))
        report(f"{kind} {name}", medians[-1], budget, "s", f"longest {max(times):.2f} s")
    report(f"{kind} pages", statistics.median(medians), budget, "s", f"slowest page {max(medians):.2f} s")


def settled_page(browser: Browser, server: Server, name: str) -> Page:
    """A page with all its widgets, once the server has the next kernels ready."""
    page = browser.new_page()
    opening_s(page, server, name)
    server.wait_until(lambda health: health["warm"] == NUM_WARM and health["pages"] == 1)
    time.sleep(SETTLED_S)
    return page


def measure_sliders(browser: Browser, server: Server) -> None:
    """Print one line a slider of the calculators, each on a page as it opens: 95th percentile, and median."""
    for name in CALCULATORS:
        page = settled_page(browser, server, name)
        for index in range(num_sliders(page)):
            if index:
                page.close(run_before_unload=True)
                page = settled_page(browser, server, name)
            slider, times, answer_ms = swept_ms(page, index)
            if len(times) < 2:
                print(f"{name} {slider}: no other value is possible", flush=True)
                continue
            p95, median = statistics.quantiles(times, n=20)[-1], statistics.median(times)
            part = f"of them {answer_ms:.0f} until the answer is in the browser"
            share = p95 / SLIDER_MS
            print(
                f"{name} {slider}: 95 % of {len(times)} in {p95:.0f} ms, {share:.2f} of the budget; median {median:.0f} ms, {part}",
                flush=True,
            )
        page.close(run_before_unload=True)


def main() -> None:
    """Print one line a page and one a slider."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sliders", action="store_true", help="measure the sliders alone")
    parser.add_argument("--rounds", type=int, default=5, help="openings of each page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        project = Path(temporary) / "demo"
        subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        for num_warm in (NUM_WARM,) if arguments.sliders else (0, NUM_WARM):
            server = start(project, Path(temporary) / "server.log", PERFKIT_WARM_KERNELS=str(num_warm))
            try:
                if not arguments.sliders:
                    measure_openings(browser, server, arguments.rounds, num_warm=num_warm)
                if num_warm:
                    measure_sliders(browser, server)
            finally:
                stop(server)
        browser.close()


if __name__ == "__main__":
    main()
