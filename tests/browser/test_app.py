"""The frame of the app in a real browser: pages, kernels, states, keyboard, exports and what hostile text does."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import Error, expect

from perfkit.face.app.supervisor import GRACE_S
from tests.browser.app_server import Server, start, stop, wait_ready
from tests.browser.frame_pages import HOSTILE, write_pages

RANKS = "[data-panel=ranks]"
STATES = "[data-panel=states]"
BEFORE_THE_SUPERVISOR_S = GRACE_S - 2
"""What ends by itself has ended by then; what was forgotten, the supervisor ends later."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    return write_pages(tmp_path_factory.mktemp("frame") / "pages")


@pytest.fixture(scope="session")
def history_folder(tmp_path_factory):
    """Where IPython would keep what was executed."""
    return tmp_path_factory.mktemp("ipython")


@pytest.fixture(scope="session")
def server(tmp_path_factory, start_server, pages, history_folder):
    project = tmp_path_factory.mktemp("projects") / "frame"
    project.mkdir()
    return start_server(project, PERFKIT_PAGES=str(pages), IPYTHONDIR=str(history_folder))


@pytest.fixture
def page(make_offline, server):
    return make_offline(server)


@pytest.fixture
def ranks(page, server):
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    return page


@pytest.fixture
def states(page, server):
    page.goto(f"{server.url}12_states")
    wait_ready(page)
    return page


def sentence(page):
    return page.locator(".pk-sentence")


def end_kernel(page, server: Server) -> None:
    """End the kernel of an open page as the page itself would, and wait until it is told."""
    kernel_id = page.evaluate("perfkitPage.kernel.then(({ id }) => id)")
    request = urllib.request.Request(f"{server.url}voila/api/shutdown/{kernel_id}", method="POST", data=b"")
    assert urllib.request.urlopen(request, timeout=20).status == 204
    expect(page.locator("#ended")).to_be_visible(timeout=30_000)


