"""The style sheets: what a browser has to do again for a change on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfkit.face

SHEETS = sorted(Path(perfkit.face.__file__).parent.rglob("*.css"))


def selectors(text: str) -> Iterator[str]:
    """Every selector of a style sheet, those of a list one by one."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for head in re.findall(r"([^{}]*)\{", text):
        if not head.strip().startswith("@"):
            yield from (one.strip() for one in outside(head, ","))


def outside(text: str, separators: str) -> list[str]:
    """A text cut at separators that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter in separators and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def test_a_selector_is_cut_outside_of_its_brackets():
    assert list(selectors("a:is(b, c) > d, e { x: y } @media (z) { f:has(> g) > * { x: y } }")) == [
        "a:is(b, c) > d",
        "e",
        "f:has(> g) > *",
    ]


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_what_something_has_decides_the_style_of_named_elements_only(sheet: Path):
    """`:has(…) > *` lets a browser work out the styles of the whole page anew at every change in it: a third of a slider's time."""
    found = [one for one in selectors(sheet.read_text(encoding="utf-8")) if ":has(" in one]
    assert not [one for one in found if outside(one, " >~+")[-1].strip().startswith("*")]
