"""Every page in a real browser: it opens, its task can be done, and the numbers on screen are those of the package."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import perfkit
from perfkit.core.catalog import model
from perfkit.core.params import count_params
from perfkit.core.resources import data_folder
from perfkit.core.texts import t
from perfkit.core.units import THIN_SPACE
from perfkit.predict.cost.flops import training_flops
from perfkit.project import open_project
from perfkit.project.experiments import ExperimentLog
from tests.browser.conftest import Server, wait_ready
from tests.notebook_format import pages
from tests.page_cells import code_cells

OpenPage = Callable[..., Page]
GALLERY = Path(__file__).resolve().parents[2] / "docs" / "images" / "gallery"
AXE = Path(__file__).parent / "axe" / "axe.min.js"
SAMPLE = data_folder() / "traces" / "torch_npu_2rank"
FOUR_RANKS = Path(__file__).parents[1] / "data" / "traces" / "torch_npu_pp2dp2"


def panel(page: Page, name: str) -> Locator:
    return page.locator(f'section[data-panel="{name}"]')


def sentence(page: Page, name: str) -> str:
    return panel(page, name).locator(".pk-sentence").inner_text().replace("\u202f", " ").replace("\u00a0", " ")


def rows(page: Page, name: str, title: str) -> list[list[str]]:
    """The cells of the table under `title`, thin spaces as plain ones."""
    table = panel(page, name).locator("figure, .pk-table, section").filter(has_text=title).last
    return [
        [cell.replace(THIN_SPACE, " ") for cell in row.locator("td").all_inner_texts()] for row in table.locator("tbody tr").all()
    ]


def milliseconds(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(\d[\d.]*) ms", text)]


EMPTY_AT_FIRST = {
    "what-the-range-is-made-of",
    "what-was-computed",
    "with-whom-they-talked",
    "what-the-host-did",
    "the-class",
    "what-all-pages-follow",
    "00_start_here timeline",
    "20_findings timeline",
    "timeline-beside",
    "choose-other",
    "beside-the-other-run",
    "predicted-and-reported",
}


def waits(name: str) -> set[str]:
    """The steps of a page that wait for their button."""
    found = set()
    for cell in code_cells(name):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(made, ast.Call) and "button" in [word.arg for word in made.keywords] for made in node.decorator_list
            ):
                found.add(node.name.replace("_", "-"))
    return found


"""Panels and steps that first ask for a name, a choice or a button, or say that none is open; with their page if one."""
FIRST_SIGHT = """() => {
  const all = [...document.querySelectorAll(".pk-chart, .pk-tl-stage, .pk-table:not(.pk-tiles, .pk-shut)")];
  const tops = all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().top + scrollY);
  return tops.length ? Math.round(Math.min(...tops)) : null;
}"""
"""Where the first chart, open table or timeline of the page begins."""
FIRST_SIGHT_PX = 340
HEADER_OVERLAPS = """() => {
  const parts = [...document.querySelectorAll(".bar a, .bar button, .bar select")].filter((one) => one.checkVisibility());
  const boxes = parts.map((one) => one.getBoundingClientRect()).sort((one, other) => one.left - other.left);
  return boxes.slice(1).map((box, at) => [Math.round(boxes[at].right), Math.round(box.left)]).filter(([end, next]) => next < end);
}"""
"""Parts of the header that stand over one another: where one ends and the next begins."""
CONTROLS_OVERLAP = """() => {
  const kinds = "#content .pk-main :is(button, input, select, textarea)";
  const parts = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility() && !one.closest(".pk-table"));
  const boxes = parts.map((one) => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width > 1 && box.height > 1);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const named = (one) => one.ariaLabel || one.placeholder || one.textContent.slice(0, 30) || one.id;
  return boxes.flatMap(([one, box], at) => boxes.slice(at + 1)
    .filter(([other, place]) => over(box, place) && one.closest(".pk-main") === other.closest(".pk-main"))
    .map(([other]) => `${named(one)} / ${named(other)}`));
}"""
"""Controls of a step or picker that stand over one another, by their names."""
USED_WIDTH = """() => {
  const right = Math.max(...[...document.querySelectorAll(".pk-panel")].map((one) => one.getBoundingClientRect().right));
  const left = document.getElementById("content").getBoundingClientRect().left;
  return (right - left) / (innerWidth - left);
}"""
"""The part of the window beside the list of pages that the page fills."""
NUMBERS_PARTED = r"""() => [...document.querySelectorAll('wbr')]
  .filter((end) => /\d\.$/.test(end.previousSibling?.data ?? '') && /^\d/.test(end.nextSibling?.data ?? ''))
  .map((end) => end.parentElement.textContent)"""
"""Places in numbers where a line may end."""
LONG_NUMBERS = """() => {
  const digits = (value) => value.replace(/^[-0.]+|[.]|e.*/g, "").length;
  const values = [...document.querySelectorAll(".pk-panel input[type=number]")].map((one) => one.value);
  return values.filter((value) => value.includes(".") && digits(value) > Math.max(4, digits(value.split(".")[0])));
}"""
"""Fields of numbers that show more digits than anybody reads."""
CUT_WORDS = """() => {
  const drawn = [...document.querySelectorAll(".pk-plot svg")].filter((one) => one.checkVisibility());
  const ends = (one) => one.getBoundingClientRect();
  const out = (word, svg) => ends(word).left < ends(svg).left - 1.5 || ends(word).right > ends(svg).right + 1.5;
  return drawn.flatMap((svg) => [...svg.querySelectorAll("text")]
    .filter((word) => word.textContent.trim() && word.getAttribute("opacity") !== "0" && ends(word).width && out(word, svg))
    .map((word) => `${svg.closest(".pk-panel").dataset.panel}: ${word.textContent}`));
}"""
"""Words of a drawing that its place cuts off."""
NO_ROOM = """() => [...document.querySelectorAll(".pk-plot svg")].filter((svg) => {
  const fields = [...svg.querySelectorAll("path.background")].map((one) => one.getBoundingClientRect().width);
  const pairs = svg.querySelectorAll(".mark-group path.background").length > 2;
  return svg.checkVisibility() && !pairs && fields.length && Math.max(...fields) < svg.getBoundingClientRect().width * 0.4;
}).map((svg) => svg.closest(".pk-panel").dataset.panel)"""
"""Panels whose drawing has most of its width taken by names."""
COVERED_CODE = """() => {
  const folded = [...document.querySelectorAll(".cell-source:not([open]) > summary")].map((one) => one.getBoundingClientRect());
  const words = document.createRange();
  const lines = (one) => (words.selectNodeContents(one), [...words.getClientRects()]);
  const kinds = "#content :is(.pk-sentence, .pk-status, .pk-notes li, button, input, select)";
  const boxes = [...document.querySelectorAll(kinds)]
    .filter((one) => one.checkVisibility() && !one.closest(".cell-source, .pk-tl-scroll, .pk-scroll"))
    .flatMap((one) => (one.matches("p, li, div") ? lines(one) : [one.getBoundingClientRect()]).map((box) => [one, box]));
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const covered = boxes.filter(([, box]) => folded.some((one) => over(one, box)));
  return covered.map(([one]) => one.textContent.slice(0, 40) || one.outerHTML);
}"""
"""What stands where the way to the code of a cell stands."""
OVERFLOW = """() => {
  const more = document.documentElement.scrollWidth - innerWidth;
  return more > 0 ? [`${more} pixels wider than the window`] : [];
}"""
"""Whether a page is wider than the window."""
CUT_TABLES = """() => [...document.querySelectorAll(".pk-scroll")].filter((one) => one.checkVisibility())
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.closest(".pk-panel").dataset.panel}: ${one.ariaLabel} lacks ${one.scrollWidth - one.clientWidth} pixels`)"""
"""Tables that are wider than their place."""
CHOICES_BELOW = """() => [...document.querySelectorAll(".pk-panel")].flatMap((panel) => {
  const all = panel.querySelectorAll(".pk-main > .pk-controls > .pk-control");
  const controls = [...all].filter((one) => one.checkVisibility());
  const shown = [...panel.querySelectorAll(".pk-chart, .pk-table")].filter((one) => one.checkVisibility());
  const below = controls.length === 1 && controls[0].querySelector(".pk-segments")
    && shown.some((one) => one.getBoundingClientRect().top < controls[0].getBoundingClientRect().top);
  return below ? [panel.dataset.panel] : [];
})"""
"""Panels whose one choice of what the charts and tables are of stands below these or beside them."""
EMPTY_BESIDE = """() => [...document.querySelectorAll(".pk-main")].flatMap((main) => {
  const [charts, controls] = [...main.children].map((one) => one.getBoundingClientRect());
  const beside = charts.height > 0 && controls.height > 0 && controls.left >= charts.right;
  return beside && controls.height > charts.height + 100 ? [main.closest(".pk-panel").dataset.panel] : [];
})"""
"""Panels whose controls leave an empty field below the charts beside them."""
FEW_BESIDE = """() => [...document.querySelectorAll(".pk-main")].flatMap((main) => {
  const [charts, controls] = [...main.children].map((one) => one.getBoundingClientRect());
  const beside = charts.height > 0 && controls.height > 0 && controls.left >= charts.right;
  return beside && controls.height < charts.height * 0.4 ? [main.closest(".pk-panel").dataset.panel] : [];
})"""
"""Panels that give a column beside their charts to few controls."""
FOLDED_BESIDE = """() => [...document.querySelectorAll(".pk-pair")].filter((pair) => {
  const [left, tables] = [...pair.children].map((one) => one.getBoundingClientRect());
  return tables.left >= left.right && pair.querySelector(".pk-tables .pk-folded");
}).map((pair) => pair.closest(".pk-panel").dataset.panel)"""
"""Panels whose table has less room beside the charts than its words take."""
PARTED_FIGURES = """() => [...document.querySelectorAll(".pk-sentence, .pk-notes li")]
  .map((one) => one.textContent).filter((text) => /\\d\\u2009\\d|\\d [%\u00b5A-Za-z]/.test(text))"""
"""Sentences with a figure that the end of a line may part."""
OVER_WORDS = """() => {
  const placed = (svg) => [...svg.querySelectorAll(".role-mark text, .role-axis-label text")]
    .filter((one) => one.textContent.trim() && one.getAttribute("opacity") !== "0" && getComputedStyle(one).visibility !== "hidden")
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  const over = ([text, a], [other, b]) => text !== other && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  return [...document.querySelectorAll(".pk-plot svg")].filter((svg) => svg.checkVisibility()).flatMap((svg) => {
    const words = placed(svg);
    return words.flatMap((one, at) => words.slice(at + 1).filter((other) => over(one, other))
      .map((other) => `${svg.closest(".pk-panel").dataset.panel}: ${one[0]} / ${other[0]}`));
  });
}"""
"""Words of a drawing that stand over one another."""
OUT_OF_BOX = """() => {
  const ends = (one) => one.getBoundingClientRect();
  const inside = (word, box) => word.left > box.left - 1.5 && word.right < box.right + 1.5;
  const holds = (box, { left, right, top, bottom }) => box.width > 30 && box.height > 1.2 * (bottom - top)
    && box.left < (left + right) / 2 && box.right > (left + right) / 2 && box.top <= top && box.bottom >= bottom;
  return [...document.querySelectorAll(".pk-plot svg")].filter((svg) => svg.checkVisibility()).flatMap((svg) => {
    const boxes = [...svg.querySelectorAll(".mark-rect.role-mark path")].map(ends);
    return [...svg.querySelectorAll(".mark-text.role-mark text")].filter((one) => one.textContent.trim())
      .filter((one) => boxes.some((box) => holds(box, ends(one)) && !inside(ends(one), box)))
      .map((one) => `${svg.closest(".pk-panel").dataset.panel}: ${one.textContent}`);
  });
}"""
"""Words that are wider than the box in which they stand."""
PALE_SYMBOLS = """() => {
  const light = (color) => {
    const parts = (color.match(/[\\d.]+/g) ?? []).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const drawn = [...document.querySelectorAll(".pk-plot svg")].filter((one) => one.checkVisibility());
  return drawn.flatMap((svg) => [...svg.querySelectorAll(".role-legend-symbol path")].filter((mark) => {
    const style = getComputedStyle(mark);
    const below = light(getComputedStyle(svg.closest(".pk-chart")).backgroundColor);
    const inks = [style.fill, style.stroke].filter((ink) => ink.startsWith("rgb(")).map(light);
    return inks.length && Math.max(...inks.map((ink) => (Math.max(ink, below) + 0.05) / (Math.min(ink, below) + 0.05))) < 1.5;
  }).map(() => svg.closest(".pk-panel").dataset.panel));
}"""
"""Panels with a symbol in a legend that can hardly be told from the dark on which it stands."""
ILLEGIBLE = (OUT_OF_BOX, OVERFLOW, CUT_WORDS, OVER_WORDS, CUT_TABLES, NO_ROOM, COVERED_CODE, PARTED_FIGURES)
"""What nobody can read, as a page says it."""
LINES_OF_WAITING = """() => [...document.querySelectorAll(".pk-waits > .pk-status")]
  .map((one) => Math.round(one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)))"""
"""How many lines each step takes that waits for something above it."""


PAPER_PX = {"width": 718, "height": 1047}
"""A4 between Chromium's margins, upright."""
CUT_ON_PAPER = """() => {
  const seen = [...document.querySelectorAll("#content *")].filter((one) => one.checkVisibility() && one.getClientRects().length);
  const told = (one) => `${one.tagName} ${one.getAttribute("class")} ${one.textContent.slice(0, 40)}`;
  const whole = seen.filter((one) => one.matches("svg, canvas, table, pre, p, h1"));
  const wide = whole.filter((one) => one.getBoundingClientRect().right > innerWidth + 1);
  const scrolls = seen.filter((one) => !one.closest("svg") && /auto|scroll/.test(getComputedStyle(one).overflowY)
    && one.scrollHeight > one.clientHeight + 1);
  const pressed = seen.filter((one) => one.matches("button:not(.pk-sort, .pk-tl-fold, .pk-tl-marks *), select, input"));
  const ink = [...document.querySelectorAll(".pk-plot svg text")].map((one) => getComputedStyle(one).fill);
  const pale = ink.filter((fill) => fill.match(/\\d+/g)?.every((part) => part > 150)).length > ink.length / 2;
  return [...[...wide, ...scrolls, ...pressed].map(told), ...(pale ? ["light ink on white"] : [])];
}"""
"""What a sheet of paper would cut off, what cannot be pressed on it, and what a dark page would leave unreadable."""


LAYOUT_SHIFT = """() => new Promise((done) => {
  const unasked = (list) => list.getEntries().filter((one) => !one.hadRecentInput);
  const asked = new PerformanceObserver((list) => done(unasked(list).reduce((sum, one) => sum + one.value, 0)));
  asked.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(0), 500); // a page that never shifted tells nothing
})"""
"""How much of the screen moved, and how far, since the page was asked for: the browser's own measure, without unit."""
SHOWN_ANYWAY_MS = 10_000
"""After so long what stands below a panel is shown though the panel has no answer yet."""


@pytest.mark.parametrize("name", [path.stem for path in pages()])
def test_every_page_opens_with_its_answer(name: str, open_page: OpenPage):
    page = open_page(name)
    assert page.evaluate(LAYOUT_SHIFT) <= 0.1 or page.evaluate("performance.now()") > SHOWN_ANYWAY_MS
    assert page.locator("h1").inner_text().endswith("?")
    panels = page.locator("section[data-panel]")
    assert panels.count() >= 1
    for index in range(panels.count()):
        shown = panels.nth(index).get_attribute("data-panel")
        expected = "empty" if {shown, f"{name} {shown}"} & (EMPTY_AT_FIRST | waits(name)) else "result"
        assert panels.nth(index).get_attribute("data-state") == expected
    assert "Traceback" not in page.inner_text("body")
    first = page.evaluate(FIRST_SIGHT)
    assert first is not None
    assert first <= FIRST_SIGHT_PX
    if os.environ.get("PERFKIT_GALLERY"):
        page.screenshot(path=GALLERY / f"{name}.png", animations="disabled")
    assert page.evaluate(LONG_NUMBERS) == []
    assert page.evaluate(NUMBERS_PARTED) == []
    assert page.evaluate(CONTROLS_OVERLAP) == []
    assert page.evaluate(CHOICES_BELOW) == []
    assert page.evaluate(EMPTY_BESIDE) == []
    assert page.evaluate(FEW_BESIDE) == []
    assert unreadable(page) == []
    assert barriers(page) == []
    page.emulate_media(color_scheme="dark")
    assert barriers(page, runOnly=["color-contrast"]) == []  # all that a theme changes
    for width, height in ((1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(HEADER_OVERLAPS) == [], width
        assert page.evaluate(CONTROLS_OVERLAP) == [], width
        assert width < 1900 or page.evaluate(USED_WIDTH) >= 0.92, width
        assert width < 1900 or page.evaluate(FOLDED_BESIDE) == [], width
        assert unreadable(page, PALE_SYMBOLS) == [], width
    page.set_viewport_size(PAPER_PX)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(CUT_ON_PAPER) == []


def unreadable(page: Page, *more: str) -> list[str]:
    """What overflows, is cut, crowded or covered on a page, or `more` finds, once its charts have taken the width of the window."""
    for _ in range(40):
        found = [one for script in (*ILLEGIBLE, *more) for one in page.evaluate(script)]
        if not found:
            break
        page.wait_for_timeout(250)
    return found


def test_a_number_is_short_to_look_at_and_exact_for_whoever_is_in_its_field(open_page: OpenPage):
    field = open_page("06_pipeline_balance").get_by_role("spinbutton", name="Memory limit")
    expect(field).to_have_value("57.2")
    field.focus()
    expect(field).to_have_value("57.19999999925494")
    field.press("Tab")
    expect(field).to_have_value("57.2")
    expect(field).to_have_attribute("title", "57.19999999925494")


def test_a_bar_of_a_canvas_tells_what_it_is_also_after_its_numbers_have_changed(open_page: OpenPage):
    page = open_page("06_pipeline_balance")
    shown = panel(page, "what-the-pipeline-does")
    tip, bar = page.locator("#vg-tooltip-element"), {"x": 300, "y": 60}
    for again in range(2):
        shown.locator(".pk-plot canvas").hover(position=bar)
        expect(tip).to_be_visible()
        expect(tip).to_contain_text("micro batch")
        text = shown.locator(".pk-sentence").text_content()
        if not again:
            shown.get_by_role("slider").first.press("ArrowRight")
            expect(shown.locator(".pk-sentence")).not_to_have_text(text)
            page.mouse.move(0, 0)
            expect(tip).not_to_be_visible()


def test_a_table_that_its_place_cuts_off_shows_all_its_rows_when_asked(open_page: OpenPage):
    table = panel(open_page("12_operators"), "which-take-most").locator(".pk-table").first
    hidden = "(node) => { const box = node.querySelector('.pk-scroll'); return box.scrollHeight - box.clientHeight; }"
    assert table.evaluate(hidden) > 1
    table.get_by_role("button", name="All 20 rows").press("Enter")
    expect(table.get_by_role("button", name="Fewer rows")).to_be_focused()
    assert table.evaluate(hidden) <= 1
    table.get_by_role("button", name="Fewer rows").press("Enter")
    expect(table.get_by_role("button", name="All 20 rows")).to_be_visible()


def test_a_wide_table_shows_all_its_columns_when_asked_and_its_csv_has_them_before(open_page: OpenPage, tmp_path: Path):
    page = open_page("13_communication")
    table = panel(page, "who-waits-for-whom").locator(".pk-table").first
    heads = table.get_by_role("columnheader")
    assert heads.count() == 5
    with page.expect_download() as download:
        table.get_by_role("button", name="CSV").press("Enter")
    download.value.save_as(tmp_path / "waits.csv")
    assert len((tmp_path / "waits.csv").read_text(encoding="utf-8").splitlines()[0].split(",")) == 9
    table.get_by_role("button", name="All 9 columns").press("Enter")
    expect(table.get_by_role("button", name="Fewer columns")).to_be_focused()
    assert heads.count() == 9
    table.get_by_role("button", name="Fewer columns").press("Enter")
    expect(heads).to_have_count(5)


def test_what_is_not_the_answer_opens_by_keyboard_and_by_a_link_to_it(open_page: OpenPage):
    page = open_page("02_model_cost", "at=what-memory-holds-up")
    linked, folded = panel(page, "what-memory-holds-up"), panel(page, "what-matters-most")
    expect(linked.locator(".pk-chart").first).to_be_visible()
    expect(folded.locator(".pk-sentence")).to_be_visible()
    expect(folded.locator(".pk-chart")).to_have_count(0)
    folded.get_by_role("button", name="Details").press("Enter")
    expect(folded.locator(".pk-plot svg, .pk-plot canvas").first).to_be_visible()
    table = folded.locator(".pk-table").first
    expect(table.locator("table")).to_be_hidden()
    table.get_by_role("button", name="Inputs by their effect on the step").press("Enter")
    expect(table.locator("table")).to_be_visible()
    assert barriers(page) == []


def test_on_a_phone_the_legend_takes_as_many_lines_as_it_needs(open_page: OpenPage):
    page = open_page("11_step_breakdown")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("""() => {
      const plot = document.querySelector(".pk-plot");
      const ends = [...plot.querySelectorAll(".role-legend-label")].map((one) => one.getBoundingClientRect().right);
      return ends.length && Math.max(...ends) <= plot.getBoundingClientRect().right;
    }""")


def barriers(page: Page, **options: object) -> list[str]:
    """What axe-core finds, of whatever impact, with the first element of each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
    run = "(options) => axe.run(document, options).then((result) => result.violations)"
    found = page.evaluate(run, {"resultTypes": ["violations"], **options})
    return [f"{rule['id']} ({len(rule['nodes'])}): {rule['nodes'][0]['html'][:200]}" for rule in found]


def test_start_page_shows_the_ladder_of_the_sample_project(open_page: OpenPage, demo_server: Server):
    page = open_page("00_start_here")
    ladder = ExperimentLog(demo_server.project, read_only=True).ladder()
    shown = [row[2] for row in rows(page, "where-the-project-stands", "Rounds") if len(row) > 3]
    assert [float(value.replace(" ", "")) for value in shown] == ladder["value"].tolist()
    assert "+37.7 %" in sentence(page, "where-the-project-stands")


def test_a_goal_is_saved_to_the_project_by_keyboard(open_page: OpenPage, demo_server: Server):
    page = open_page("00_start_here")
    goal = panel(page, "goal-and-limits").get_by_label("Goal", exact=True)
    before = open_project(demo_server.project).goal_value
    goal.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2700")
    page.keyboard.press("Enter")
    expect(panel(page, "goal-and-limits").locator(".pk-sentence")).to_contain_text("not saved yet")
    save = panel(page, "goal-and-limits").get_by_role("button", name="Save to the project")
    save.focus()
    page.keyboard.press("Enter")
    expect(panel(page, "goal-and-limits").locator(".pk-outcome")).to_contain_text("Saved")
    assert open_project(demo_server.project).goal_value == 2700.0 != before


def test_baseline_shows_the_log_and_reacts_to_its_controls(open_page: OpenPage):
    page = open_page("01_baseline")
    assert "1.755 s (median of 4, 1 warm-up step left out" in sentence(page, "how-long-a-step-is")
    assert "45.3 %" in sentence(page, "what-a-device-makes")
    log = perfkit.load(data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log").frame("log")
    measured = log["duration_ns"].iloc[1:].median() / 1e9
    assert f"{measured:.3f} s" in sentence(page, "how-long-a-step-is")
    peak = panel(page, "what-a-device-makes").get_by_label("Peak of one device")
    peak.fill("313")
    peak.press("Enter")
    expect(panel(page, "what-a-device-makes").locator(".pk-sentence")).to_contain_text("54.4 %")
    box = panel(page, "how-long-a-step-is")
    box.get_by_label("Suggested warm-up").focus()
    page.keyboard.press("Space")
    exact = box.get_by_label("Warm-up steps left out, exact")
    exact.fill("0")
    exact.press("Enter")
    expect(box.locator(".pk-notes")).to_contain_text("59 times the median")


def test_linearity_of_typed_runs(open_page: OpenPage):
    page = open_page("01_baseline")
    runs = panel(page, "how-it-scales").get_by_label("devices: tokens/s of the whole job")
    runs.fill("8: 37560, 64: 270000")
    runs.press("Enter")
    expect(panel(page, "how-it-scales").locator(".pk-sentence")).to_contain_text("From 8 to 64 devices 89.86 %")
    runs.fill("8 37560")
    runs.press("Enter")
    expect(panel(page, "how-it-scales").locator(".pk-status")).to_contain_text("is no run")


def test_model_cost_equals_the_calculators_and_follows_a_slider(open_page: OpenPage):
    page = open_page("02_model_cost", "config=llama2-7b")
    box = panel(page, "what-a-token-costs")
    expect(box.locator(".pk-sentence")).to_contain_text("llama2-7b")
    spec = model("llama2-7b")
    assert f"{int(count_params(spec).total):,}".replace(",", " ") in sentence(page, "what-a-token-costs")
    assert f"{training_flops(spec, 4096).total / 1e9:.2f} GFLOP" in sentence(page, "what-a-token-costs")
    before = sentence(page, "what-a-token-costs")
    box.get_by_label("Layers", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(box.locator(".pk-sentence")).not_to_have_text(before)


def test_the_guides_three_conventions_are_side_by_side_and_an_impossible_speed_is_flagged(open_page: OpenPage):
    page = open_page("02_model_cost", "config=llama2-13b")
    expect(panel(page, "which-mfu-is-that").locator(".pk-sentence")).to_contain_text("MFU is 59.40 %")
    cells = {row[0]: row[2] for row in rows(page, "which-mfu-is-that", "MFU of this speed in every convention")}
    assert cells["full attention, with head"].startswith("59.4")
    assert cells["causal half, without head"].startswith("55.3")
    page.goto(page.url.replace("13b", "70b"))
    expect(panel(page, "what-a-token-costs").locator(".pk-sentence")).to_contain_text("llama2-70b")
    speed = panel(page, "which-mfu-is-that").get_by_label("Measured speed")
    speed.fill("1974")
    speed.press("Enter")
    expect(panel(page, "which-mfu-is-that").locator(".pk-notes")).to_contain_text("Impossible")


def test_load_run_lists_damage_in_words(open_page: OpenPage, demo_server: Server):
    broken = demo_server.project / "uploads" / "damaged"
    shutil.copytree(SAMPLE, broken, dirs_exist_ok=True)
    file = next(broken.rglob("communication.json"))
    file.write_bytes(file.read_bytes()[:300])
    page = open_page("10_load_run")
    panel(page, "choose-run").get_by_role("button", name="Choose another").press("Enter")
    path = panel(page, "choose-run").locator('[data-control="run"] input[type="text"]')
    path.fill(str(broken))
    path.press("Enter")
    expect(panel(page, "what-could-not-be-read")).to_contain_text("What could not be read", timeout=20_000)
    expect(panel(page, "what-could-not-be-read")).to_contain_text("communication.json")


def test_a_folder_of_something_else_is_an_error_with_all_that_was_looked_for(open_page: OpenPage, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    page = open_page("10_load_run")
    panel(page, "choose-run").get_by_role("button", name="Choose another").press("Enter")
    path = panel(page, "choose-run").locator('[data-control="run"] input[type="text"]')
    path.fill(str(tmp_path))
    path.press("Enter")
    status = panel(page, "choose-run").locator(".pk-status")
    expect(status).to_contain_text("no known format")
    expect(status).to_contain_text("kernel_details.csv")


def test_the_lines_to_collect_follow_the_framework(open_page: OpenPage):
    page = open_page("10_load_run")
    box = panel(page, "lines-that-record-a-profile")
    expect(box.locator("pre")).to_contain_text("import torch_npu")  # that of the open recording
    box.get_by_label("Framework").select_option("mindformers")
    expect(box.locator("pre")).to_contain_text("profile_start_step: 5")
    box.get_by_label("Framework").select_option("pytorch")
    expect(box.locator("pre")).to_contain_text("torch.profiler")


def test_breakdown_on_screen_equals_the_run_and_a_click_picks_a_rank(open_page: OpenPage):
    page = open_page("11_step_breakdown")
    breakdown = perfkit.load(SAMPLE).step_breakdown(0, 50)
    told = panel(page, "what-it-is-made-of").locator(".pk-sentence")
    shown = milliseconds(sentence(page, "what-it-is-made-of"))
    assert shown[0] == pytest.approx(breakdown.total / 1e6, rel=5e-3)
    assert sorted(shown[1:4]) == pytest.approx(sorted(amount / 1e6 for amount in breakdown.parts.values() if amount), rel=5e-3)
    row = panel(page, "where-the-step-went").locator("tbody tr").filter(has_text="132").first
    row.focus()
    page.keyboard.press("Enter")
    expect(told).to_contain_text("rank 1 took 132 ms")
    expect(panel(page, "what-it-ran")).to_contain_text("Largest kernels of rank 1")
    assert "rank=1" in page.evaluate("location.hash")


def test_a_bar_picks_its_rank(open_page: OpenPage):
    page = open_page("11_step_breakdown")
    bars = panel(page, "where-the-step-went").locator(".pk-figures svg .mark-rect path")
    tops = [box["y"] for box in (bar.bounding_box() for bar in bars.all()) if box]
    lowest = bars.nth(tops.index(max(tops)))  # few bars lie one below the other: the second rank's is the lower one
    lowest.scroll_into_view_if_needed()
    lowest.click()
    expect(panel(page, "what-it-is-made-of").locator(".pk-sentence")).to_contain_text("rank 1 took")


def test_a_link_restores_the_view_and_the_code_of_a_step_is_folded_below_it_and_can_be_copied(open_page: OpenPage):
    page = open_page("11_step_breakdown", "rank=1")
    expect(panel(page, "what-it-is-made-of").locator(".pk-sentence")).to_contain_text("rank 1 took")
    code = page.locator(".cell-source").filter(has_text="def where_the_step_went")
    assert not code.locator("pre").is_visible()
    code.locator("summary").click()
    cell = next(cell for cell in code_cells("11_step_breakdown") if cell["id"] == "ranks")
    assert code.locator("pre").inner_text().strip() == "".join(cell["source"]).strip()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()").strip() == "".join(cell["source"]).strip()
    expect(page.locator(".cell-source").filter(has_text="slowest = ")).to_have_count(1)


def test_hostile_names_are_text_on_the_page(open_page: OpenPage, demo_server: Server):
    folder = demo_server.project / "uploads" / "hostile" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True, exist_ok=True)
    name = "<img src=x onerror=alert(1)>"
    (folder / "kernel_details.csv").write_text(
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
        f'1,"{name}","{name}",AI_CORE,10,5,0\n1,"{name}2","{name}",AI_CORE,20,5,0\n',
        encoding="utf-8",
    )
    page = open_page("11_step_breakdown", f"run={folder.parent}")
    expect(panel(page, "what-it-ran")).to_contain_text(name)
    assert page.locator("img[src='x']").count() == 0
    panel(page, "where-the-step-went").locator(".pk-figures canvas, .pk-figures svg").first.hover()
    assert page.locator("img[src='x']").count() == 0


def test_an_empty_folder_is_no_dead_end(make_offline, start_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh")
    server = start_server(folder)
    page = make_offline(server)
    page.goto(f"{server.url}00_start_here")
    wait_ready(page)
    expect(panel(page, "where-the-project-stands").locator(".pk-status")).to_contain_text("no tuning project yet")
    save = panel(page, "goal-and-limits").get_by_role("button", name="Save to the project")
    save.click()
    expect(panel(page, "goal-and-limits").locator(".pk-outcome")).to_contain_text("Made the project")
    assert open_project(folder).name == "my tuning project"


def test_a_read_only_app_in_chinese_shows_all_and_saves_nothing(make_offline, start_server, demo_server: Server, tmp_path_factory):
    copy = tmp_path_factory.mktemp("readonly") / "demo"
    shutil.copytree(demo_server.project, copy)
    before = _contents(copy)
    assert "perfkit.sqlite" in before
    server = start_server(copy, "--read-only", PERFKIT_LANGUAGE="zh")
    page = make_offline(server)
    for path in pages()[::6]:  # what every page says is looked at without a browser
        page.goto(f"{server.url}{path.stem}")
        wait_ready(page)
        assert t("Read-only", "zh") in page.inner_text("body")
        assert re.search("[\u4e00-\u9fff]", page.title())
        headings = page.locator("h1, .pk-title:visible, .pk-next-label").all_inner_texts()
        assert [text for text in headings if not re.search("[\u4e00-\u9fff]", text)] == []
        drawn = page.locator(".pk-plot svg text").all_text_contents()
        assert [text for text in drawn if re.search("[a-z]{3,} [a-z]{3,} [a-z]{3,}", text)] == []
    assert _contents(copy) == before


def _contents(folder: Path) -> dict[str, str]:
    """What every file holds, by its path. SQLite readers open two more beside the log, which hold no data of their own."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in {".sqlite-shm", ".sqlite-wal"}
    }


def test_a_drawing_wider_than_a_phone_is_scrolled_by_keyboard(open_page: OpenPage):
    page = open_page("10_load_run")
    panel(page, "choose-run").get_by_role("button", name="Choose another").press("Enter")
    path = panel(page, "choose-run").locator('[data-control="run"] input[type="text"]')
    path.fill(str(FOUR_RANKS.parent / "dlrm_8xV100"))
    path.press("Enter")
    expect(panel(page, "choose-run").locator(".pk-sentence")).to_contain_text("8 ranks")
    page.set_viewport_size({"width": 320, "height": 568})
    wide = "[...document.querySelectorAll('.pk-plot')].filter((one) => one.scrollWidth > one.clientWidth)"
    page.wait_for_function(f"{wide}.length && {wide}.every((one) => one.tabIndex === 0)")
    assert barriers(page, runOnly=["scrollable-region-focusable"]) == []
