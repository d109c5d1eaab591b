"""Page 03 by keyboard: a lower limit, a row of the ranked plans into the comparison, a plan by hand."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_limits_rows_and_a_plan_by_hand_by_keyboard(open_page: OpenPage):
    page = open_page("03_parallel_strategy")
    panel = page.locator('section[data-panel="parallel-strategy"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("fit 57.2")
    limit = panel.get_by_label("Memory limit, exact")
    limit.fill("40")
    limit.press("Enter")
    expect(sentence).to_contain_text("fit 40.0")
    expect(panel.locator(".pk-tables")).to_have_attribute("aria-busy", "false")
    compared = panel.locator("tbody").filter(has_text="1 plan")
    row = panel.locator("tr[tabindex]").nth(2)
    chosen = row.locator("td").nth(1).inner_text().split(",")[0]
    row.focus()
    page.keyboard.press("Enter")
    expect(compared.locator("tr").first).to_contain_text(f"1 plan: {chosen}")
    panel.get_by_label("Compare a plan by hand").focus()
    page.keyboard.press("Space")
    expect(compared).to_contain_text("by hand: dp ")
