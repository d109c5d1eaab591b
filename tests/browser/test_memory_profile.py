"""Page 15 by keyboard: another component, a limit, another rank."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_component_and_rank_by_keyboard(open_page: OpenPage):
    page = open_page("15_memory_profile")
    panel = page.locator('section[data-panel="how-memory-went"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("1.23 GiB (PTA+GE)")
    component = panel.get_by_label("Component")
    component.focus()
    component.select_option("APP")
    expect(sentence).to_contain_text("is not recorded")
    component.select_option("PTA")
    limit = panel.get_by_label("Limit", exact=True)
    limit.fill("1")
    limit.press("Enter")
    expect(panel).to_contain_text("above the limit")
    rank = panel.get_by_label("Rank", exact=True)
    rank.focus()
    rank.select_option("rank 1")
    expect(sentence).to_contain_text("Rank 1 allocated")
