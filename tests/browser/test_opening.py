""" "Open" in the header: a path, a folder of the visitor's machine, a file that is dropped, a switch; every page follows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from perfkit.core.resources import data_folder
from perfkit.project import open_project, save
from tests.browser.conftest import Server, wait_ready

TRACES = data_folder() / "traces"
CONFIG = data_folder() / "configs" / "llama2_13b.toml"
DROP = """([name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    const event = new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true });
    document.getElementById("content").dispatchEvent(event);
  }
}"""


@pytest.fixture(autouse=True)
def _as_it_was(demo_server: Server):
    before = open_project(demo_server.project)
    yield
    now = open_project(demo_server.project)
    fields = {name: getattr(before, name) for name in ("open_run", "open_config", "open_round", "recent")}
    save(type(now)(**{name: getattr(now, name) for name in now.__slots__} | fields))
    for path in (demo_server.project / "uploads").glob("*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def choose(page: Page, path: Path) -> None:
    page.get_by_role("button", name="Open", exact=True).first.click()
    page.get_by_role("textbox", name="Path").or_(page.get_by_role("combobox", name="Path")).fill(str(path))
    page.keyboard.press("Enter")


def test_a_path_is_opened_from_any_page_and_leads_to_its_own(open_page: Callable[..., Page], demo_server: Server):
    page = open_page("12_operators")
    choose(page, TRACES / "kineto_resnet")
    page.wait_for_url("**/00_start_here")
    wait_ready(page)
    assert open_project(demo_server.project).open_run == TRACES / "kineto_resnet"
    page.goto(f"{demo_server.url}11_step_breakdown")
    wait_ready(page)
    expect(page.locator('section[data-panel="choose-run"] .pk-sentence')).to_contain_text("kineto_resnet")


def test_what_nothing_reads_is_said_in_the_header_and_leaves_nothing(open_page: Callable[..., Page], demo_server: Server):
    page = open_page("12_operators")
    page.evaluate(DROP, ["weights.safetensors", "0" * 64])
    expect(page.locator(".pk-open-status")).to_contain_text("weights or a checkpoint", timeout=20_000)
    assert list((demo_server.project / "uploads").glob("*")) == []


def test_a_configuration_that_is_dropped_anywhere_becomes_the_open_one(open_page: Callable[..., Page], demo_server: Server):
    page = open_page("12_operators")
    page.evaluate(DROP, [CONFIG.name, CONFIG.read_text(encoding="utf-8")])
    page.wait_for_url("**/02_model_cost")
    wait_ready(page)
    assert open_project(demo_server.project).open_config == demo_server.project / "uploads" / CONFIG.name
    expect(page.locator(".pk-opener > .pk-switches select").nth(1)).to_have_attribute(
        "title", f"Configuration: {open_project(demo_server.project).open_config}"
    )


def test_a_folder_of_the_visitor_is_sent_with_both_things_in_it(
    open_page: Callable[..., Page], demo_server: Server, tmp_path: Path
):
    folder = tmp_path / "my job"
    shutil.copytree(TRACES / "torch_npu_2rank", folder / ("long" * 30))
    shutil.copy(CONFIG, folder)
    page = open_page("12_operators")
    page.locator(".pk-opener input[webkitdirectory]").set_input_files(folder)
    page.wait_for_url("**/00_start_here")
    project = open_project(demo_server.project)
    sent = demo_server.project / "uploads" / "my_job"
    assert (project.open_run, project.open_config) == (sent, sent / CONFIG.name)
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path.relative_to(sent): path.read_bytes() for path in sent.rglob("*") if path.is_file()} == before


def test_the_switch_of_the_recording_is_followed_by_the_page(open_page: Callable[..., Page], demo_server: Server):
    page = open_page("11_step_breakdown", "rank=1")
    switch = page.locator(".pk-opener > .pk-switches select").first
    switch.select_option(label="Sixteen-rank cluster analysis")
    expect(page.locator('section[data-panel="choose-run"] .pk-sentence')).to_contain_text("cluster_16card", timeout=30_000)
    assert open_project(demo_server.project).open_run == TRACES / "cluster_16card"
    assert "rank" not in page.evaluate("location.hash")


def test_a_pasted_piece_is_explained_beside_what_is_open_and_hostile_text_stays_text(open_page: Callable[..., Page]):
    page = open_page("23_user_code")
    page.get_by_role("button", name="Open", exact=True).first.click()
    page.get_by_text("What does this mean?").click()
    box = page.get_by_role("textbox", name="Piece of a configuration")
    box.fill("recompute: [4, 0]\n<img src=x onerror=alert(1)>: 1\n")
    box.press("Control+Enter")
    for width in (390, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function("document.querySelector('.pk-open-panel').getBoundingClientRect().right <= innerWidth")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    answer = page.locator(".pk-paste-answer")
    expect(answer).to_contain_text("recompute_config:")
    assert answer.locator("img").count() == 0
    assert "recompute" not in page.url
    page.get_by_role("button", name="Clear").click()
    expect(answer).to_be_empty()
