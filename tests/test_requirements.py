"""The list of the guides' requirements is whole, names what exists, and is the page of the documentation."""

from __future__ import annotations

import re

from tests.requirements import DOCUMENT, ROOT, document, requirements

NUMBERED = {
    *range(1, 27), *range(30, 45), *range(50, 58), *range(60, 92), *range(100, 123), *range(130, 139), *range(140, 156),
    *range(160, 167), *range(170, 179), *range(180, 192), *range(200, 207),
}  # fmt: skip
LETTERED = {"R084a", "R089a"}


def test_every_number_of_the_guides_is_in_the_list_once():
    found = [one.number for one in requirements()]
    assert len(found) == len(set(found))
    assert set(found) == {f"R{number:03d}" for number in NUMBERED - {139}} | LETTERED


def test_what_a_requirement_names_exists():
    lost = [(one.number, path) for one in requirements() for path in (*one.where, *one.tests) if not (ROOT / path).exists()]
    assert lost == []


def test_a_requirement_without_a_place_or_a_test_says_why():
    assert [one.number for one in requirements() if not (one.where and one.tests) and not one.lacks] == []
    for one in requirements():
        for path in one.tests:
            assert re.search(r"^def test_", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), path


def test_the_page_is_what_the_list_gives():
    assert DOCUMENT.read_text(encoding="utf-8") == document()
