"""A file of the visitor's own machine: sent in parts, unpacked, opened; and a hostile one."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from perfkit.core.resources import data_folder
from tests.browser.conftest import Server

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"


def test_an_archive_is_sent_and_opened_and_a_hostile_one_refused(
    open_page: Callable[..., Page], demo_server: Server, tmp_path: Path
):
    good, hostile = tmp_path / "profiles.zip", tmp_path / "hostile.zip"
    with zipfile.ZipFile(good, "w") as archive:
        for path in (path for path in SAMPLE.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(SAMPLE))
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../../evil.txt", "x")
    page = open_page("10_load_run")
    panel = page.locator('section[data-panel="choose-run"]')
    field = panel.locator('[data-control="run"] input[type="file"]')
    field.set_input_files(good)
    expect(panel.locator('[data-control="run"] select')).to_have_value("profiles", timeout=30_000)
    expect(panel.locator(".pk-sentence")).to_contain_text("2 ranks")
    assert (demo_server.project / "uploads" / "profiles").is_dir()
    field.set_input_files(hostile)
    expect(panel.locator(".pk-status")).to_contain_text("../../evil.txt: leads out of the folder")
    assert {path.name for path in (demo_server.project / "uploads").glob("*")} >= {"profiles"}
    assert not list((demo_server.project / "uploads").glob("*evil*")) + list((demo_server.project / "uploads").glob(".part*"))