def status_of(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_root_is_the_first_page_and_the_rail_lists_all(page, server):
    page.goto(server.url)
    wait_ready(page)
    assert page.url == f"{server.url}00_start_here"
    assert page.title() == "Where am I? · perfkit"
    assert page.locator(".rail-group").all_inner_texts() == ["Find"]
    expect(page.locator(".rail a[aria-current=page]")).to_have_text(re.compile("Start here"))
    expect(page.locator(".rail a[aria-current=page]")).to_have_attribute("title", re.compile("Where am I"))
    page.get_by_role("button", name="Narrow list of pages").click()
    page.locator(".rail").get_by_role("link", name="Ranks").click()
    page.wait_for_url("**/11_ranks")
    wait_ready(page)


def test_a_page_names_no_other_host(server):
    html = urllib.request.urlopen(f"{server.url}11_ranks", timeout=60).read().decode()
    assert not re.findall(r"https?://(?!127\.0\.0\.1|www\.w3\.org)[\w.-]+", html)
    assert html.index('<details class="cell cell-source">') < html.index("def compute"), "code is folded"


OF_LAB = (
    *("voila/static/voila.js", "voila/labextensions/anywidget/package.json", "voila/api/themes/x"),
    "api/kernels/11111111-1111-1111-1111-111111111111",
)


@pytest.mark.parametrize(
    "path", ["voila/files/11_ranks.ipynb", "voila/tree", "voila/api/contents", "voila/render/11_ranks.ipynb", *OF_LAB]
)
def test_files_listings_and_the_parts_of_jupyterlab_are_not_served(server, path):
    assert status_of(f"{server.url}{path}") in {403, 404}


def test_another_host_name_gets_no_answer(server):
    assert status_of(f"{server.url}perfkit/health", Host="evil.example") == 403
    assert status_of(f"{server.url}perfkit/health") == 200


def test_a_request_to_another_host_would_fail_a_test_and_gets_no_answer(page):
    page.set_content("<img src='http://elsewhere.example/'>")
    page.wait_for_function("document.images[0].complete")
    assert "request to http://elsewhere.example/" in page.problems
    assert page.evaluate("document.images[0].naturalWidth") == 0
    page.problems.clear()


def test_a_page_that_does_not_exist_says_so(server, browser):
    page = browser.new_page()
    assert page.goto(f"{server.url}77_none").status == 404
    expect(page.locator("h1")).to_have_text("There is no such page")
    page.close()


def test_a_failing_cell_shows_a_sentence_and_no_traceback(page, server):
    page.goto(f"{server.url}20_bare")
    wait_ready(page)
    expect(page.locator(".cell-error")).to_contain_text("could not be computed")
    assert "ZeroDivisionError" not in page.content()


LOST = """
const Socket = WebSocket, opened = window.channels = [];
window.WebSocket = class extends Socket {
  constructor(address, protocol) {
    super(Date.now() < window.awayUntil ? address.replace("/channels", "/away") : address, protocol);
    if (address.includes("/channels")) opened.push(this);
  }
};
"""
"""Keeps the connections that a page has to its kernel, so that they can be cut; until `awayUntil` it gets no other."""


def test_a_connection_to_the_kernel_that_is_lost_is_made_again_and_nothing_that_was_said_meanwhile_is(page, server):
    page.add_init_script(LOST)
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    slider = page.get_by_role("slider", name="Ranks")
    slider.focus()
    page.evaluate("channels[0].close()")
    slider.press("ArrowRight")
    expect(sentence(page)).to_have_text("9 ranks, picked none.")
    assert page.evaluate("channels.length") == 2
    slider.press("ArrowRight")
    expect(sentence(page)).to_have_text("10 ranks, picked none.")


def test_what_changed_while_nobody_was_connected_is_shown_once_somebody_is(page, server):
    go = server.project / "go"
    go.unlink(missing_ok=True)
    page.add_init_script(LOST)
    page.goto(f"{server.url}14_later")
    wait_ready(page)
    expect(sentence(page)).to_have_text("0 ranks, picked none.")
    page.evaluate("awayUntil = Date.now() + 4000; channels[0].close()")
    go.touch()
    expect(sentence(page)).to_have_text("3 ranks, picked none.", timeout=20_000)
    assert page.evaluate("Date.now() > awayUntil && channels.length > 2")
    page.problems.clear()  # of connections that were refused


def test_a_page_whose_kernel_has_ended_connects_no_more(page, server):
    page.add_init_script(LOST)
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    end_kernel(page, server)
    page.wait_for_timeout(3 * 1000)
    assert page.evaluate("channels.length") == 1
    page.problems.clear()


def test_views_are_drawn_while_later_cells_are_computed_and_what_is_chosen_meanwhile_stays(page, server):
    page.goto(f"{server.url}13_slow?n=4#n=4", wait_until="commit")
    expect(sentence(page).first).to_have_text("4 ranks, picked none.")
    assert page.evaluate("document.readyState") == "loading"
    assert page.evaluate("document.documentElement.dataset.perfkitReady") is None
    slider = page.get_by_role("slider", name="Ranks")
    slider.focus()
    slider.press("ArrowRight")
    expect(sentence(page).first).to_have_text("5 ranks, picked none.")
    assert page.evaluate("document.readyState") == "loading"
    wait_ready(page)
    expect(sentence(page).first).to_have_text("5 ranks, picked none.")
    page.wait_for_function("location.hash === '#n=5'")


def test_what_is_no_view_of_perfkit_is_told_or_shown_as_far_as_it_is_harmless(page, server):
    page.goto(f"{server.url}16_foreign")
    wait_ready(page)
    expect(page.locator("[data-widget]")).to_be_visible()
    expect(page.locator("[data-widget]")).to_have_text(re.compile("not one of perfkit's"))
    expect(page.locator("pre.cell-code", has_text=HOSTILE)).to_be_visible()
    assert page.locator(".content :is(b, [onerror], script:not([nonce]))").count() == 0
    page.wait_for_function("document.images.length && [...document.images].every((one) => one.naturalWidth > 0)")
    expect(page.locator("pre.cell-code", has_text="<plain>")).to_be_visible()


def test_views_that_cannot_be_drawn_are_told_each_in_its_place(page, server):
    page.route("**/perfkit/static/widgets.js*", lambda route: route.abort())
    page.goto(f"{server.url}11_ranks")
    expect(page.locator(".cell-error")).to_have_text(["This part of the page could not be drawn. Read the page anew."] * 2)
    page.problems.clear()


def test_a_slider_moved_by_keyboard_changes_sentence_figure_table_and_address(ranks):
    slider = ranks.get_by_role("slider", name="Ranks")
    expect(sentence(ranks)).to_have_text("8 ranks, picked none.")
    slider.focus()
    slider.press("ArrowRight")
    expect(sentence(ranks)).to_have_text("9 ranks, picked none.")
    expect(ranks.locator(f"{RANKS} .pk-plot .mark-rect path")).to_have_count(9)
    expect(ranks.locator(f"{RANKS} .pk-tables tbody tr")).to_have_count(9)
    ranks.wait_for_function("location.hash === '#n=9'")


def test_an_address_restores_the_view(page, server):
    page.goto(f"{server.url}11_ranks#n=5")
    wait_ready(page)
    expect(sentence(page)).to_have_text("5 ranks, picked none.")
    page.evaluate("location.hash = '#n=3'")
    expect(sentence(page)).to_have_text("3 ranks, picked none.")


def test_a_number_beyond_its_limits_is_clamped_and_said(ranks):
    peak = ranks.get_by_label("Peak")
    peak.fill("99999")
    peak.press("Enter")
    expect(ranks.locator("[data-control=peak] .pk-control-note")).to_have_text("set to 5000 TFLOP/s; 1 to 5000 is allowed")
    expect(peak).to_have_value("5000")


def test_a_mark_and_a_row_can_be_picked_by_mouse_and_keyboard(ranks):
    ranks.locator(f"{RANKS} .pk-plot .mark-rect path").nth(6).click()
    expect(sentence(ranks)).to_have_text("8 ranks, picked r6.")
    row = ranks.locator(f"{RANKS} .pk-tables tbody tr").nth(2)
    row.focus()
    row.press("ArrowDown")
    ranks.keyboard.press("Enter")
    expect(sentence(ranks)).to_have_text("8 ranks, picked r3.")


def test_hostile_names_stay_text_everywhere(ranks):
    dialogs = []
    ranks.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    ranks.get_by_role("button", name="Table").click()
    ranks.get_by_role("button", name="Where from").click()
    ranks.locator(f"{RANKS} .pk-plot .mark-rect path").nth(5).hover()
    expect(ranks.locator("#vg-tooltip-element")).to_contain_text(HOSTILE)
    assert ranks.locator("img").count() == 0
    assert dialogs == []
    expect(ranks.locator(".pk-popover")).to_contain_text(HOSTILE)


def test_a_figure_has_a_text_its_table_and_downloads(ranks, tmp_path):
    assert ranks.locator(f"{RANKS} .pk-plot").get_attribute("aria-label") == "8 ranks, picked none."
    for name in ("CSV", "PNG", "SVG"):
        with ranks.expect_download() as download:
            ranks.locator(f"{RANKS} .pk-chart").get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / name)
    assert (tmp_path / "CSV").read_text().splitlines()[:2] == ["rank,name,duration_ns,ms", "r0,computing,1500000,1.5"]
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "SVG").read_text().startswith("<svg")
    ranks.get_by_role("button", name="Table").click()
    expect(ranks.locator(".pk-chart-table tbody tr")).to_have_count(8)


