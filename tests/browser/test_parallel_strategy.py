"""Page 03 by keyboard: a lower limit, a row of the ranked plans into the comparison, a plan by hand."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]


def test_limits_rows_and_a_plan_by_hand_by_keyboard(open_page: OpenPage):
    page = open_page("03_parallel_strategy")
    search, compared = (page.locator(f'section[data-panel="{name}"]') for name in ("which-strategies-fit", "the-plans-compared"))
    sentence = search.locator(".pk-sentence")
    expect(sentence).to_contain_text("of 57.2")
    first = compared.locator("tbody").filter(has_text="1 plan").locator("tr").first
    expect(first).to_be_visible()
    before = compared.locator(".pk-sentence").inner_text()
    limit = search.get_by_label("Memory limit, exact")
    limit.fill("40")
    limit.press("Enter")
    expect(sentence).to_contain_text("of 40.0")
    expect(compared.locator(".pk-sentence")).not_to_have_text(before)
    row = compared.locator("tr[tabindex]").nth(2)
    expect(row).to_be_visible()
    expect(compared.locator(".pk-tables")).to_have_attribute("aria-busy", "false")
    chosen = row.locator("td").nth(1).inner_text().split(",")[0]
    row.focus()
    page.keyboard.press("Enter")
    expect(first).to_contain_text(f"1 plan: {chosen}")
    expect(compared.locator(".pk-tables")).to_have_attribute("aria-busy", "false")
    compared.locator("tr[tabindex]").nth(3).focus()
    page.keyboard.press("Enter")
    expect(first).not_to_contain_text(f"1 plan: {chosen}")
    expect(compared.locator("tr[aria-selected=true]")).to_have_count(2)
    compared.get_by_label("Compare a plan by hand").focus()
    page.keyboard.press("Space")
    expect(compared.locator("tbody").filter(has_text="by hand: data ")).to_be_visible()
