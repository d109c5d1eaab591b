"""A class at once: students in real browsers on one server, each answering exercises; how long a check takes.

`python -m benchmarks.ui.bench_class [--students 20] [--answers 5]` prints median and 95 % of the time from the click on Check to
the sentence, lost rows, and rows that belong to another student. It fails on the last two, and above 300 ms.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Browser, Page, sync_playwright

from perfkit.project.sample import demo
from tests.browser import app_server

CHROMIUM = "/usr/bin/chromium"
LIMIT_MS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--answers", type=int, default=5)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    project = demo(folder / "lesson").folder
    cap = str(arguments.students + 4)
    server = app_server.start(project, folder / "log.txt", arguments=("--class", "--class-admin", "x"), PERFKIT_MAX_KERNELS=cap)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            pages = {name: opened(browser, server.url, name) for name in names(arguments.students)}
            times_ms = [check(page, round_) for round_ in range(arguments.answers) for page in pages.values()]
    finally:
        server.process.send_signal(2)
        server.process.wait(30)
    return report(times_ms, project / "class.sqlite", arguments)


def names(count: int) -> list[str]:
    return [f"s{number:02}" for number in range(1, count + 1)]


def opened(browser: Browser, url: str, name: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(f"{url}40_class#student={name}", timeout=120_000)
    page.wait_for_function(app_server.READY, timeout=120_000)
    page.get_by_role("heading", name="The exercise", exact=True).wait_for(timeout=60_000)
    return page


def check(page: Page, round_: int) -> float:
    """One wrong answer, different each time; ms from the click to the sentence."""
    panel = page.locator('[data-panel="the-exercise"]')
    box = panel.get_by_label("Your answer").locator("visible=true").first
    box.fill(str(1000 + round_))
    box.blur()
    panel.locator(".pk-outcome").evaluate("node => { node.textContent = '' }")
    start = time.perf_counter()
    panel.get_by_role("button", name="Check").click()
    page.wait_for_function("() => document.querySelector('[data-panel=\"the-exercise\"] .pk-outcome').textContent !== ''")
    return (time.perf_counter() - start) * 1000


def report(times_ms: list[float], database: Path, arguments: argparse.Namespace) -> int:
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT student, COUNT(*) FROM attempt WHERE answer != '' GROUP BY student").fetchall()
    connection.close()
    expected = dict.fromkeys(names(arguments.students), arguments.answers)
    at_95 = quantiles(times_ms, n=20)[-1] if len(times_ms) > 1 else times_ms[0]
    print(f"{len(times_ms)} checks by {arguments.students} students: median {median(times_ms):.0f} ms, 95 % {at_95:.0f} ms")
    if dict(rows) != expected:
        print(f"rows differ: {dict(rows)}")
        return 1
    return int(at_95 > LIMIT_MS)


if __name__ == "__main__":
    raise SystemExit(main())