def show(page, state):
    page.get_by_label("Show").select_option(label=state)


def test_all_six_states_are_shown_in_words(states):
    panel = states.locator(STATES)
    expect(sentence(states)).to_have_text("shown: result")
    show(states, "empty")
    expect(panel).to_have_attribute("data-state", "empty")
    states.get_by_role("button", name="Use the sample run").click()
    expect(sentence(states)).to_have_text("shown: result")
    show(states, "unmeasured")
    expect(panel.locator(".pk-status")).to_contain_text("Missing: memory")
    expect(panel.locator(".pk-how")).to_have_text("profile_memory: True")
    show(states, "error")
    expect(panel.locator(".pk-status h3")).to_have_text("run.csv: 2 problems")
    expect(panel.locator(".pk-status li")).to_have_count(2)
    show(states, "bug")
    expect(panel.locator(".pk-status h3")).to_contain_text("bug in perfkit")
    expect(panel.locator(".pk-status li")).to_have_text("ValueError: boom")
    expect(panel.locator(".pk-status details")).not_to_have_attribute("open", "")
    show(states, "loading")
    expect(panel.locator(".pk-status")).to_contain_text("MiB of 400 MiB")
    states.get_by_role("button", name="Cancel").click()
    expect(panel.locator(".pk-status h3")).to_have_text("Cancelled")


