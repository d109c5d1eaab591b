"""Pages in a real browser: cold start of each page, and slider to redrawn chart, as ratios to their budgets.

The budgets are 5 s (request to last widget drawn, every page in a browser context of its own) and 100 ms (a slider's change to the
patched chart, server and client). Run alone: other work on the machine is measured too.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.app_server import Server, start, stop, wait_ready
from tests.browser.conftest import ARGUMENTS, find_chromium
from tests.notebook_format import pages

ROUNDS = 7
COLD_START_S = 5.0
SLIDER_MS = 100.0
REDRAWS = "performance.getEntriesByName('perfkit-redraw').map((entry) => entry.duration)"


def cold_start_s(page: Page, server: Server, name: str) -> float:
    """Seconds from the request to the last widget drawn."""
    begin = time.perf_counter()
    page.goto(f"{server.url}{name}", timeout=120_000)
    wait_ready(page, timeout_s=120)
    return time.perf_counter() - begin


def slider_ms(page: Page, label: str, steps: int = 25) -> list[float]:
    """Milliseconds from each key press on a slider to the redrawn chart."""
    page.get_by_label(label, exact=True).focus()
    for _ in range(steps):
        before = len(page.evaluate(REDRAWS))
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"({REDRAWS}).length > {before}")
    durations: list[float] = page.evaluate(REDRAWS)
    return durations[-steps:]


def report(what: str, median: float, budget: float, unit: str, rest: str) -> None:
    """Print one figure with its share of the budget."""
    print(f"{what}: median {median:.3g} {unit}, {median / budget:.2f} of the budget; {rest}", flush=True)


def main() -> None:
    """Print one line a page and one for the slider."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        project = Path(temporary) / "demo"
        subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
        server = start(project, Path(temporary) / "server.log")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            for name in [path.stem for path in pages()]:
                times = []
                for _ in range(ROUNDS):
                    context = browser.new_context()
                    page = context.new_page()
                    times.append(cold_start_s(page, server, name))
                    page.close(run_before_unload=True)
                    context.close()
                    time.sleep(1.0)
                median = statistics.median(times)
                report(f"cold start of {name}", median, COLD_START_S, "s", f"longest {max(times):.2f} s")
            page = browser.new_page()
            cold_start_s(page, server, "02_model_cost")
            times = slider_ms(page, "Layers")
            median, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
            report("slider to redrawn chart", median, SLIDER_MS, "ms", f"95th percentile {p95:.0f} ms")
        finally:
            browser.close()
            stop(server)


if __name__ == "__main__":
    main()
