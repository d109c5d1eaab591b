"""The same pages in JupyterLab: code visible, charts drawn by the library that comes through the kernel, nothing from elsewhere."""

from __future__ import annotations

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
    monkeypatch.setenv("PERFKIT_PAGES", str(write_pages(tmp_path / "pages")))
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
    page.get_by_text("| Idle").wait_for(timeout=90_000)
    page.get_by_role("menuitem", name="Run").first.click()
    page.get_by_text("Run All Cells", exact=True).click()
    expect(page.locator(".pk-sentence")).to_have_text("8 ranks, picked none.", timeout=90_000)
    expect(page.locator(".pk-plot .mark-rect path")).to_have_count(8, timeout=30_000)
    slider = page.get_by_role("slider", name="Ranks")
    slider.focus()
    slider.press("ArrowRight")
    expect(page.locator(".pk-sentence")).to_have_text("9 ranks, picked none.")
    expect(page.locator(".pk-plot .mark-rect path")).to_have_count(9)
    assert page.locator(".jp-InputArea-editor").count() > 0