def test_a_press_on_cancel_counts_while_progress_is_said_and_the_keyboard_can_make_it(states):
    panel = states.locator(STATES)
    for device, key in ((states.mouse, ()), (states.keyboard, ("Space",))):
        show(states, "loading")
        told = panel.locator(".pk-status .pk-note")
        expect(told).to_contain_text("of 400 MiB")
        button = states.get_by_role("button", name="Cancel")
        button.focus()
        button.hover()
        device.down(*key)
        said = told.inner_text()
        expect(told).not_to_have_text(said)
        expect(button).to_be_focused()
        device.up(*key)
        expect(panel.locator(".pk-status h3")).to_have_text("Cancelled")
        show(states, "result")
        expect(sentence(states)).to_have_text("shown: result")


def test_an_old_figure_is_greyed_while_a_newer_one_is_computed(states):
    show(states, "slow")
    expect(states.locator(STATES)).to_have_class(re.compile("pk-stale"))
    expect(sentence(states)).to_have_text("shown: slow")
    expect(states.locator(STATES)).not_to_have_class(re.compile("pk-stale"))


def test_only_the_newest_question_is_answered(states):
    show(states, "slow")
    show(states, "error")
    show(states, "result")
    expect(sentence(states)).to_have_text("shown: result")
    expect(states.locator(STATES)).to_have_attribute("data-state", "result")


