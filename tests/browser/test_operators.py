"""Page 12 by keyboard: a larger speed-up wins more, and the answer is on screen."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_a_faster_operator_is_asked_about_by_keyboard(open_page: OpenPage):
    page = open_page("12_operators")
    panel = page.locator('section[data-panel="what-a-faster-one-wins"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("The step would take")
    expect(panel).to_contain_text("become 2 times faster")
    factor = panel.get_by_label("What if it were faster").first
    factor.fill("8")
    factor.press("Enter")
    expect(panel).to_contain_text("become 8 times faster")
