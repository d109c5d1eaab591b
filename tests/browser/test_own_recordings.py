"""Pages of recordings that are no sample, at every width; in a project of their own, since page 10 makes its own what it opens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from perfkit.core.resources import data_folder
from tests.browser.conftest import Server, wait_ready
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
CONFIG = data_folder() / "configs" / "llama2_13b.toml"
ABOUT_RECORDINGS = tuple(path.stem for path in pages() if re.match(r"00|1[0-7]|20", path.stem))
SETTLED = """() => !document.querySelector('.pk-panel[data-state="loading"]')"""
"""No step is computed anew: while one is, its line of progress stands above the chart that it had."""
OF_ONE_S_OWN = ("torch_npu_pp2dp2", "kineto_h100", "mindinsight/run_3")


WATCH = """
  window.opened = new Set();
  new MutationObserver(() => {
    const said = document.querySelectorAll('[data-panel^="choose-"] .pk-sentence');
    for (const one of said) if (one.textContent) opened.add(one.textContent);
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Every recording and configuration that a page has said to be open, since it was asked for."""


@pytest.mark.parametrize(
    ("name", "values"), [("12_operators", f"run={TRACES / OF_ONE_S_OWN[0]}"), ("05_recompute", f"config={CONFIG}")]
)
def test_what_an_address_names_is_all_that_its_page_ever_opens(open_page: OpenPage, offline_page: Page, name: str, values: str):
    offline_page.add_init_script(WATCH)
    page = open_page(name, values)
    for again in ("kept", "read anew", "followed"):
        said = page.evaluate("[...opened]")
        assert len(said) == 1, (again, said)
        assert values.rpartition("/")[2].rpartition("=")[2] in said[0], (again, said)
        assert page.evaluate("location.search") == ""
        assert page.evaluate("location.hash").startswith(f"#{urlencode(dict([values.split('=')]))}")
        if again == "kept":
            page.reload()
        elif again == "read anew":
            page.goto(page.url.replace(name, "10_load_run").partition("#")[0])
            wait_ready(page)
            page.evaluate(
                "([name, values]) => Object.assign(document.querySelector(`#rail a[href*='${name}']`), { hash: values }).click()",
                [name, values],
            )
            page.wait_for_url(f"**/{name}**")
        wait_ready(page)


def test_an_address_takes_the_room_of_one_page(
    make_offline: Callable[..., Page], start_server: Callable[..., Server], tmp_path: Path
):
    subprocess.run([sys.executable, "-m", "perfkit", "demo", str(tmp_path / "demo")], check=True, capture_output=True)
    server = start_server(tmp_path / "demo", PERFKIT_MAX_KERNELS="1")
    page, answers = make_offline(server), []
    page.on("response", lambda answer: answers.append(answer.status) if answer.request.is_navigation_request() else None)
    page.goto(f"{server.url}12_operators?project=demo#run={TRACES / OF_ONE_S_OWN[0]}")
    wait_ready(page)
    page.reload()
    wait_ready(page)
    assert page.evaluate("location.search") == "?project=demo"
    assert "project" not in page.evaluate("location.hash")
    assert answers == [200] * 4, "each time what the address names is asked for in a second request"
    assert "ERROR" not in server.log.read_text(encoding="utf-8")


@pytest.mark.parametrize("recording", OF_ONE_S_OWN)
def test_pages_of_a_recording_of_one_s_own_fit_the_widest_and_the_narrowest_window(open_page: OpenPage, recording: str):
    for name in ABOUT_RECORDINGS:
        page = open_page(name, f"run={TRACES / recording}")
        moved = page.evaluate(LAYOUT_SHIFT)
        assert moved <= 0.1 or page.evaluate("performance.now()") > SHOWN_ANYWAY_MS, (name, moved)
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