CONTRAST = """() => {
  const channel = (value) => (value /= 255, value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("script, style, svg, .skip")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${node.className || node.tagName}: ${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


def test_text_has_enough_contrast(page, server):
    for name in ("00_start_here", "11_ranks"):
        page.goto(f"{server.url}{name}")
        wait_ready(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
            assert page.evaluate(CONTRAST) == [], scheme


def test_the_theme_is_remembered(ranks, server):
    before = ranks.evaluate("getComputedStyle(document.body).backgroundColor")
    ranks.get_by_role("button", name="Light or dark theme").click()
    after = ranks.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    ranks.goto(f"{server.url}00_start_here")
    wait_ready(ranks)
    assert ranks.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_every_control_is_reached_by_tab_with_visible_focus(ranks):
    ranks.keyboard.press("Tab")
    expect(ranks.locator(".skip")).to_be_focused()
    reached = set()
    for _ in range(60):
        ranks.keyboard.press("Tab")
        if ranks.evaluate("document.activeElement === document.body"):
            break  # past the last one
        found = ranks.evaluate(
            """() => {
                const node = document.activeElement;
                const outlined = (one) => getComputedStyle(one).outlineStyle !== 'none';
                return [node.closest('[data-control]')?.dataset.control ?? '', outlined(node) || outlined(node.parentElement)];
            }"""
        )
        assert found[1], ranks.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        reached.add(found[0])
    assert {"n", "case", "unit", "peak", "picked", "flag"} <= reached


def test_nothing_is_wider_than_the_window(make_offline, server):
    page = make_offline(server, viewport={"width": 390, "height": 720})
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    for width in (390, 640, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 720})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_kernels_write_no_history_of_commands(page, server, history_folder):
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    assert not list(history_folder.rglob("history*"))


def test_kernels_of_closed_tabs_end(browser, server):
    server.wait_until(lambda health: health["pages"] == 0)
    # Without routing: playwright holds back the beacon that a closing page sends.
    context = browser.new_context()
    tabs = [context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{server.url}20_bare", wait_until="commit")
    server.wait_until(lambda health: health["pages"] == 8, timeout_s=120)
    for tab in tabs:
        wait_ready(tab, timeout_s=180)
    for tab in tabs:
        tab.close(run_before_unload=True)
    server.wait_until(lambda health: health["pages"] == 0, timeout_s=BEFORE_THE_SUPERVISOR_S)
    assert server.health()["warm"] <= 2
    context.close()


def test_kernels_of_a_crashed_browser_end_too(browser, server):
    server.wait_until(lambda health: health["pages"] == 0)
    page = browser.new_page()
    page.goto(f"{server.url}11_ranks")
    wait_ready(page)
    assert server.health()["pages"] == 1
    with contextlib.suppress(Error):
        page.goto("chrome://crash", timeout=5_000)
    server.wait_until(lambda health: health["pages"] == 0, timeout_s=BEFORE_THE_SUPERVISOR_S)


def test_a_page_left_before_it_was_drawn_leaves_no_kernel(browser, server):
    server.wait_until(lambda health: health["pages"] == 0)
    page = browser.new_page()
    page.goto(f"{server.url}12_states", wait_until="commit")
    page.close()
    server.wait_until(lambda health: health["pages"] == 0, timeout_s=BEFORE_THE_SUPERVISOR_S)


def test_an_ended_kernel_is_said_and_the_page_reopens_as_it_was(page, server):
    page.goto(f"{server.url}11_ranks#n=4")
    wait_ready(page)
    end_kernel(page, server)
    page.problems[:] = [problem for problem in page.problems if "404" not in problem and "WebSocket" not in problem]
    page.get_by_role("button", name="Reopen").click()
    expect(sentence(page)).to_have_text("4 ranks, picked none.", timeout=60_000)


def test_a_page_of_a_server_that_was_started_again_asks_for_its_new_token(browser, pages, tmp_path):
    def serve(token: str, port: int = 0) -> Server:
        arguments = ("--token", token)
        return start(tmp_path, tmp_path / f"{token}.log", arguments=arguments, token=token, port=port, PERFKIT_PAGES=str(pages))

    first = serve("the-first-token")
    page = browser.new_page()
    page.goto(f"{first.url}11_ranks?token={first.token}#n=4")
    wait_ready(page)
    stop(first)
    expect(page.locator("#ended")).to_contain_text("does not answer", timeout=30_000)
    port = int(first.url.rsplit(":", 1)[1].strip("/"))
    second = serve("the-second-token", port)
    try:
        expect(page.locator("#ended")).to_contain_text("new token", timeout=30_000)
        page.get_by_role("button", name="Reopen").click()
        page.get_by_label("Token").fill(second.token)
        page.get_by_role("button", name="Enter").click()
        expect(sentence(page)).to_have_text("4 ranks, picked none.", timeout=60_000)
        page.close(run_before_unload=True)
    finally:
        stop(second)


def test_a_foreign_page_cannot_end_a_kernel(server):
    request = urllib.request.Request(
        f"{server.url}voila/api/shutdown/x", method="POST", data=b"", headers={"Origin": "https://evil.example"}
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=20)
    assert error.value.code in {403, 404}


def test_the_visitor_after_the_last_place_waits_and_gets_in(browser, make_offline, start_server, server, pages):
    small = start_server(server.project, "--read-only", PERFKIT_PAGES=str(pages), PERFKIT_MAX_KERNELS="1")
    first = make_offline(small)
    first.goto(f"{small.url}20_bare")
    wait_ready(first)
    expect(first.locator(".bar-badge")).to_have_text("Read-only")
    second = browser.new_page()
    assert second.goto(f"{small.url}11_ranks").status == 503
    expect(second.locator("h1")).to_have_text("All places are taken")
    first.close(run_before_unload=True)
    expect(second.locator(".pk-sentence")).to_have_text("8 ranks, picked none.", timeout=60_000)
    second.close(run_before_unload=True)
    stop(small)
    assert small.process.returncode == 0


def test_health_is_numbers(server):
    health = json.loads(urllib.request.urlopen(f"{server.url}perfkit/health", timeout=10).read())
    assert health["limit"] >= 2
    assert {"pages", "limit", "warm", "full", "children", "descriptors", "version"} <= set(health)


def test_a_newcomer_is_shown_around_by_keyboard_and_may_stop_anywhere(open_page):
    page = open_page("11_step_breakdown")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        if width == 390:
            page.get_by_role("button", name="Pages", exact=True).click()
        page.locator("#tour-begin").focus()
        page.keyboard.press("Enter")
        tour = page.get_by_role("dialog", name="Tour")
        expect(tour.locator(".tour-count")).to_have_text("1 / 6" if width == 1280 else "3 / 6")
        for count in ("2 / 6", "3 / 6") if width == 1280 else ("4 / 6", "5 / 6", "6 / 6"):
            page.keyboard.press("Enter")
            expect(tour.locator(".tour-count")).to_have_text(count)
            box = tour.bounding_box()
            assert min(box["x"], box["y"], width - box["x"] - box["width"], 800 - box["y"] - box["height"]) >= 0
        page.keyboard.press("Escape")
        expect(tour).to_be_hidden()
        expect(page.locator(".tour-at")).to_have_count(0)
    assert page.evaluate("localStorage.getItem('perfkit-tour')") == "0"  # it was seen to its end, and begins anew


def test_what_one_page_has_read_is_kept_for_the_next(demo_server: Server, offline_page):
    """Kernels are confined to what is there: the server makes the folder in which they keep it."""
    offline_page.goto(f"{demo_server.url}11_step_breakdown")
    wait_ready(offline_page)
    assert list((demo_server.log.parent / "cache" / "runs").iterdir())
