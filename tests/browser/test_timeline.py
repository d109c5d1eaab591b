"""Page 14 by keyboard: zoom to 1 ns, search, details, a mark, a link; drifting clocks line up; hostile names stay text."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from playwright.sync_api import Page, expect

import perfkit
from perfkit.core.resources import data_folder
from perfkit.project import open_project
from tests.browser.conftest import Server

OpenPage = Callable[..., Page]
EPOCH_NS = 1_700_000_000_000_000_000
KINETO = data_folder() / "traces" / "kineto_resnet"
TRACES = Path(__file__).parents[1] / "data" / "traces"
HOSTILE = "<img src=x onerror=alert(1)>"


def test_a_kernel_is_found_read_and_zoomed_to_one_nanosecond_by_keyboard(open_page: OpenPage, demo_server: Server):
    page = open_page("14_timeline")
    canvas, live = page.locator(".pk-tl-canvas"), page.locator(".pk-tl-live")
    canvas.focus()
    page.keyboard.press("/")
    page.keyboard.type("hcom_allreduce__")
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
    page.keyboard.type("hcom_allreduce__")
    page.keyboard.press("Enter")
    expect(details).to_contain_text("hcom_allReduce__586_0_1")
    canvas.focus()
    page.keyboard.press("v")
    expect(page.locator('[data-part="range"]')).to_contain_text("One by one")
    expect(page.locator('[data-part="range"] .pk-chart-title').first).to_have_text("By name")
    for _ in range(60):
        page.keyboard.press("w")
    expect(page.locator(".pk-tl-corner")).to_contain_text("4\u00a0ns from")
    expect(live).to_contain_text("4\u00a0ns wide")
    page.keyboard.press("m")
    page.keyboard.type("why so late?")
    page.keyboard.press("Enter")
    expect(page.locator('[data-part="marks"]')).to_contain_text("why so late?")
    assert "why so late?" in str(open_project(demo_server.project).pages["timeline_marks"])
    canvas.focus()
    page.keyboard.press("p")
    expect(page.locator(".pk-tl-pinned")).to_have_count(2)  # the heading and the lane
    page.get_by_label("Filter the units by rank, process or name").fill("rank 1")  # the chosen slice is on rank 0
    page.wait_for_function("['from=', 'slice=', 'pins=', 'filter='].every((name) => location.hash.includes(name))")
    page.reload()
    expect(page.locator(".pk-tl-pinned")).to_have_count(2)
    expect(page.get_by_label("Filter the units by rank, process or name")).to_have_value("rank 1")
    expect(page.locator(".pk-tl-found")).to_have_text("8 hits")
    expect(page.locator(".pk-tl-corner")).to_contain_text("4\u00a0ns from")
    expect(page.locator('[data-part="slice"]')).to_contain_text("hcom_allReduce__586_0_1")


def test_a_link_that_searches_goes_to_the_first_hit_and_what_is_cleared_leaves_the_address(open_page: OpenPage):
    page = open_page("14_timeline", "search=hcom_allreduce__586_0")
    expect(page.locator(".pk-tl-search").first).to_have_value("hcom_allreduce__586_0")
    expect(page.locator(".pk-tl-found")).to_contain_text("hits")
    expect(page.locator('[data-part="slice"]')).to_contain_text("hcom_allReduce__586_0")
    page.wait_for_function("location.hash.includes('slice=') && location.hash.includes('search=')")
    page.locator(".pk-tl-canvas").focus()
    page.keyboard.press("Escape")
    page.wait_for_function("!location.hash.includes('search=')")


def test_a_slice_leads_to_its_operator_in_the_graph_whose_lines_of_code_lead_back(open_page: OpenPage, demo_server: Server):
    graph = data_folder() / "ir" / "control_flow.ir"
    scoped = [node for node in perfkit.read_graph(graph).analysis.file.nodes() if node.sources and "/" in node.scope]
    recorded = shutil.copytree(TRACES / "synthetic_ms", demo_server.project / "of_the_graph")
    for table in recorded.rglob("kernel_details.csv"):  # its kernels get the names that MindSpore gives those of this graph
        names = (node.scope for _ in range(100) for node in scoped)
        table.write_text(re.sub(r"Default/network-layer\w+", lambda _, names=names: next(names), table.read_text()))
    node = scoped[0]
    page = open_page("14_timeline", f"run={quote(str(recorded))}&search={quote(node.scope)}")
    details = page.locator('[data-part="slice"]')
    expect(details).to_contain_text(node.scope)
    details.get_by_role("link", name="Operator in the graph").click()
    page.wait_for_url(re.compile("/18_graph_ir#"))
    expect(page.get_by_text("No operator of this graph matches the search").first).to_be_visible()  # the sample is another job's
    link = dict(parse_qsl(page.url.partition("#")[2]))
    assert link["recorded"] == str(recorded)
    page = open_page("18_graph_ir", urlencode({**link, "graph": str(graph)}, quote_via=quote))
    expect(page.get_by_text(node.sources[-1]).first).to_be_visible()
    ran = page.locator(".pk-panel", has=page.get_by_text("Everything that came from its lines of code"))
    expect(ran.get_by_text(f"{node.instance_name or node.op} ran", exact=False).first).to_be_visible()
    ran.get_by_role("link", name="timeline").first.click()
    page.wait_for_url(re.compile("/14_timeline#"))
    expect(details).to_contain_text(node.scope)


def test_a_kernel_leads_to_its_launch_and_its_line_of_code_and_a_range_shows_calls_inside_of_calls(open_page: OpenPage):
    launches = perfkit.load(KINETO).frame("launches").dropna(subset=["launch_ns", "start_ns"]).sort_values("start_ns")
    launched = launches.iloc[len(launches) // 2]
    place = f"{launched['rank']}|device|{launched['stream']}|0|{launched['start_ns']}"
    page = open_page("14_timeline", f"run={quote(str(KINETO))}&slice={quote(place)}")
    canvas, details = page.locator(".pk-tl-canvas"), page.locator('[data-part="slice"]')
    expect(details.get_by_role("button", name="Go to its launch")).to_be_visible()
    expect(details).to_contain_text("Line of code")
    kernel = details.locator("h3").inner_text()
    details.get_by_role("button", name="Go to its launch").click()
    expect(details.get_by_role("button", name="Go to its kernel")).to_be_visible()
    details.get_by_role("button", name="Go to its kernel").click()
    expect(details.locator("h3")).to_have_text(kernel)
    canvas.focus()
    page.keyboard.press("0")
    page.keyboard.press("v")
    calls = page.locator(".pk-tl-call")
    expect(calls.first).to_be_visible()
    name = calls.first.inner_text()
    calls.first.click()
    expect(details.locator("h3")).to_have_text(name)


def test_the_same_place_of_another_recording_is_gone_to_as_well(open_page: OpenPage, demo_server: Server):
    first = perfkit.load(KINETO).frame("launches").dropna(subset=["start_ns"]).iloc[0]
    slice_at = quote(f"{first['rank']}|device|{first['stream']}|0|{first['start_ns']}")
    copy = shutil.copytree(KINETO, demo_server.project / "uploads" / "copied")
    page = open_page("14_timeline", f"run={quote(str(KINETO))}&slice={slice_at}")
    details = page.locator('[data-part="slice"]')
    expect(details).to_contain_text("on the common clock")
    # What stood there before is written once more, as an answer to it does that comes before the page learns of the new address.
    overtaken = "(hash) => { const before = location.hash; location.hash = hash; history.replaceState(null, '', before); }"
    page.evaluate(overtaken, f"run={quote(str(copy))}&slice={slice_at}")
    expect(page.get_by_role("toolbar", name="Timeline tools").get_by_label("Recording")).to_have_value(str(copy))
    expect(details).to_contain_text("on the common clock")


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


def test_ranks_with_drifting_clocks_line_up_and_hostile_names_are_text(open_page: OpenPage, demo_server: Server):
    folder: Path = demo_server.project / "uploads" / "hostile_lanes"
    _record_with_drifting_clocks(folder)
    page = open_page("14_timeline", f"run={folder}")
    expect(page.locator("[data-panel=timeline] .pk-sentence")).to_contain_text("Rank 0 is free for ")
    expect(page.locator("[data-panel=timeline] .pk-notes").first).to_contain_text("82 events of 2 of 2 ranks")
    _hostile_names_are_text(page)
    clocks = page.locator(".pk-tl-clock")
    expect(clocks.nth(0)).to_contain_text("+3.04")
    expect(clocks.nth(0)).to_contain_text("drift 78")
    expect(clocks.nth(1)).to_contain_text(re.compile(r"±\d"))
    for rank in (0, 1):
        page.get_by_role("button", name=f"Pin stream 20 of rank {rank}").first.press("Enter")
    canvas = page.locator(".pk-tl-canvas")
    chosen = page.locator('[data-part="slice"]')
    for text in ("Enter", "Shift+Enter"):  # the first hit, then round to the last one
        page.get_by_label("Search names, as text or regular expression").fill("AllReduce")
        page.get_by_label("Search names, as text or regular expression").press(text)
        expect(page.locator(".pk-tl-found")).to_have_text("80 hits")
        expect(chosen).to_contain_text("AllReduce")
        if text == "Enter":
            first = chosen.inner_text()
    expect(chosen).not_to_have_text(first, use_inner_text=True)
    canvas.focus()
    page.keyboard.press("f")
    expect(page.locator(".pk-tl-corner")).to_contain_text(re.compile(r"^120\s?µs from"))
    ends = _ends_of_communication(page)
    assert len(ends) == 6  # of two ranks the pinned lane, the lane in its place and what was exposed
    assert (
        max(ends) - min(ends) < 3 * 900 / 240
    )  # us and pixels a us: the recording is that exact; uncorrected they are 39 us apart


def _hostile_names_are_text(page: Page) -> None:
    canvas = page.locator(".pk-tl-canvas")
    search = page.get_by_label("Search names, as text or regular expression")
    search.fill("onerror")
    search.press("Enter")
    expect(page.locator('[data-part="slice"] dl')).to_contain_text("Rank0")
    expect(page.locator('[data-part="slice"]')).to_contain_text(HOSTILE)
    canvas.focus()
    page.keyboard.press("f")
    lane, row = canvas.bounding_box(), page.locator(".pk-tl-unit").filter(has_text="stream 7").first.bounding_box()
    assert lane is not None
    assert row is not None
    page.mouse.move(lane["x"] + lane["width"] * 0.5, row["y"] + 9)
    expect(page.locator(".pk-tl-tip")).to_contain_text(HOSTILE)
    assert page.locator("img[src='x']").count() == 0


def _ends_of_communication(page: Page) -> list[float]:
    """Where the communication on every lane ends, in pixels of the picture that a visitor downloads."""
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG", exact=True).click()
    picture = Path(download.value.path()).read_text()
    drawn = re.findall(r'<rect x="([\d.-]+)" y="([\d.-]+)" width="([\d.]+)" height="15.00" fill="#E69F00"', picture)
    ends: dict[str, float] = {}
    for x, lane, width in drawn:  # a slice is drawn in parts
        ends[lane] = max(float(x) + float(width), ends.get(lane, 0.0))
    return list(ends.values())


def _record_with_drifting_clocks(folder: Path) -> None:
    """Two ranks whose all-reduces end together; the clock of the second is 3 ms late, gains 40 us a second and is exact to 1 us."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        same = {"ph": "X", "cat": "kernel", "pid": 0}
        events: list[dict] = [{**same, "name": HOSTILE, "tid": 7, "ts": 1, "dur": 600, "args": {"stream": 7}}]
        for number in range(40):
            jitter_us = 0.3 * (number * 7 % 5 - 2)
            end_us = 50_000 * number + 1_000 + rank * (3_000 + 2 * number + jitter_us)
            length_us = 200 - 100 * rank
            stated = {"stream": 20, "Collective name": "allreduce", "Group size": 2, "Process Group Ranks": "[0, 1]"}
            stated |= {"Process Group Name": "0", "dtype": "Float", "In msg nelems": 8}
            times = {"ts": end_us - length_us, "dur": length_us}
            events.append({**same, "name": "ncclDevKernel_AllReduce", "tid": 20, **times, "args": stated})
        head = {"baseTimeNanoseconds": EPOCH_NS, "distributedInfo": {"rank": rank, "world_size": 2}}
        (folder / f"rank{rank}.json").write_text(json.dumps({**head, "traceEvents": events}))


