"""What a page says in a sentence stands behind it: in its tables and charts, in what it follows, or in what a visitor set."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.core import quantity
from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.face.charts.spec import UNITS, split, unit_in
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.chart import as_figure
from perfkit.face.widgets.step_view import StepView
from perfkit.project.sample import demo
from tests.face.test_one_answer import KINDS, numbers_in, told_in
from tests.page_cells import opened_page, views, with_steps

DATA = data_folder()
OWN = Path(__file__).parents[1] / "data" / "traces"
RUNS = [
    *(DATA / "traces" / name for name in ("torch_npu_2rank", "kineto_resnet", "mindinsight_feed", "cluster_16card")),
    OWN / "torch_npu_pp2dp2",
]
PLANS = [*(DATA / "case13b" / f"round{number}.yaml" for number in (1, 2)), Path("deepseek-v3"), Path("mixtral-8x7b")]
OF_RUNS = ("11", "12", "13", "15", "16", "17", "20")
OF_PLANS = ("02", "03", "04", "05")
LEVEL = re.compile(r"\b80 % (?=interval|between|of its measured times)")
"""How sure an interval is, which is no figure of the page."""
STATISTICS: Mapping[str, tuple[str, ...]] = {
    "mean": ("mean", "average"),
    "median": ("median",),
    "max": ("most", "largest", "longest", "up to"),
    "min": ("least", "smallest", "shortest"),
}


NOT_BEHIND = {
    ("00", "where_the_project_stands", "ratio 0.377"): "the best round over the first one, which both stand in the table",
    ("03", "from_8_to_16_384_devices", "ratio 0.8"): "the limit above which linearity is called good",
    ("30", "what_was_changed", "ratio 0.01"): "what the guide supposed, in its words",
    ("40", "the_six_rounds", "bytes 6.87195e+10"): "the situation that the question gives; what was measured stands in the table",
    ("19", "which_rank_is_fullest", "ratio 0.013"): "a published figure, with its source in the sentence",
    ("18", "what_is_around", "bytes 156672"): "sums up the page before one operator is looked at; its table is two steps below",
    ("18", "what_is_around", "bytes 49152"): "as above",
}
"""Numbers that stand in no table or chart of their step, and why."""
RATIOS = frozenset(
    {
        "share",
        "change",
        "cumulative",
        "empty",
        "intensity",
        "linearity",
        "loss",
        "more",
        "over_mean",
        "over_stage",
        "relative",
        "slowness",
        "swing",
        "usage",
        "value",
        "z",
    }
)
"""Columns of charts that are of no unit."""
FEW = 8
"""A column of so few words divides the rows of a chart into groups, whose sums can be read off."""
PLACES = frozenset({"x", "y", "left", "right", "top", "bottom"})
"""Where the boxes of a drawn graph stand."""


def unit_of_column(name: str, header: str) -> str | None:
    """The unit that the file of a chart names over a column, "" for a ratio, None if it names none."""
    if unit := unit_in(header):
        return unit
    if name in RATIOS or quantity.unit_of(name) in ("ratio", "share", "linearity"):
        return ""
    own = [unit for unit in UNITS if name == (word := unit.lower().replace("/", "_per_")) or name.endswith(f"_{word}")]
    return max(own, key=len, default=quantity.unit_of(name))


def of_chart(chart: Any, text: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a chart by what they are of, with the sums of its columns and the statistics that the text names."""
    drawn = split(as_figure(chart).chart)
    for rows in drawn.datasets.values():
        for name, values in rows.items():
            unit = unit_of_column(name, drawn.headers.get(name, name))
            kind, size = ("ratio", 1.0) if unit == "" else KINDS.get({"us": "µs"}.get(unit or "", unit or ""), (unit or name, 1.0))
            numbers = [value * size for value in values if isinstance(value, int | float) and math.isfinite(value)]
            yield from ((kind, number) for number in [*numbers, sum(numbers)])
            yield from ((kind, float(getattr(pd.Series(numbers), name)())) for name in named_in(text) if numbers)
            for of in rows.values():
                if 1 < len({one for one in of if isinstance(one, str)}) < FEW:
                    yield from ((kind, sum(part)) for part in _by(of, values, size))


