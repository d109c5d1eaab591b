"""One writer of numbers: what a surface shows goes through `core.units` and `core.quantity`; it formats and scales none by hand."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from perfkit.core import quantity
from perfkit.core.schema import TABLES
from tests.notebook_format import FOLDER as NOTEBOOKS

PACKAGE = Path(__file__).resolve().parents[2] / "perfkit"
ROOMS = ("explain", "face", "teach", "project")
FOREIGN = {PACKAGE / "face" / "export" / "ascend.py"}
"""Writes the files of another tool, in that tool's spelling."""
SURFACES = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py")) if path not in FOREIGN]
NUMBER = re.compile(r"[,_%]|\.\d|\.\{|[eEfFgGn]$")
"""What a format of a number has and one that only aligns has not: separators, digits, a kind of notation."""
UNIT = re.compile(r"(?:^|_)(?:ns|bytes|flops|per_s|share|mfu|hfu)(?:_|$)")
UNITS = {"NS_PER_US", "NS_PER_MS", "NS_PER_S", "KIB", "MIB", "GIB", "GIGA", "TERA"}


def _spec(node: ast.AST) -> str:
    if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.format_spec.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "format" and len(node.args) == 2:
        return node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = node.func.value.value if isinstance(node.func.value, ast.Constant) else ""
        return " ".join(re.findall(r"\{[^{}:]*:([^{}]*)\}", text)) if isinstance(text, str) else ""
    return ""


def by_hand(source: str) -> list[int]:
    """The lines on which a number becomes text by a format of its own, or with its separators exchanged."""
    found = []
    for node in ast.walk(ast.parse(source)):
        replaces_comma = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "replace"
            and [getattr(argument, "value", None) for argument in node.args[:1]] == [","]
            and isinstance(node.args[1], ast.Name | ast.Constant)
            and getattr(node.args[1], "value", "\u2009") == "\u2009"
        )
        if NUMBER.search(_spec(node)) or replaces_comma:
            found.append(node.lineno)
    return found


def drawn_by_hand(source: str) -> list[int]:
    """The lines on which a chart gives a number beside a mark a format of its own; ticks of axes are the axis's."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("Tooltip", "Text")
        for word in node.keywords
        if word.arg == "format" and isinstance(word.value, ast.Constant | ast.JoinedStr)
    ]


def scaled(source: str) -> list[int]:
    """The lines on which an amount is divided by a unit inside of a text: what is scaled by hand for people."""
    return [
        part.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if isinstance(part, ast.BinOp) and (_by_unit(part) or _to_percent(part))
    ]


def _by_unit(node: ast.BinOp) -> bool:
    divisor = node.right
    known = getattr(divisor, "id", None) in UNITS or getattr(divisor, "value", 0) in (1e3, 1e6, 1e9, 1e12)
    return isinstance(node.op, ast.Div) and known


def _to_percent(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Mult) and 100 in (getattr(side, "value", None) for side in (node.left, node.right))


WRITERS = {"format_ns", "format_bytes", "format_si", "format_ratio", "format_change", "significant"}
DIGITS = (3, 4)
"""What is judged by changes of a few in a thousand has 4, all else 3; what has more is a count, which is written in full."""
WITHOUT_UNIT = "significant"
"""Times of something, which may be told roughly: "59 times the median"."""


def other_digits(source: str) -> list[int]:
    """The lines on which a number is written for people with other digits than its table has: more than they read, or fewer.

    A limit, which stands in a constant, has those in which it was set.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in WRITERS:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = [word.value for word in node.keywords if word.arg == "digits"]
            given += node.args[-1:] if len(node.args) == (3 if name == "format_si" else 2) else []
            is_limit = getattr(node.args[0], "id", getattr(node.args[0], "attr", "")).isupper()
            least = 1 if is_limit or name == WITHOUT_UNIT else DIGITS[0]
            found += [node.lineno for digits in given if not least <= getattr(digits, "value", 9) <= DIGITS[-1]]
    return found


