"""Page 12 by keyboard: a larger speed-up wins more, and the answer is on screen."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_a_faster_operator_is_asked_about_by_keyboard(open_page: OpenPage):
    page = open_page("12_operators")
    panel = page.locator('section[data-panel="operators"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("2 times faster: the step takes")
    factor = panel.get_by_label("What if it were faster").first
    factor.fill("8")
    factor.press("Enter")
    expect(sentence).to_contain_text("8 times faster: the step takes")