def _by(of: list[Any], values: list[Any], size: float) -> Iterator[list[float]]:
    """The numbers of a column by the words of another."""
    for word in dict.fromkeys(of):
        yield [value * size for one, value in zip(of, values, strict=True) if one == word and isinstance(value, int | float)]


def named_in(text: str) -> list[str]:
    """The statistics that a text names."""
    return [name for name, words in STATISTICS.items() if any(word in text for word in words)]


def of_table(frame: pd.DataFrame, text: str) -> Iterator[tuple[str, float]]:
    """The numbers of a table by what they are of, and what can be read off its columns.

    That is their sums, each number as a share of it, one sum against another, and the statistics that the text names.
    """
    yield from numbers_in(frame.to_dict("list"))
    numbers = frame.select_dtypes("number")
    for name in named_in(text):
        yield from numbers_in(getattr(numbers, name)().to_dict())
    sums = list(numbers_in(numbers.sum().to_dict()))
    for of in frame:
        if 1 < frame[of].nunique() < FEW and not pd.api.types.is_numeric_dtype(frame[of]):
            sums += (said for _, part in numbers.groupby(frame[of]) for said in numbers_in(part.sum().to_dict()))
    yield from sums
    yield from (("ratio", a / b) for of, a in sums for other, b in sums if of == other != "ratio" and b)
    for column in numbers:
        if quantity.quantity(str(column)) is not None and (total := numbers[column].sum()):
            yield from (("ratio", float(value) / float(total)) for value in numbers[column].dropna())


def totals(whole: Whole) -> Iterator[tuple[str, float]]:
    """The sums of the columns of a step's tables."""
    for table in whole.tables.values():
        yield from numbers_in(getattr(table, "frame", table).select_dtypes("number").sum().to_dict())


def set_by_the_visitor(view: StepView) -> Iterator[tuple[str, float]]:
    """What stands in the controls, by what it is of."""
    for drawn in view.controls:
        value, unit = drawn.get("value"), drawn.get("unit")
        unit = {"us": "µs", "percent": "%"}.get(unit, unit)
        if unit in KINDS and isinstance(value, int | float) and not isinstance(value, bool):
            kind, size = KINDS[unit]
            yield kind, value * size


def followed(view: StepView, page: Mapping[str, StepView]) -> list[StepView]:
    """The views that a view follows."""
    sources = getattr(getattr(view, "_recipe", None), "sources", {}).values()
    return [other for other in page.values() if {other.result, other.selection} & set(sources)] if sources else []


def around(view: StepView, page: Mapping[str, StepView]) -> Iterator[Whole]:
    """What a view shows, what it follows, and what follows it: where a visitor looks for a number that it says."""
    above = [view]
    for each in above:
        above += [other for other in followed(each, page) if other not in above]
    for each in (*above, *(other for other in page.values() if view in followed(other, page))):
        with suppress(PerfkitError):
            yield each.wait()


def unknown(text: str, behind: list[Whole], given: list[tuple[str, float]]) -> list[str]:
    """The numbers with a unit of a text that stand nowhere behind it."""
    text = LEVEL.sub("", text)
    told = list(told_in(text))
    if not told:
        return []
    known, sums = [*given], []
    for whole in behind:
        sums += totals(whole)
        known += [
            said for title in (*whole.tables, *whole.charts) for said in ((kind, shown.value) for kind, shown in told_in(title))
        ]
        for table in whole.tables.values():
            known += of_table(getattr(table, "frame", table), text)
        for chart in whole.charts.values():
            known += of_chart(chart, text)
    exact = {(kind, value) for kind, shown in told for of, value in known if kind == of and shown.is_of(value)}
    missing = []
    for kind, shown in told:
        if any(of == kind and shown.is_of(value) for of, value in exact):
            continue
        pairs = [(of, a, b) for of, a in exact for other, b in exact if of == other and a > 0 and b > 0]
        made = [-value for of, value in known if of == kind] + [a / b for of, a in exact for other, b in sums if of == other and b]
        made += [1 - a for of, a in exact if of == kind == "ratio"]
        made += [a - b for of, a, b in pairs if of == kind]
        made += [share for _, a, b in pairs for share in (a / b, a / (a + b), 1 - a / b, a / b - 1)] if kind == "ratio" else []
        if not any(shown.is_of(value) for value in made):
            missing.append(f"{kind} {shown.value:g}")
    return missing


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("sentences") / "demo").folder


