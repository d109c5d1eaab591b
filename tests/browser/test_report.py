"""Reports from disk in a browser: charts drawn, nothing requested, nothing on the console, hostile names as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from perfkit.face.report import report
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo
from tests.browser.app_server import wait_ready

DATA = Path(__file__).resolve().parents[2] / "data"
HOSTILE = "<img src=x onerror=alert(1)></script>"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_report_opens_from_disk_and_requests_nothing(browser: Browser, tmp_path: Path, theme: str):
    folder = demo(tmp_path / "d").folder
    log = ExperimentLog(folder)
    log.start(HOSTILE, f"{HOSTILE} is only a name")
    target = tmp_path / "report.html"
    report(folder, target)
    page = browser.new_page(color_scheme=theme)
    said, requests, dialogs = [], [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(target.as_uri())
    wait_ready(page)
    assert page.locator("figure.pk-chart svg").count() == 2
    assert page.locator("h2").filter(has_text=HOSTILE).count() == 1
    assert page.locator("img").count() == 0
    assert (said, requests, dialogs) == ([], [target.as_uri()], [])
    page.get_by_role("button", name="Table").first.press("Enter")
    assert page.locator(".pk-chart-table tbody tr").count() == 7
    page.close()


def test_the_report_of_a_run_opens_from_disk(browser: Browser, tmp_path: Path):
    target = tmp_path / "report.html"
    report(DATA / "traces" / "torch_npu_2rank", target)
    page = browser.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(target.as_uri())
    wait_ready(page)
    assert page.locator("figure.pk-chart svg").count() == 2, "the step by rank, and where the step goes"
    assert said == []
    page.close()
