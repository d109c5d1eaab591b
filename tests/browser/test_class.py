"""A class in real browsers: a student by keyboard alone, another with other numbers, and an instructor whom both hear."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from perfkit.project import create_project
from perfkit.teach import question
from tests.browser.app_server import stop, wait_ready

TOKEN = "open sesame"
SEED = 2024


@pytest.fixture
def class_server(tmp_path, start_server):
    project = tmp_path / "class"
    project.mkdir()
    create_project(project, "A class")
    server = start_server(project, "--class", "--class-seed", str(SEED), "--class-admin", TOKEN)
    yield server
    stop(server)


def test_students_answer_by_keyboard_and_hear_the_instructor(class_server, make_offline):
    first, second = (opened(make_offline, class_server, name) for name in ("s01", "s02"))
    card, box = exercise(first)
    asked = question("E01", SEED, "s01")
    box.focus()
    first.keyboard.type(repr(asked.wrong["missing_seq"]))
    press(first, card, "Check")
    expect(card.locator(".pk-outcome")).to_contain_text("one sample is seq tokens")
    assert repr(asked.answer) not in first.content()
    box.fill("5,120")
    press(first, card, "Check")
    expect(card.locator(".pk-outcome")).to_contain_text("Right. 10 points.")

    instructor = second.locator('[data-panel="the-class"]')
    instructor.get_by_label("Token").fill(TOKEN)
    instructor.get_by_label("Token").blur()
    expect(instructor.locator(".pk-sentence")).to_contain_text("students are here")
    switches = second.locator('[data-panel="what-all-pages-follow"]')
    switches.get_by_label("Line for every page").fill("Break <b>soon</b>")
    switches.get_by_label("Line for every page").blur()
    switches.get_by_role("button", name="Say", exact=True).click()
    expect(first.locator(".pk-class-message")).to_have_text("Break <b>soon</b>")
    expect(first.locator(".pk-class-here")).to_have_text("2 here")

    expect(progress(second)).to_contain_text("So far 0 of 41 solved")
    first.reload()
    wait_ready(first)
    expect(progress(first)).to_contain_text("So far 1 of 41 solved, 10 points")


def opened(make_offline, server, name: str) -> Page:
    page = make_offline(server)
    page.goto(f"{server.url}40_class#student={name}")
    wait_ready(page)
    return page


def exercise(page: Page):
    card = page.locator('[data-panel="the-exercise"]')
    return card, card.get_by_label("Your answer").locator("visible=true").first


def progress(page: Page):
    return page.locator('[data-panel="how-far-you-are"] .pk-sentence')


def press(page: Page, card, name: str) -> None:
    """Leave the field by Tab and press the button by Enter."""
    page.keyboard.press("Tab")
    button = card.get_by_role("button", name=name, exact=True)
    button.focus()
    page.keyboard.press("Enter")