@pytest.fixture(autouse=True)
def _in_the_sample_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")


def cases() -> Iterator[Any]:
    of = {name: RUNS if name.startswith(OF_RUNS) else PLANS if name.startswith(OF_PLANS) else () for name in with_steps()}
    of_pages = [(name, path) for name in of for path in (None, *of[name])]
    for name, path in sorted(of_pages, key=lambda case: str(case[1] or "")):  # a recording is read once for all its pages
        yield pytest.param(name, {"path": path} if path else {}, id=f"{name}-{path.stem}" if path else name)


def without_source(name: str, page: Mapping[str, StepView], of: str, whole: Whole) -> list[tuple[str, str]]:
    """The numbers of a step's sentences that stand nowhere behind them, with the sentence."""
    behind, given = list(around(page[of], page)), list(set_by_the_visitor(page[of]))
    told = ((number, str(text)) for text in (whole.text, *whole.notes) for number in unknown(str(text), behind, given))
    return [(number, text) for number, text in told if (name[:2], of, number) not in NOT_BEHIND]


def without_unit(whole: Whole) -> list[tuple[str, str]]:
    """The columns of the files of charts that hold numbers and say not of which unit, with the title of the chart."""
    found = []
    for title, chart in whole.charts.items():
        figure = as_figure(chart)
        drawn = split(figure.chart)
        rows = drawn.datasets[figure.table or next(iter(drawn.datasets))]
        numbers = [name for name, values in rows.items() if any(isinstance(value, float) for value in values)]
        named = {name: unit_of_column(name, drawn.headers.get(name, name)) for name in numbers if name not in PLACES}
        found += [(title, name) for name, unit in named.items() if unit is None]
    return found


WITH_UNIT = re.compile(
    rf"(?<![\w.,:-])[-−+]?(\d+(?:[\u2009\u202f ,]\d{{3}})*(?:\.\d+)?)[\u2009\u202f\u00a0 ]?"
    rf"(?:{'|'.join(sorted(map(re.escape, KINDS), key=len, reverse=True))})(?![\w/])"
)
MOST_DIGITS = 4
AS_TYPED = frozenset({"value", "min", "max", "step", "numbers", "csv"})
"""What is exact on purpose: entries of fields, and the files of tables and charts."""


def words_in(shown: Any) -> Iterator[str]:
    """All texts in what a page sends to the browser."""
    if isinstance(shown, str):
        yield shown
    elif isinstance(shown, Mapping):
        yield from (text for key, value in shown.items() if key not in AS_TYPED for text in (str(key), *words_in(value)))
    elif isinstance(shown, list | tuple):
        yield from (text for value in shown for text in words_in(value))


def too_exact(text: str) -> list[str]:
    """The numbers with a unit in a text that have more digits than people read; zeros at the end of a whole number are none."""
    digits = {
        found[0]: re.sub(r"\D", "", found[1] if "." in found[1] else found[1].rstrip("0")) for found in WITH_UNIT.finditer(text)
    }
    return [number for number, significant in digits.items() if len(significant.lstrip("0")) > MOST_DIGITS]


def test_digits_are_counted_as_people_see_them():
    text = "441.708 ms, 0.04417 ms, 57\u2009341 MiB, 12.30 %, 10 000 ns, step 12345, 123.45 x, v1.2345 s, 12,345 B"
    assert too_exact(text) == ["441.708 ms", "57\u2009341 MiB", "12,345 B"]


@pytest.mark.parametrize(("name", "parameters"), list(cases()))
def test_what_a_page_says_stands_behind_it_in_few_digits_and_its_files_name_their_units(name: str, parameters: Mapping[str, Path]):
    page: Mapping[str, StepView] = views(opened_page(name, **parameters))
    assert page
    for of, view in page.items():
        with suppress(PerfkitError):
            whole = view.wait()
            assert without_source(name, page, of, whole) == []
            assert without_unit(whole) == []
            assert [text for text in (whole.text, *whole.notes) if re.search(r"\b(?:None|nan)\b(?! of)", text)] == []
        assert view.status["state"] != "error", "a recording that lacks something is not wrong: it is said what was not measured"
        shown = (view.title, view.data, view.details, view.frame, view.status, view.controls, view.actions)
        assert [number for text in words_in(shown) for number in too_exact(text)] == []
