"""First sight: the first chart, table or timeline of every page begins within 340 px at 1280 x 800."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.browser.app_server import wait_ready
from tests.browser.conftest import Server
from tests.notebook_format import pages

HIGH = 340
FIRST = """() => {
  const all = [...document.querySelectorAll(".pk-chart, .pk-tl-stage, .pk-table:not(.pk-tiles)")];
  const tops = all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().top + scrollY);
  return tops.length ? Math.round(Math.min(...tops)) : null;
}"""
NO_CHART = {"40_class"}
"""Pages that first ask who is there."""


def test_the_first_chart_of_every_page_begins_in_the_upper_half(offline_page: Page, demo_server: Server):
    offline_page.set_viewport_size({"width": 1280, "height": 800})
    tops = {}
    for path in pages():
        offline_page.goto(f"{demo_server.url}{path.stem}")
        wait_ready(offline_page)
        tops[path.stem] = offline_page.evaluate(FIRST)
    late = {name: top for name, top in tops.items() if name not in NO_CHART and not (top is not None and top <= HIGH)}
    assert late == {}
