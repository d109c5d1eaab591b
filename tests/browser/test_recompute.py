"""Page 05 by keyboard: another setting, a pattern that names nothing, another dialect."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_a_pattern_of_ones_own_is_checked_and_exported_by_keyboard(open_page: OpenPage):
    page = open_page("05_recompute")
    panel = page.locator('section[data-panel="what-the-choice-does"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("as in the file")
    choice = panel.get_by_label("Recompute", exact=True)
    choice.focus()
    choice.select_option("Silu and Mul")
    expect(sentence).to_contain_text("216")
    choice.select_option("my patterns")
    patterns = panel.get_by_label("Patterns, one a line")
    patterns.fill("attention_normi.rcast")
    patterns.press("Control+Enter")
    patterns.blur()
    expect(sentence).to_contain_text("1 of 1 patterns name no operator")
    expect(panel.locator("tbody").filter(has_text="names nothing")).to_contain_text("attention_norm")
    export = page.locator('section[data-panel="the-choice-as-configuration"]')
    export.get_by_label("Export for").select_option("Megatron arguments")
    expect(export).to_contain_text("for Megatron")
