"""Page 30 by keyboard: a guess, the reveal, and what was reported of round 2."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_a_round_is_guessed_and_then_revealed_by_keyboard(open_page: OpenPage):
    page = open_page("30_case_13b", "number=2")
    panel, told = (page.locator(f'section[data-panel="{name}"]') for name in ("your-guess", "predicted-and-reported"))
    expect(told).to_contain_text("Type your guess")
    assert not re.search("2[\u2009\u202f]189", page.locator("main").inner_text())
    guess = panel.get_by_label("Your guess")
    guess.fill("2000")
    guess.press("Enter")
    idea = panel.get_by_label("What would you try next?")
    idea.fill("recompute less")
    idea.press("Enter")
    panel.get_by_role("button", name="Keep my guess and reveal").press("Enter")
    expect(told.locator(".pk-sentence")).to_contain_text("the guide reports 2\u2009189: error -")
    expect(told).to_contain_text("Step as estimated")
