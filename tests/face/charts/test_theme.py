"""Theme and spec: one colour a thing, rows apart from structure, nothing slow imported."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
from pathlib import Path

import altair as alt
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from perfkit.face.charts import theme
from perfkit.face.charts.plans import STEP_PARTS
from perfkit.face.charts.spec import columns, split


def test_the_categories_have_the_colours_of_okabe_and_ito():
    assert theme.path_colors(["computing", "communication/exposed", "bubble", "free", "free/data"]) == [
        "#0072B2",
        "#E69F00",
        "#999999",
        "#D55E00",
        "#CC79A7",
    ]


def test_the_parts_of_a_step_are_seen_on_the_ground_of_either_theme():
    style = (Path(theme.__file__).parents[1] / "widgets" / "_widgets.css").read_text(encoding="utf-8")
    light, dark = (theme.luminance(ground) for ground in list(dict.fromkeys(re.findall(r"--pk-surface: (#[0-9a-f]{6})", style))))
    assert light > 0.9
    assert dark < 0.1
    seen = {part: theme.luminance(color) for part, color in zip(STEP_PARTS, theme.path_colors(STEP_PARTS), strict=True)}
    contrast = {part: min((light + 0.05) / (one + 0.05), (one + 0.05) / (dark + 0.05)) for part, one in seen.items()}
    assert min(contrast.values()) >= 2.1  # of Okabe and Ito's orange on white and of the lightest blue
    waits = [part for part in STEP_PARTS if part.startswith("communication/")][1:]
    assert min(contrast[part] for part in waits) >= 3


def test_the_page_knows_the_colours_that_stand_for_its_own():
    script = (Path(theme.__file__).parents[1] / "widgets" / "_widgets.js").read_text(encoding="utf-8")
    assert all(color in script for color in (theme.TEXT, theme.MUTED, theme.GROUND))


@given(st.lists(st.sampled_from([*(f"computing/{part}" for part in "abcde"), "free", "x/1", "x/2", "y"]), unique=True))
def test_parts_of_one_thing_have_different_colours(paths):
    colors = theme.path_colors(paths)
    assert len(colors) == len(paths)
    groups = [path for path in paths if path.startswith("computing")]
    assert len({color for path, color in zip(paths, colors, strict=True) if path in groups}) == len(groups)


def test_rows_are_taken_out_of_the_structure():
    bars = alt.Chart(alt.NamedData("rows")).mark_bar().encode(x="a:Q")
    spec = split(theme.with_rows(bars, {"rows": [{"a": 1}, {"b": 2}]}))
    assert spec.datasets == {"rows": {"a": [1, None], "b": [None, 2]}}
    assert "datasets" not in spec.spec
    assert split(theme.with_rows(bars, {"rows": [{"a": 9}]})).digest == spec.digest


def test_frames_given_inline_get_stable_names():
    def drawn(values):
        return split(alt.Chart(pd.DataFrame({"a": values})).mark_bar().encode(x="a:Q"))

    first, second = drawn([1, 2]), drawn([3, 4])
    assert first.digest == second.digest
    assert first.spec["data"] == {"name": "data-0"}
    assert second.datasets == {"data-0": {"a": [3, 4]}}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.floats(), st.text(max_size=5))), max_size=20))
def test_no_row_is_lost_on_the_way_to_the_page(rows):
    found = columns(rows)
    assert all(len(column) == len(rows) for column in found.values())
    for name, column in found.items():
        for row, value in zip(rows, column, strict=True):
            given_value = row.get(name)
            lost = isinstance(given_value, float) and not math.isfinite(given_value)
            assert value == (None if lost else given_value)


def test_times_become_text_and_missing_ones_none():
    frame = pd.DataFrame({"t": [pd.Timestamp("2026-01-02"), pd.NaT]})
    assert columns(frame.to_dict("records"))["t"] == ["2026-01-02T00:00:00", None]


def test_a_page_kernel_never_imports_the_slow_parser():
    code = "import perfkit.face.widgets, sys; print([m for m in ('lark', 'rfc3987_syntax') if sys.modules.get(m)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SLOW = {"alt.value", "alt.datum", "alt.condition", "alt.when"}
"""What altair looks up in all of its schemas, 2 ms a time, because it does not say which channel it is for."""


def slow_channels(source: str) -> list[int]:
    """The lines of a module in which a channel is given by a text, or by a value that does not know its channel."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".encode", "theme.bars")):
            for channel in (keyword.value for keyword in node.keywords if keyword.arg not in (None, "data")):
                parts = channel.elts if isinstance(channel, ast.List) else [channel]
                found += [part.lineno for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLOW:
            found.append(node.lineno)
    return found


def test_channels_are_written_as_what_they_are():
    assert slow_channels("c.encode(x='a:Q', tooltip=['b:N'])\nc.encode(size=alt.value(3))") == [1, 1, 2]
    folder = Path(theme.__file__).parent
    assert {path.name: lines for path in folder.glob("*.py") if (lines := slow_channels(path.read_text(encoding="utf-8")))} == {}
