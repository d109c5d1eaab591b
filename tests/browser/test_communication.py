"""Page 13 by keyboard: the answer of eight ranks, another threshold, one rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]
EIGHT = Path(__file__).parents[1] / "data" / "traces" / "dlrm_8xV100"


def test_the_threshold_and_the_ranks_are_changed_by_keyboard(open_page: OpenPage):
    page = open_page("13_communication", f"run={EIGHT}")
    expect(page.locator('section[data-panel="hidden-and-exposed"] .pk-sentence')).to_contain_text("of the step)")
    panel = page.locator('section[data-panel="who-waits-for-whom"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("is waiting, longest for rank 7: see what delays it")
    threshold = panel.get_by_label("Waiting counts from this share")
    threshold.fill("0.99")
    threshold.press("Enter")
    threshold.blur()
    expect(sentence).to_contain_text("is waiting, for no single rank")
    ranks = panel.get_by_label("Ranks", exact=True)
    ranks.fill("1")
    ranks.press("Enter")
    ranks.blur()
    expect(panel.get_by_role("table", name="Ranks: waiting").locator("tbody tr")).to_have_count(1)
