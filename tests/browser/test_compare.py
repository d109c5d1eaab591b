"""Pages 21 and 22 by keyboard: another side, another pair of losses, and the verdict on screen."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from perfkit.core.resources import data_folder

OpenPage = Callable[..., Page]


def test_another_old_side_is_compared_by_keyboard(open_page: OpenPage):
    page = open_page("21_compare")
    changed = page.locator('section[data-panel="what-changed"]')
    expect(changed.locator(".pk-sentence")).to_contain_text("It helped")
    expect(changed.locator(".pk-notes")).to_contain_text("changed most")
    picker = page.locator('section[data-panel="choose-a"]')
    picker.get_by_role("button", name="Choose another").press("Enter")
    path = picker.get_by_placeholder("path of a folder or file").first
    path.fill(str(data_folder() / "case13b" / "round1.yaml"))
    path.press("Enter")
    settings = page.locator('section[data-panel="which-settings-differ"]')
    expect(settings.locator("tbody").filter(has_text="jit_config.jit_level").first).to_be_visible()


def test_losses_that_part_are_called_so(open_page: OpenPage):
    page = open_page("22_accuracy_alignment")
    sentence = page.locator('section[data-panel="is-it-the-same"]').locator(".pk-sentence")
    expect(sentence).to_contain_text("Aligned")
    picker = page.locator('section[data-panel="choose-candidate"]')
    picker.get_by_role("button", name="Choose another").press("Enter")
    path = picker.get_by_placeholder("path of a folder or file").first
    path.fill(str(data_folder() / "losses" / "diverged.csv"))
    path.press("Enter")
    expect(sentence).to_contain_text("Diverged: the losses part from step 120")