def test_a_number_for_people_has_the_digits_of_its_table():
    paths = (path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "core")
    assert {str(path): lines for path in paths if (lines := other_digits(path.read_text(encoding="utf-8")))} == {}
    wrong = "format_ns(a, 6)\nsignificant(a, len(str(a)))\nformat_si(a, 'B/s', digits=5)\nformat_ratio(a, 2)"
    assert other_digits(wrong) == [1, 2, 3, 4]
    assert other_digits("format_ns(a, 4)\nformat_ratio(LIMIT, 2)\nsignificant(a, 2)") == []


@pytest.mark.parametrize("path", SURFACES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_surface_formats_no_number_by_hand(path: Path):
    source = path.read_text(encoding="utf-8")
    assert by_hand(source) == []
    assert scaled(source) == []
    assert drawn_by_hand(source) == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_page_formats_no_number_by_hand(path: Path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert by_hand("".join(cell["source"])) == [], cell["id"]


def named_by_hand(source: str) -> list[str]:
    """The columns with a unit that get other words than those of their name, by which all surfaces know them."""
    tree = ast.parse(source)
    given = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "labels"]
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    given += [node.value for node in assigned if any("labels" in ast.unparse(target).lower() for target in node.targets)]
    keys = [key for value in given for part in ast.walk(value) if isinstance(part, ast.Dict) for key in part.keys]
    return [key.value for key in keys if isinstance(key, ast.Constant) and quantity.unit_of(str(key.value))]


def test_a_quantity_is_called_the_same_everywhere():
    rooms = (path for room in (*ROOMS, "predict") for path in sorted((PACKAGE / room).rglob("*.py")))
    found = {str(path): names for path in rooms if (names := named_by_hand(path.read_text(encoding="utf-8")))}
    assert found == {}
    assert named_by_hand('frame.attrs["labels"] = {"hidden_ns": "hidden comm.", "origin": "from"}') == ["hidden_ns"]


@pytest.mark.parametrize(
    "source",
    [
        'f"{x:.1f} ms"',
        'f"{x:,}"',
        'f"{x:+.1%}"',
        'f"{x:g}"',
        'format(x, ".3f")',
        '"{:.2f}".format(x)',
        'text.replace(",", THIN_SPACE)',
    ],
)
def test_the_check_sees_every_way_of_doing_it(source: str):
    assert by_hand(source) == [1]


def test_the_check_leaves_alone_what_only_aligns():
    assert by_hand('f"{name:<20} {cell:>{width}} {number:02d}" + text.replace(",", ";")') == []
    assert scaled('f"{format_ns(ns / NS_PER_MS)}"') == [1]
    assert scaled('f"{significant(100 * share)} %"') == [1]
    assert drawn_by_hand('alt.Tooltip("ms:Q", title="ms", format=",.3~f")') == [1]


def test_a_column_whose_name_holds_a_unit_ends_in_one():
    moments = {name for name in ("time_ns", "start_ns", "end_ns", "latest_start_ns") if quantity.unit_of(name) is None}
    names = {column.name for table in TABLES.values() for column in table.columns}
    assert {name for name in names if UNIT.search(name) and quantity.unit_of(name) is None} <= moments
    assert quantity.text("flops_per_s_per_device", 3.23e9) == "3.23 GFLOP/s/device"


@pytest.mark.parametrize(
    ("name", "value", "shown", "called"),
    [
        ("casts_share_of_computing", 0.0259, "2.59 %", "casts share of computing"),
        ("share_in_data_loader", 0.827, "82.7 %", "share in data loader"),
        ("gradient_bytes_a_step", 2**21, "2.00 MiB", "gradient bytes a step"),
        ("share_of_step", 0.5, "50.0 %", "share of step"),
    ],
)
def test_what_a_share_is_of_may_follow_its_unit(name: str, value: float, shown: str, called: str):
    assert (quantity.text(name, value), quantity.label(name)) == (shown, called)
