""" "Open" in the header: a path, a folder of the visitor's machine, a file that is dropped, a switch; every page follows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import perfkit
from perfkit.core.resources import data_folder
from perfkit.explain.fragments import all_kinds, explain_fragment
from perfkit.project import open_project, save
from tests.browser.conftest import Server, wait_ready

TRACES = data_folder() / "traces"
CONFIG = data_folder() / "configs" / "llama2_13b.toml"
FRAGMENTS = Path(__file__).parents[1] / "data" / "fragments"
PIECES = {
    "configuration": (data_folder() / "configs" / "llama2_13b.toml").read_text(encoding="utf-8"),
    "keys": "recompute_config:\n  recompute: [4, 0]\n",
    "deepspeed": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}',
    "sapp": '{"name": "m", "layers_description": [{"name": "body", "type": "BODY", "time": 9, "nb_layer": 8,'
    ' "memory_parameter": 10, "memory_activation": 20}]}',
    "graph_lines": "%10l(x) = MatMul(%99, %100) {instance name: matmul}\n"
    "      : (<Tensor[Float16], (8, 16)>, <Tensor[Float16], (16, 4)>) -> (<Tensor[Float16], (8, 4)>)\n",
    "memory_report": (FRAGMENTS / "peaks.txt").read_text(encoding="utf-8"),
    "tracker": "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,file_name,line_num,type,producer_task,"
    "task_name,node_name,graph_name,user_tasks,\n1,5,0x1,0,Normal,1024,a.cc,1,PyNativeOutput,1,MatMul,n,g,{2-},\n",
    "log_lines": " iteration       10/     100 | consumed samples:          640 | elapsed time per iteration (ms): 1234.5 |"
    " learning rate: 1.500E-04 | global batch size:    64 | lm loss: 1.0E+01 |\n",
    "deepspeed_lines": "[2024-05-07 10:00:05,123] [INFO] [timer.py:260:stop] epoch=0/micro_step=80/global_step=10,"
    " RunningAvgSamplesPerSec=12.5, CurrSamplesPerSec=12.8, MemAllocated=21.3GB, MaxMemAllocated=45.1GB\n",
    "environment": "export MS_MEMORY_STATISTIC=1\n",
    "toml_tables": "[parallelism]\ntensor_parallel_degree = 8\n[compile]\nenable = true\n",
    "launch": "msrun --worker_num=16 --local_worker_num=8 run.py --config a.yaml\n",
    "options": "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2\n",
    "formula": "$$ 12bLsh^2 $$\n",
    "printed_table": "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "literal": "[4, 0]\n",
    "code": (FRAGMENTS / "collect_garbage.py").read_text(encoding="utf-8"),
}
"""A piece of every kind that a paste may be."""
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


def test_an_address_that_names_what_cannot_be_opened_is_refused_in_words_and_the_header_names_what_is_drawn(
    open_page: Callable[..., Page],
):
    page = open_page("12_operators", "run=/nowhere/mine")
    picker = page.locator('section[data-panel="choose-run"]')
    expect(picker.get_by_text("not changed")).to_be_visible()
    drawn = picker.locator(".pk-sentence").inner_text().split(":")[0]
    switch = page.locator(".pk-opener > .pk-switches select").first
    assert drawn in switch.evaluate("(node) => node.value")


def test_a_configuration_that_is_dropped_anywhere_becomes_the_open_one(open_page: Callable[..., Page], demo_server: Server):
    page = open_page("12_operators")
    page.evaluate(DROP, [CONFIG.name, CONFIG.read_text(encoding="utf-8")])
    page.wait_for_url("**/02_model_cost")
    wait_ready(page)
    assert open_project(demo_server.project).open_config == demo_server.project / "uploads" / CONFIG.name
    expect(page.locator(".pk-opener > .pk-switches select").first).to_have_attribute(
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


def test_a_picker_with_more_than_the_file_to_choose_shows_all_of_it_and_the_name_of_the_project_stands_once(
    open_page: Callable[..., Page],
):
    page = open_page("06_pipeline_balance")
    expect(page.locator("[data-panel^=choose-] [data-control=device]")).to_be_visible()
    expect(page.locator("[data-panel=choose-config]").get_by_role("button", name="Choose another")).to_have_count(0)
    expect(page.locator(".pk-project")).to_be_hidden()
    page = open_page("05_recompute")
    expect(page.get_by_role("button", name="Choose another")).to_be_visible()
    expect(page.locator("[data-panel^=choose-] [data-control=config]")).to_be_hidden()


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


def test_a_piece_of_every_kind_is_pasted_and_answered_on_the_page(open_page: Callable[..., Page], demo_server: Server):
    plan = perfkit.read_config(open_project(demo_server.project).open_config)
    assert set(PIECES) == {kind.name for kind in all_kinds()}
    page = open_page("23_user_code")
    page.get_by_role("button", name="Open", exact=True).first.click()
    page.get_by_text("What does this mean?").click()
    box, answer = page.get_by_role("textbox", name="Piece of a configuration"), page.locator(".pk-paste-answer")
    for kind, text in PIECES.items():
        (part,) = explain_fragment(text, plan).parts
        assert part.kind == kind
        box.fill(text)
        box.press("Control+Enter")
        expect(answer).to_contain_text(part.title)
        for said in part.says[:1]:
            expect(answer).to_contain_text(said)
        page.get_by_role("button", name="Clear").click()
        expect(answer).to_be_empty()