def test_the_timeline_fills_the_window_with_its_details_below_and_gives_it_back(open_page: OpenPage):
    page = open_page("14_timeline")
    canvas, whole = page.locator(".pk-tl-canvas"), page.locator("[data-panel=timeline]")
    before = canvas.bounding_box()["width"]
    canvas.focus()
    page.keyboard.press("x")
    expect(page.get_by_role("button", name="Full window")).to_have_attribute("aria-pressed", "true")
    assert whole.bounding_box() == {"x": 0, "y": 0, **page.viewport_size}
    page.wait_for_function(
        "(before) => document.querySelector('.pk-tl-canvas').getBoundingClientRect().width > before + 100", arg=before
    )
    top = "(() => document.elementFromPoint(innerWidth - 20, 20).closest('.pk-tl') !== null)()"
    assert page.evaluate(top), "nothing of the page lies over it"
    canvas.focus()
    page.keyboard.press("Escape")
    page.wait_for_function(
        "(before) => document.querySelector('.pk-tl-canvas').getBoundingClientRect().width === before", arg=before
    )


def test_a_recording_below_another_starts_at_the_same_step_and_moves_with_it(open_page: OpenPage):
    page = open_page("14_timeline", f"run={data_folder() / 'traces/torch_npu_2rank'}&beside={KINETO}")
    above, below = page.locator(".pk-tl-face").nth(0), page.locator(".pk-tl-face").nth(1)
    choices = page.get_by_label("Step at which the timelines are aligned")
    expect(choices).to_have_count(2)
    expect(choices.nth(1)).to_be_visible()
    first, second = (face.locator(".pk-tl-box").bounding_box() for face in (above, below))
    assert 0 < second["y"] - (first["y"] + first["height"]) < 120, "right below it"

    def widths() -> list[str]:
        return [face.locator(".pk-tl-corner").inner_text().split(" from")[0] for face in (above, below)]

    before = widths()
    assert before[0] == before[1]
    above.locator(".pk-tl-canvas").focus()
    page.keyboard.press("w")
    page.wait_for_function(f"document.querySelector('.pk-tl-corner').textContent.split(' from')[0] !== {before[0]!r}")
    page.wait_for_function(
        "new Set([...document.querySelectorAll('.pk-tl-corner')].map((e) => e.textContent.split(' from')[0])).size === 1"
    )
    below.locator(".pk-tl-canvas").focus()
    page.keyboard.press("v")
    expect(page.locator(".pk-tl-details table")).not_to_have_count(0)
    expect(page.locator(".pk-tl-details p", has_text="in all; slices that reach out")).to_have_count(2)
