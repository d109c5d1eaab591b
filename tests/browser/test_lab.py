"""The same pages in JupyterLab: code visible, charts drawn by the library that comes through the kernel, nothing from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.app_server import Server, free_port, stop
from tests.browser.frame_pages import write_pages

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*token=(\w+)")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    project, port, log = tmp_path / "project", free_port(), tmp_path / "lab.log"
    project.mkdir()
    folder = write_pages(tmp_path / "pages")
    document = json.loads((folder / "11_ranks.ipynb").read_text())
    timeline = {**document["cells"][-1], "id": "timeline", "source": "from perfkit import widgets\nwidgets.timeline()"}
    (folder / "11_ranks.ipynb").write_text(json.dumps({**document, "cells": [*document["cells"], timeline]}))
    monkeypatch.setenv("PERFKIT_PAGES", str(folder))
    # Lab remembers open files and settings; these belong to the test.
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    with log.open("w") as output:
        command = [sys.executable, "-m", "perfkit", "serve", str(project), "--lab", "--port", str(port)]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    server = Server(url=f"http://127.0.0.1:{port}/", project=project, process=process, log=log)
    end = time.monotonic() + 90
    while not (found := ADDRESS.search(log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
    yield server, found[1]
    process.terminate()
    process.wait(timeout=30)
    stop(server)


def test_a_page_runs_in_jupyterlab_and_its_controls_work(lab, make_offline):
    server, token = lab
    page = make_offline(server)
    page.goto(f"{server.url}lab/tree/11_ranks.ipynb?token={token}")
    page.locator(".jp-Notebook").wait_for(timeout=90_000)
    assert urlsplit(page.url).netloc == urlsplit(server.url).netloc
    assert (server.project / "notebooks" / "11_ranks.ipynb").is_file(), "a copy of the project's own"
    page.get_by_text("| Idle").wait_for(timeout=90_000)
    page.get_by_role("menuitem", name="Run").first.click()
    page.get_by_text("Run All Cells", exact=True).click()
    expect(page.locator("[data-panel=ranks] .pk-sentence")).to_have_text("8 ranks, picked none.", timeout=90_000)
    expect(page.locator("[data-panel=ranks] .pk-plot .mark-rect path")).to_have_count(8, timeout=30_000)
    slider = page.get_by_role("slider", name="Ranks")
    slider.focus()
    slider.press("ArrowRight")
    expect(page.locator("[data-panel=ranks] .pk-sentence")).to_have_text("9 ranks, picked none.")
    expect(page.locator("[data-panel=ranks] .pk-plot .mark-rect path")).to_have_count(9)
    assert page.locator(".jp-InputArea-editor").count() > 0
    _keys_stay_in_the_timeline(page)


def _keys_stay_in_the_timeline(page) -> None:
    """Every letter is a command of JupyterLab: d d deletes a cell, a and b add one, y and m change its kind, z undoes."""
    page.evaluate("document.querySelectorAll('.jp-Notebook .jp-Cell').forEach((cell) => cell.classList.add('seen'))")
    canvas = page.locator(".pk-tl-canvas")
    canvas.wait_for(timeout=60_000)
    page.wait_for_function("performance.getEntriesByName('perfkit-picture').length > 0", timeout=60_000)
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    width = page.locator(".pk-tl-corner").inner_text()
    for key in "wwddaabbxyyzzjkmm":
        page.keyboard.press(key)
    expect(page.locator(".pk-tl-corner")).not_to_have_text(width)
    cells = page.locator(".jp-Notebook .jp-Cell")
    assert cells.count() == page.locator(".jp-Notebook .jp-Cell.seen").count()
    assert page.locator(".jp-Notebook .jp-MarkdownCell").count() == 1
    assert page.evaluate("document.activeElement.closest('.pk-tl') !== null")
