"""Pages of recordings that are no sample, at every width; in a project of their own, since page 10 makes its own what it opens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.test_pages import (
    CONTROLS_OVERLAP,
    FIRST_SIGHT,
    FIRST_SIGHT_PX,
    HEADER_OVERLAPS,
    LAYOUT_SHIFT,
    LINES_OF_WAITING,
    SHOWN_ANYWAY_MS,
    USED_WIDTH,
    unreadable,
)
from tests.notebook_format import pages

OpenPage = Callable[..., Page]
TRACES = Path(__file__).parents[1] / "data" / "traces"
ABOUT_RECORDINGS = tuple(path.stem for path in pages() if re.match(r"00|1[0-7]|20", path.stem))
SETTLED = """() => !document.querySelector('.pk-panel[data-state="loading"]')"""
"""No step is computed anew: while one is, its line of progress stands above the chart that it had."""
OF_ONE_S_OWN = ("torch_npu_pp2dp2", "kineto_h100", "mindinsight/run_3")


@pytest.mark.parametrize("recording", OF_ONE_S_OWN)
def test_pages_of_a_recording_of_one_s_own_fit_the_widest_and_the_narrowest_window(open_page: OpenPage, recording: str):
    for name in ABOUT_RECORDINGS:
        page = open_page(name, f"run={TRACES / recording}")
        # The sample, which is drawn first, gives way: where it has charts, the recording may say that they were not measured.
        moved = page.evaluate(LAYOUT_SHIFT)
        assert moved <= 0.15 or page.evaluate("performance.now()") > SHOWN_ANYWAY_MS, (name, moved)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(SETTLED)
        first = page.evaluate(FIRST_SIGHT)
        assert first is None or first <= FIRST_SIGHT_PX, name
        assert set(page.evaluate(LINES_OF_WAITING)) <= {1}, name
        for width, height in ((1920, 1080), (390, 844), (1280, 720)):
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(HEADER_OVERLAPS) == page.evaluate(CONTROLS_OVERLAP) == [], (name, width)
            assert width < 1900 or page.evaluate(USED_WIDTH) >= 0.92, (name, width)
            assert unreadable(page) == [], (name, width)
