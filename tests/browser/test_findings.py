"""Page 20 by keyboard: choose a finding, read its evidence, dismiss it without and with a reason."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.told import briefly
from perfkit.project.experiments import ExperimentLog
from perfkit.project.findings import ANSWER
from perfkit.record.load import load
from tests.browser.conftest import Server

OpenPage = Callable[..., Page]


def test_a_finding_is_chosen_and_dismissed_by_keyboard(open_page: OpenPage, demo_server: Server):
    page = open_page("20_findings")
    listed, shows, answers = (
        page.locator(f'section[data-panel="{name}"]') for name in ("what-to-change-first", "what-shows-it", "answer-to-the-finding")
    )
    expected = diagnose(load(demo_server.project / "samples" / "torch_npu_2rank")).findings
    expect(listed.locator(".pk-sentence")).to_contain_text(briefly(expected[0]))
    last = listed.get_by_role("row").filter(has_text=expected[-1].title)
    last.focus()
    last.press("Enter")
    expect(shows.locator(".pk-sentence")).to_contain_text(expected[-1].title)
    inside = page.locator("section.pk-tl")
    show = inside.get_by_role("button", name="Show it here")
    show.focus()
    show.press("Enter")
    expect(inside.locator(".pk-tl-live")).to_contain_text("wide.")
    dismiss = answers.get_by_role("radio", name="dismiss it")
    dismiss.focus()
    dismiss.press("Space")
    button = answers.get_by_role("button", name="Note it")
    button.focus()
    button.press("Enter")
    expect(answers).to_contain_text("say why the finding is dismissed")
    reason = answers.get_by_label("Reason to dismiss it")
    reason.fill("known, and not worth a round")
    reason.press("Enter")
    reason.blur()
    button.focus()
    button.press("Enter")
    expect(answers.locator(".pk-sentence")).to_contain_text(f"{expected[-1].rule} is dismissed")
    expect(listed.get_by_role("row").filter(has_text=expected[-1].title)).to_have_count(0)
    answer = [event for event in ExperimentLog(demo_server.project).events() if event["action"] == ANSWER][-1]
    assert answer["detail"]["reason"] == "known, and not worth a round"


def test_on_the_first_page_a_finding_that_is_chosen_by_keyboard_opens_the_timeline_at_its_slice_and_lights_up_its_ranks(
    open_page: OpenPage, demo_server: Server
):
    page = open_page("00_start_here")
    expected = diagnose(load(demo_server.project / "samples" / "torch_npu_2rank")).findings
    listed = page.locator('section[data-panel="what-to-change-first"]')
    row = listed.get_by_role("row").filter(has_text=expected[0].rule)
    row.focus()
    row.press("Enter")
    expect(row).to_have_attribute("aria-selected", "true")
    lanes = page.locator("section.pk-tl")
    expect(lanes.get_by_text("Pinned, to compare").or_(lanes.get_by_text("Selected: "))).to_be_visible()
    assert f"finding={expected[0].rule}" in page.url


def test_on_the_first_page_the_timeline_opens_when_it_comes_into_sight(open_page: OpenPage):
    page = open_page("00_start_here")
    lanes = page.locator("section.pk-tl")
    expect(lanes).to_have_attribute("data-state", "empty")
    lanes.scroll_into_view_if_needed()
    expect(lanes).to_have_attribute("data-state", "result")
