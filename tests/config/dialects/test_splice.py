"""Values change in place: the published cases to the byte, other styles of YAML, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.config.dialects.splice import splice
from perfkit.core.errors import InputError

SAMPLES = Path(__file__).parents[2] / "data" / "configs"
CASES = json.loads((SAMPLES / "splice" / "cases.json").read_text(encoding="utf-8"))["cases"]
TEXT = """# head
a: &x 1  # first
b: [*x, 2]
section:
  one: True   # kept
  two:
    - 1
    - 2
  # before three
  three: {p: 1, q: [1, 2]}
empty:
nothing: null
"""


def changed(text: str, changes: dict) -> str:
    return splice(text, "x.yaml", {tuple(key.split(".")): value for key, value in changes.items()})[0]


def lines(before: str, after: str) -> dict[int, str]:
    return {
        number: new for number, (old, new) in enumerate(zip(before.split("\n"), after.split("\n"), strict=True), 1) if old != new
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_the_published_cases_are_met_to_the_byte(case):
    before = (SAMPLES / "splice" / case["file"]).read_bytes().decode()
    after = changed(before, case["changes"])
    assert hashlib.sha256(after.encode()).hexdigest() == case["expected"]["sha256"]
    assert lines(before, after) == {line["line"]: line["after"] for line in case["expected"]["changed_lines"]}


def test_a_changed_anchor_names_the_places_that_follow():
    text, notes = splice(TEXT, "x.yaml", {("a",): 8})
    assert "a: &x 8  # first" in text
    assert notes == ("line 2, a: the alias makes b follow",)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"section.one": False}, "  one: False   # kept"),
        ({"section.two": [4, 0]}, "  two: [4, 0]"),
        ({"section.three.q": [3]}, "  three: {p: 1, q: [3]}"),
        ({"section.three.r": "x"}, '  three: {p: 1, q: [1, 2], r: "x"}'),
        ({"section.four": 1.5e-5}, "  four: 1.5e-05"),
        ({"empty": 3}, "empty: 3"),
        ({"nothing": [[1, 2], [3, 4]]}, "nothing: [[1, 2], [3, 4]]"),
        ({"empty.inner": True}, "empty:\n  inner: True"),
        ({"new.inner": 1}, "nothing: null\nnew:\n  inner: 1"),
        ({"section.one": {r"feed_forward\.mul": [1, 2]}}, "  one:   # kept\n    'feed_forward\\.mul': [1, 2]"),
    ],
)
def test_every_style_of_value_can_be_changed(changes, line):
    after = changed(TEXT, changes)
    assert line in after
    assert "# head" in after
    assert "# before three" in after


def test_no_change_gives_the_same_text():
    assert splice(TEXT, "x.yaml", {})[0] == TEXT


def test_a_value_is_no_section():
    with pytest.raises(InputError, match="a: is no section, b has no place"):
        changed(TEXT, {"a.b": 1})


def test_aliases_that_unfold_without_end_are_refused():
    bomb = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    with pytest.raises(InputError, match="unfold to more than"):
        changed(bomb, {"a0": 2})


def test_windows_line_ends_stay():
    after = changed(TEXT.replace("\n", "\r\n"), {"section.one": False, "section.four": 1})
    assert after.count("\r\n") == after.count("\n")
    assert "  four: 1\r\n" in after


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([("a",), ("section", "one"), ("section", "two"), ("section", "new"), ("empty",), ("other", "deep", "key")]),
        st.one_of(
            st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12),
            st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1, max_size=3),
        ).filter(lambda value: not (isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'")),
        max_size=4,
    )
)  # fmt: skip
def test_whatever_is_written_is_read_back_and_nothing_else_changes(changes):
    after = splice(TEXT, "x.yaml", changes)[0]
    wanted = yaml.safe_load(TEXT)
    for path, value in changes.items():
        level = wanted
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = value
    if ("a",) in changes:
        wanted["b"][0] = changes["a",]
    assert yaml.safe_load(after) == wanted
