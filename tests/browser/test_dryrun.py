"""Page 19 by keyboard: a lower limit asks for changes, a file with two statistics asks what they are."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from perfkit.core.resources import data_folder

OpenPage = Callable[..., Page]


def test_a_lower_limit_and_two_statistics_by_keyboard(open_page: OpenPage):
    page = open_page("19_dryrun")
    panel = page.locator('section[data-panel="which-rank-is-fullest"]')
    sentence = panel.locator(".pk-sentence")
    expect(sentence).to_contain_text("3.99 GiB below its limit of 60.0 GiB")
    limit = panel.get_by_label("Limit", exact=True)
    limit.fill("54")
    limit.press("Enter")
    expect(sentence).to_contain_text("It does not fit.")
    changes = page.locator('section[data-panel="what-frees-enough"]')
    expect(changes.locator("tbody").filter(has_text="recompute Silu and Mul")).to_contain_text("yes")
    limit.fill("0")
    limit.press("Enter")
    picker = page.locator('section[data-panel="choose-log"]')
    picker.get_by_role("button", name="Choose another").press("Enter")
    logs = picker.get_by_label("Logs", exact=True)
    logs.fill(str(data_folder() / "dryrun" / "recompute_before_after.log"))
    logs.press("Enter")
    expect(sentence).to_contain_text("perfkit does not guess")
    choice = panel.get_by_label("Several statistics in one file are")
    choice.focus()
    choice.select_option("before and after")
    expect(sentence).to_contain_text("from 260 MiB to 76.0 MiB: -70.8 %")


def test_a_path_that_is_longer_than_its_field_shows_its_name(open_page: OpenPage):
    page = open_page("19_dryrun")
    chooser = page.locator('section[data-panel="choose-plan"]')
    chooser.get_by_role("button", name="Choose another").click()
    plan = chooser.get_by_label("Plan of the job", exact=True)
    expect(plan).to_have_value(str(data_folder() / "dryrun" / "qwen2.5_7b" / "as_trained" / "pretrain.sh"))
    at_its_end = "(field) => field.scrollLeft > 0 && field.scrollLeft + field.clientWidth >= field.scrollWidth - 1"
    page.wait_for_function(at_its_end, arg=plan.element_handle())
    plan.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.wait_for_function(at_its_end, arg=plan.element_handle())
