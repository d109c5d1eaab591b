"""Page 14 by keyboard: zoom to 1 ns, search, details, a mark, a link; hostile names stay text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from perfkit.project import open_project
from tests.browser.conftest import Server

OpenPage = Callable[..., Page]
HOSTILE = "<img src=x onerror=alert(1)>"


def test_a_kernel_is_found_read_and_zoomed_to_one_nanosecond_by_keyboard(open_page: OpenPage, demo_server: Server):
    page = open_page("14_timeline")
    canvas, live = page.locator(".pk-tl-canvas"), page.locator(".pk-tl-live")
    canvas.focus()
    page.keyboard.press("/")
    page.keyboard.type("allreduce")
    page.keyboard.press("Enter")
    expect(page.locator(".pk-tl-found")).to_have_text("8 hits")
    details = page.locator('[data-part="slice"]')
    expect(details).to_contain_text("hcom_allReduce__586_0_1")
    expect(details).to_contain_text("79 089 520 ns".replace(" ", "\u2009"))
    canvas.focus()
    page.keyboard.press("Enter")
    expect(live).to_contain_text("rank 1")
    _read_a_counter(page)
    canvas.focus()
    page.keyboard.press("/")
    page.keyboard.type("allreduce")
    page.keyboard.press("Enter")
    expect(details).to_contain_text("hcom_allReduce__586_0_1")
    canvas.focus()
    page.keyboard.press("v")
    expect(page.locator('[data-part="range"]')).to_contain_text("One by one")
    for _ in range(60):
        page.keyboard.press("w")
    expect(page.locator(".pk-tl-corner")).to_contain_text("4\u00a0ns from")
    expect(live).to_contain_text("4\u00a0ns wide")
    page.keyboard.press("m")
    page.keyboard.type("why so late?")
    page.keyboard.press("Enter")
    expect(page.locator('[data-part="marks"]')).to_contain_text("why so late?")
    assert "why so late?" in str(open_project(demo_server.project).pages["timeline_marks"])
    page.wait_for_function("location.hash.includes('from=') && location.hash.includes('slice=')")
    page.reload()
    expect(page.locator(".pk-tl-corner")).to_contain_text("4\u00a0ns from")
    expect(page.locator('[data-part="slice"]')).to_contain_text("hcom_allReduce__586_0_1")


def _read_a_counter(page: Page) -> None:
    """The highest value of a counter by keyboard, its statistics and its picture; then everything again."""
    canvas, live, details = (page.locator(place) for place in (".pk-tl-canvas", ".pk-tl-live", '[data-part="slice"]'))
    page.get_by_label("Filter the units by rank, process or name").fill("rank 1 counters pta+ge allocated")
    page.get_by_role("button", name="Counters (1)").press("Enter")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    expect(live).to_contain_text("memory PTA+GE allocated: ")
    page.keyboard.press("l")
    expect(details).to_contain_text("memory PTA+GE allocated: 1.2")
    page.keyboard.press("v")
    expect(page.locator('[data-part="range"]')).to_contain_text("Counters in the range")
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG", exact=True).click()
    assert "memory PTA+GE allocated" in Path(download.value.path()).read_text()
    canvas.focus()
    page.keyboard.press("Enter")  # from the counter on to the next hit
    expect(details).to_contain_text("hcom_allReduce")
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.get_by_label("Filter the units by rank, process or name").fill("")


def test_hostile_names_are_text_on_lanes_in_tips_and_details(open_page: OpenPage, demo_server: Server):
    folder: Path = demo_server.project / "uploads" / "hostile_lanes" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel_details.csv").write_text(
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
        f'1,"{HOSTILE}","{HOSTILE}",AI_CORE,10,5,0\n1,"{HOSTILE}2","{HOSTILE}",AI_CORE,20,5,0\n',
        encoding="utf-8",
    )
    page = open_page("14_timeline", f"run={folder.parent}")
    expect(page.locator(".pk-sentence")).to_contain_text("2 events")
    canvas = page.locator(".pk-tl-canvas")
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": box["width"] * 0.15, "y": 58})
    expect(page.locator(".pk-tl-tip")).to_contain_text(HOSTILE)
    canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator('[data-part="slice"]')).to_contain_text(HOSTILE)
    assert page.locator("img[src='x']").count() == 0
